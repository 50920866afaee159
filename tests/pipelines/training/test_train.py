"""A whole training of the tiny SDXL: its LoRA in diffusers and here, stops and kills, samples, all weights."""

import json
import os
import shutil
import signal
import subprocess
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from diffusers import StableDiffusionXLPipeline
from PIL import Image
from safetensors import safe_open
from safetensors.torch import load_file

from pipelines import registry
from pipelines.errors import ModelError, RecipeError
from pipelines.generate import generate
from pipelines.models.catalog import Catalog, load_catalog, read_data_dir
from pipelines.recipes.recipe import Recipe
from pipelines.stages import ignore_progress
from pipelines.training.checks import check_training
from pipelines.training.engine.loop import Stop
from pipelines.training.place import Place
from pipelines.training.results.state import find_newest
from pipelines.training.run import Result, train
from pipelines.training.settings import TrainingSettings, read_settings
from tests.forked_python import find_forked_python
from tests.pipelines.single_files import Tensors, write_ldm
from tests.pipelines.training.zorb import make
from tests.places import ROOT

STEPS = 7
SAMPLE = "a red sailboat"


@dataclass(kw_only=True)
class Trainer:
    """Trains the tiny SDXL in folders of its own; `stop_at` stops after that step."""

    catalog: Catalog
    data: Path
    folder: Path
    cache_dir: Path
    events: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])

    def run(self, output: str, *, stop_at: int | None = None, catalog: Catalog | None = None, **asked: Any) -> Result:
        asked = {"lora": True, "steps": STEPS, "global_batch_size": 2, "rank": 4, "learning_rate": 5e-3, "mesh": "dp=1",
                 "mixed_precision": "no"} | asked  # fmt: skip
        settings = read_settings({"model": "tiny", "data": (str(self.data),), "output": self.folder / output} | asked)
        model = (catalog or self.catalog).get(settings.model)
        checked = check_training(settings, model, registry.find_learner(model), name="zorb")
        stop = Stop()

        def hear(event: dict[str, Any]) -> None:
            self.events.append(event)
            if stop_at is not None and event.get("step") == stop_at:
                stop.ask("test")

        place = Place(output=self.folder / output, cache=self.folder / "cache", cache_dir=self.cache_dir)
        return train(settings, checked, place, stop=stop, on_event=hear, on_progress=ignore_progress)


@pytest.fixture(name="trainer", scope="module")
def make_trainer(local_catalog: Catalog, cache_dir: Path, tmp_path_factory: pytest.TempPathFactory) -> Trainer:
    folder = tmp_path_factory.mktemp("training")
    return Trainer(
        catalog=local_catalog, data=make(folder / "zorb", count=4, side=64), folder=folder, cache_dir=cache_dir
    )


@pytest.fixture(name="lora", scope="module")
def train_lora(trainer: Trainer) -> Path:
    """A LoRA trained without a stop, with a sample on the way."""
    (file,) = trainer.run("whole", sample=(SAMPLE,), sample_every=4).files
    return file


def put_lora(family: Any, file: Path, name: str) -> None:
    family.model.loras_dir.mkdir(exist_ok=True)
    shutil.copyfile(file, family.model.loras_dir / f"{name}.safetensors")


def test_the_lora_makes_the_same_picture_in_diffusers_and_here(
    lora: Path, family: Any, borrow: Callable[[Any], Any], draw_recipe: Callable[..., Recipe], data_dir: Path
) -> None:
    put_lora(family, lora, "trained")
    recipe = draw_recipe(loras=[{"ref": "trained"}])
    plain = generate(borrow(family), draw_recipe()).pixels
    (ours,) = generate(family, recipe).pixels
    pipeline = StableDiffusionXLPipeline.from_pretrained(data_dir / "models" / "tiny", add_watermarker=False)
    pipeline.set_progress_bar_config(disable=True)

    pipeline.load_lora_weights(lora.parent, weight_name=lora.name)
    theirs = pipeline(
        recipe.prompt,
        width=64,
        height=64,
        num_inference_steps=recipe.steps,
        guidance_scale=recipe.guidance_scale,
        generator=torch.Generator("cpu").manual_seed(recipe.seed or 0),
        output_type="np",
    ).images[0]

    assert np.abs(ours.astype(int) - plain[0].astype(int)).max() > 4
    assert np.abs(ours / 255 - theirs).max() < 3 / 255


def test_the_file_says_how_it_was_made(lora: Path) -> None:
    with safe_open(lora, "pt") as file:
        metadata = file.metadata()
    assert metadata["ss_base_model"] == "tiny"
    assert json.loads(metadata["lumesh_training"])["steps"] == STEPS
    assert (metadata["ss_network_dim"], metadata["ss_network_alpha"]) == ("4", "4")


def test_programs_that_sort_loras_by_their_header_take_it_for_one_of_sdxl(lora: Path) -> None:
    """A1111 and Forge take any that says nothing, or other words, for one of Stable Diffusion 1, and hide it."""
    with safe_open(lora, "pt") as file:
        metadata = file.metadata()
    assert metadata["ss_base_model_version"].startswith("sdxl_")
    assert metadata["modelspec.architecture"] == "stable-diffusion-xl-v1-base/lora"
    required = ("sai_model_spec", "architecture", "implementation", "title", "resolution")
    assert all(metadata[f"modelspec.{name}"] for name in required)


@pytest.mark.process
def test_a_command_that_is_killed_while_it_saves_and_later_stopped_goes_on_to_the_same(
    trainer: Trainer, lora: Path, data_dir: Path, tmp_path: Path
) -> None:
    """It learns from a single file, which gives the same as its folder does.

    Its rows are its own: what another mesh has encoded may differ in the last bit.
    """
    catalog = write_single_file(tmp_path, data_dir)
    output = trainer.folder / "killed"
    process = subprocess.Popen(
        [find_forked_python(), "-m", "pipelines", "train", "mine", "--lora", "--data", str(trainer.data), "--name=zorb",
         f"--steps={STEPS}", "--global_batch_size=2", "--rank=4", "--learning_rate=5e-3", "--mesh=dp=1",
         "--mixed_precision=no", "--save_every_minutes=1e-6", f"--output={output}", f"--data-dir={tmp_path}",
         "--allow-cpu", "--json"],
        stdout=subprocess.PIPE, text=True, cwd=ROOT, env=dict(os.environ),
    )  # fmt: skip
    assert process.stdout is not None
    for line in process.stdout:
        event = json.loads(line)
        if (event["event"], event.get("step")) == ("saved", 3):  # the writing begins
            process.kill()
            break
    process.communicate()
    assert process.returncode == -signal.SIGKILL
    assert not list(output.glob("*.safetensors"))
    assert (saved := find_newest(output / "state")) is not None

    first = trainer.run("killed", model="mine", catalog=catalog, stop_at=saved + 1)
    assert not first.files
    assert saved < first.steps < STEPS
    second = trainer.run("killed", model="mine", catalog=catalog)

    assert [event["step"] for event in trainer.events if event["event"] == "resumed"] == [saved, first.steps]
    assert read_tensors(second.files[0]) == read_tensors(lora)
    steps = [json.loads(line) for line in (output / "log.jsonl").read_text("utf-8").splitlines()]
    told = [line["step"] for line in steps if line["event"] == "step"]
    assert told == sorted(set(told)), "none is told twice"
    assert told[-(STEPS - saved) :] == [*range(saved + 1, STEPS + 1)]


def write_single_file(data_dir: Path, source: Path, **options: Any) -> Catalog:
    """Gives a data directory `mine`, a single file of the tiny SDXL of another, whose configs it has."""
    (data_dir / "models").mkdir()
    (data_dir / "models" / "tiny").symlink_to(source / "models" / "tiny")
    write_ldm(source / "models" / "tiny", data_dir / "models" / "one.safetensors", **options)
    entry = '[[model]]\nid = "mine"\nfile = "one.safetensors"\nconfigs = "tiny"\n'
    (data_dir / "models.toml").write_text(entry, "utf-8")
    return read_data_dir(data_dir)


def read_tensors(file: Path) -> tuple[dict[str, Any], bytes]:
    """The header of a file, but for the model's name in it, and the bytes after it."""
    content = file.read_bytes()
    start = 8 + int.from_bytes(content[:8], "little")
    header = json.loads(content[8:start])
    assert header["__metadata__"].pop("ss_base_model")
    return header, content[start:]


def test_another_rank_does_not_go_on_with_a_state(trainer: Trainer, lora: Path) -> None:
    assert lora.exists()
    with pytest.raises(RecipeError) as told:
        trainer.run("whole", rank=8)
    assert "another output folder" in str(told.value)


def test_a_sample_is_what_the_lora_of_its_step_makes(
    trainer: Trainer,
    lora: Path,
    family: Any,
    borrow: Callable[[Any], Any],
    draw_recipe: Callable[..., Recipe],
) -> None:
    (event,) = [event for event in trainer.events if event["event"] == "sample"]
    picture = Path(event["file"])
    (file,) = picture.parent.glob("*.safetensors")
    assert lora.exists()
    assert event["step"] == 4
    put_lora(family, file, "step")
    usual = {"steps": family.model.steps, "guidance_scale": family.model.guidance_scale}

    (expected,) = generate(borrow(family), draw_recipe(prompt=SAMPLE, seed=0, loras=[{"ref": "step"}], **usual)).pixels

    np.testing.assert_allclose(np.asarray(Image.open(picture)).astype(int), expected.astype(int), atol=2)


def test_all_weights_make_a_folder_that_diffusers_and_the_catalogue_read(
    trainer: Trainer, data_dir: Path, tmp_path: Path, draw_recipe: Callable[..., Recipe]
) -> None:
    """From a single file with a VAE of its own that predicts velocity: both are in the folder."""

    def change(tensors: Tensors) -> Tensors:
        own = {name: one * 0.9 if name.startswith("first_stage") else one for name, one in tensors.items()}
        return own | {"v_pred": torch.zeros(0)}

    catalog = write_single_file(tmp_path, data_dir, change=change)
    asked = {"lora": False, "full": True, "rank": 16, "learning_rate": 1e-3, "ema": 0.5, "steps": 4, "model": "mine"}
    asked |= {"save_precision": "fp16"}
    result = trainer.run("all", **asked, sample=(SAMPLE,), sample_every=4, catalog=catalog)

    (folder,) = result.files
    pipeline = StableDiffusionXLPipeline.from_pretrained(folder, add_watermarker=False)
    stored = load_file(tmp_path / "models" / "one.safetensors")
    assert torch.equal(pipeline.vae.decoder.conv_out.weight, stored["first_stage_model.decoder.conv_out.weight"])
    assert pipeline.scheduler.config["prediction_type"] == "v_prediction"
    learnt = pipeline.unet.conv_in.weight
    (file,) = (folder / "unet").glob("*.safetensors")
    assert {value.dtype for value in load_file(file).values()} == {torch.float16}
    assert not torch.equal(learnt, stored["model.diffusion_model.input_blocks.0.0.weight"].bfloat16().float())
    shutil.copytree(
        folder, tmp_path / "models" / "all", ignore=shutil.ignore_patterns("state*", "*.jsonl", "settings.json")
    )
    written = read_data_dir(tmp_path).get("all")
    (event,) = [event for event in trainer.events if event["event"] == "sample" and "all" in event["file"]]
    assert not [*folder.glob("state-sampled-*")]
    family = registry.load(written, mesh=None, cache_dir=trainer.cache_dir, on_progress=ignore_progress)
    usual = {"steps": written.steps, "guidance_scale": written.guidance_scale}
    (expected,) = generate(family, draw_recipe(prompt=SAMPLE, seed=0, **usual)).pixels
    family.unload()
    np.testing.assert_array_equal(np.asarray(Image.open(event["file"])), expected)
    assert "base_model" not in (folder / "README.md").read_text("utf-8"), "no repository has it"


def test_a_model_in_int8_is_not_trained() -> None:
    model = replace(load_catalog().get("demo-sdxl"), weights="int8")
    settings = TrainingSettings(data=("pictures",), lora=True)
    with pytest.raises(ModelError, match="nothing can be learnt from rounded ones"):
        check_training(settings, model, registry.find_learner(model), name="zorb")

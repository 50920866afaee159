"""Wan 2.2's experts learn a clip one after the other, each into a file that says which one it changes."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
from diffusers import WanPipeline
from safetensors import safe_open
from safetensors.torch import save_file

from pipelines import registry
from pipelines.errors import RecipeError
from pipelines.files.metadata import read_recipe_of
from pipelines.files.video import write_mp4
from pipelines.loras.files import inspect_lora
from pipelines.messages import Message
from pipelines.models.catalog import Model, load_catalog
from pipelines.models.fingerprints import find_configs
from pipelines.recipes.recipe import Recipe
from pipelines.runtime.devices.mesh import build_mesh
from pipelines.stages import ignore_progress
from pipelines.training.checks import check_training
from pipelines.training.engine.denoiser import Origin
from pipelines.training.engine.first_values import read_first_lora
from pipelines.training.engine.loop import Stop
from pipelines.training.place import Place
from pipelines.training.results.samples import Sampler
from pipelines.training.run import train
from pipelines.training.settings import read_settings
from tests.pipelines.families.wan.conftest import KINDS, PROMPT, make_small, write_checkpoint


def test_each_expert_learns_and_diffusers_takes_both_files(tmp_path: Path, cache_dir: Path) -> None:
    write_checkpoint(tmp_path / "models" / "experts", KINDS["experts"], seed=0)
    frames = np.random.default_rng(0).integers(0, 256, (12, 32, 32, 3), np.uint8)
    (tmp_path / "data").mkdir()
    write_mp4(tmp_path / "data" / "a.mp4", frames, Recipe(model="x", prompt="x", fps=16))
    model = make_small(load_catalog(tmp_path / "models", tmp_path / "loras").get("experts"), KINDS["experts"])
    settings = read_settings(
        {"model": "experts", "data": (str(tmp_path / "data"),), "lora": True, "steps": 1, "rank": 2, "mesh": "dp=1",
         "global_batch_size": 1, "caption": PROMPT, "sample": (PROMPT,), "sample_every": 1}
    )  # fmt: skip
    checked = check_training(settings, model, registry.find_learner(model), name="clip")
    assert checked.buckets == {"32x32x9": 1}
    place = Place(output=tmp_path / "out", cache=tmp_path / "cache", cache_dir=cache_dir)

    result = train(
        settings, checked, place, stop=Stop(), on_event=lambda _event: None, on_progress=ignore_progress
    )  # fmt: skip

    high, low = result.files
    assert [inspect_lora(file, ref=file.stem).expert for file in (high, low)] == ["high", "low"]
    second = read_recipe_of(tmp_path / "out" / "samples" / "clip-000001_low_noise-0.mp4")
    assert second is not None
    assert [lora.ref for lora in second.loras] == ["clip_high_noise", "clip-000001_low_noise"]
    pipeline = WanPipeline.from_pretrained(tmp_path / "models" / "experts")
    pipeline.load_lora_weights(high, adapter_name="high")
    pipeline.load_lora_weights(low, adapter_name="low", load_into_transformer_2=True)
    layers = [{name.split(".lora_A")[0] for name in expert.state_dict() if ".lora_A" in name}
              for expert in (pipeline.transformer, pipeline.transformer_2)]  # fmt: skip
    assert len(layers[0]) > 10 and layers[0] == layers[1]

    for file, component, other in ((high, "transformer", "transformer_2"), (low, "transformer_2", "transformer")):
        assert check_training(
            settings.model_copy(update={"start_from": str(file)}), model, registry.find_learner(model), name="clip"
        ).first_lora
        notes: list[Message] = []
        assert len(read_of(file, model, component, notes)) == len(layers[0])
        assert "begins anew" not in " ".join(map(str, notes))
        assert not read_of(file, model, other, notes)
        assert f"has nothing for {other}, whose own begins anew" in str(notes[-1])
    made = {name: make_sample(tmp_path / name, model, cache_dir, high=high, low=low, strong=name)
            for name in ("none", "again", "high", "low")}  # fmt: skip
    assert made["none"] == made["again"]
    assert len({*made.values()}) == 3, "the file of each expert changes what is made with both"
    for expert, file in (("low", high), ("high", low)):
        asked = settings.model_copy(update={"start_from": str(file), "expert": expert})
        with pytest.raises(RecipeError, match=f"and the {expert}-noise one learns"):
            check_training(asked, model, registry.find_learner(model), name="clip")


def make_sample(folder: Path, model: Model, cache_dir: Path, *, high: Path, low: Path, strong: str) -> bytes:
    """Returns a sample of the second expert, after that one's LoRA was made much stronger which is `strong`."""
    folder.mkdir()
    files: list[Path] = []
    for expert, file in (("high", high), ("low", low)):
        with safe_open(file, "pt") as stored:
            tensors = {name: stored.get_tensor(name) * (100 if expert == strong else 1) for name in stored.keys()}  # noqa: SIM118
            save_file(tensors, folder / file.name, stored.metadata())
        files.append(folder / file.name)
    sampler = Sampler(model, [PROMPT], cache_dir=cache_dir, seed=0, on_progress=ignore_progress)
    (sample,) = sampler.make(files[1], folder, beside=files[:1])
    sampler.close()
    recipe = read_recipe_of(sample)
    assert recipe is not None and [lora.ref for lora in recipe.loras] == [high.stem, low.stem]
    return sample.read_bytes()


def read_of(file: Path, model: Model, component: str, notes: list[Message]) -> Mapping[str, Any]:
    """Returns what an expert would learn on from, and adds what is told of it."""
    learner, architecture = registry.find_learner(model), cast(Any, registry.find_architecture(model))
    origin = Origin(
        model=model, learner=learner, folder=find_configs(model), mesh=build_mesh("dp=1"), on_progress=ignore_progress
    )
    return read_first_lora(
        inspect_lora(file, ref=file.stem), origin, component,
        components=("transformer", "transformer_2"), spell=architecture.spell, tell=notes.append,
    )  # fmt: skip

"""`bench` and `bench swap`: every process they start runs and gives its figures; which figures is the machine's."""

import json
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from diffusers import UNet2DConditionModel
from jax.sharding import Mesh

from pipelines.__main__ import main
from pipelines.commands.bench.checkpoint import check_room, count_parameters
from pipelines.commands.bench.compare import check_platforms, describe_dtypes, list_diffusers_sides
from pipelines.commands.bench.compare_runner import find_dtype, list_warm, load_diffusers
from pipelines.commands.bench.process import measure
from pipelines.commands.bench.training import write_pictures
from pipelines.commands.bench.training_runner import ENCODED_BEFORE, EVERY_STEP, WARM_UP, Watch, run_diffusers
from pipelines.errors import LumeshError
from pipelines.models.catalog import Model, load_catalog
from pipelines.recipes.recipe import Recipe
from pipelines.registry import describe_parts
from pipelines.runtime.devices.mesh import build_mesh
from pipelines.training.planning import describe_step
from pipelines.training.settings import TrainingSettings
from tests.forked_python import find_forked_python
from tests.places import ROOT

Run = Callable[..., Any]


@pytest.fixture(scope="module")
def two_dir(short_dir: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A data directory with the model `tiny`, and with another one whose UNet has twice the channels."""
    folder = tmp_path_factory.mktemp("two")
    for name in ("tiny", "other"):
        shutil.copytree(short_dir / "models" / "tiny", folder / "models" / name)
    unet = folder / "models" / "other" / "unet"
    config = json.loads((unet / "config.json").read_text("utf-8")) | {"block_out_channels": [64]}
    UNet2DConditionModel.from_config(config).save_pretrained(unet)
    return folder


@pytest.fixture
def run(two_dir: Path, capsys: pytest.CaptureFixture[str]) -> Run:
    """Runs a command on a data directory with two quick models and reads its JSON."""

    def run(*arguments: str) -> Any:
        assert main([*arguments, "--mesh", "dp=1", "--json", "--data-dir", str(two_dir)]) == 0
        return json.loads(capsys.readouterr().out)

    return run


@pytest.mark.usefixtures("fork_commands")
def test_both_sides_are_measured_alike_on_random_weights_which_are_removed(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    flags = ("--size", "mid", "--vs", "diffusers", "--pictures", "1", "--num-inference-steps", "1")
    found = run("bench", "--model", "tiny", *flags)
    assert (found["size"], found["recipe"]["model"], found["warning"]) == ("mid", "tiny", "")
    assert found["parameters"].keys() == {"text_encoder", "unet", "vae"}
    assert list(found["results"]) == ["lumesh, cold", "lumesh, cached", "diffusers"]
    assert found["results"]["lumesh, cold"]["compile_s"] > 0
    assert not list(tmp_path.iterdir())
    for side, figures in found["results"].items():
        assert figures["first_picture_s"] > figures["import_s"] + figures["load_s"] > 0
        assert figures["warm_s"] > 0
        assert figures["peak_rss_mb"] > 100
        assert figures["device"]
        assert figures["dtypes"] == dict.fromkeys(("text_encoder", "unet", "vae"), "float32")
        if side.startswith("lumesh"):
            assert figures["encode_ms"] > 0.3  # what is kept would come in microseconds


def test_every_warm_output_has_a_prompt_of_its_own(draw_recipe: Callable[..., Recipe]) -> None:
    recipe = draw_recipe(prompt="a boat", seed=5)
    warm = list_warm(recipe, 3)
    assert [one.prompt for one in warm] == ["a boat, 1", "a boat, 2", "a boat, 3"]
    assert [one.seed for one in warm] == [6, 7, 8]
    assert recipe.prompt == "a boat"


SHIPPED = [one for one in load_catalog().models if not one.is_demo and not one.min_images]


@pytest.mark.parametrize("model", SHIPPED, ids=lambda model: model.id)
def test_a_quarter_of_the_layers_of_every_model_is_mid_size(model: Model) -> None:
    full, mid = (count_parameters(model, is_cut=is_cut) for is_cut in (False, True))
    assert full.keys() == mid.keys()
    assert mid["vae"] == full["vae"]
    if model.family == "sd":  # a UNet with one transformer in each place has nothing to leave out
        assert mid["unet"] == full["unet"] < 1e9
        return
    for name in full.keys() & {"unet", "transformer", "transformer_2"}:
        assert 0.2 < mid[name] / full[name] < 0.45


def test_a_checkpoint_without_room_is_refused() -> None:
    with pytest.raises(LumeshError, match=r"^2\.5 billion parameters need 5\.0 GB of memory; 4\.0 GB are free\."):
        check_room(2_500_000_000, [("the disk", 5e9, 6e9), ("memory", 5e9, 4e9)])


def test_what_a_process_refuses_is_said_as_it_says_it(tmp_path: Path) -> None:
    task = {"model": "none", "models_dir": str(tmp_path), "folder": str(tmp_path), "is_cut": True, "on_gpu": False}
    with pytest.raises(LumeshError, match=r"^There is no model 'none'\. Known models: "):
        measure("pipelines.commands.bench.checkpoint", task, what="random weights")


def test_where_pytorch_has_a_gpu_diffusers_is_measured_compiled_too() -> None:
    assert list_diffusers_sides(has_gpu=True) == ["diffusers", "diffusers, torch.compile"]
    assert list_diffusers_sides(has_gpu=False) == ["diffusers"]


def test_two_kinds_of_device_are_refused_or_named() -> None:
    assert check_platforms("cpu", "cpu") == check_platforms("gpu", "gpu") == ""
    with pytest.raises(LumeshError, match=rf'pip install "jax\[cuda13\]=={metadata.version("jax")}"'):
        check_platforms("cpu", "gpu")
    with pytest.raises(LumeshError, match=r"pip install torch==[\d.]+ --index-url https://"):
        check_platforms("gpu", "cpu")
    assert "on the TPU, diffusers on the CPU" in check_platforms("tpu", "cpu")


@pytest.mark.parametrize(
    ("model_id", "precision"),
    [
        ("sdxl-base", "bfloat16, vae float32"),
        ("flux2-klein-4b", "bfloat16"),
        ("wan2.1-1.3b", "bfloat16, vae float32"),
    ],
)
def test_a_components_precision_is_the_accelerators(v6e_8: list[Any], model_id: str, precision: str) -> None:
    mesh = Mesh(np.array(v6e_8[:1], object).reshape(1, 1, 1), ("dp", "sp", "tp"))
    weights = describe_parts(load_catalog().get(model_id), mesh).weights
    assert describe_dtypes({name: find_dtype(one) for name, one in weights.items()}) == precision


def test_diffusers_computes_each_component_in_its_own_precision(data_dir: Path) -> None:
    half = dict.fromkeys(("text_encoder", "text_encoder_2", "unet"), "bfloat16")
    pipeline = load_diffusers(str(data_dir / "models" / "tiny"), half | {"vae": "float32"})
    assert (pipeline.unet.dtype, pipeline.vae.dtype) == (torch.bfloat16, torch.float32)
    made = pipeline("a red boat", height=64, width=64, num_inference_steps=1, generator=torch.manual_seed(1))
    assert np.asarray(made.images[0]).std() > 0


COMPARE = """
import sys
import numpy as np, torch
from diffusers import DiffusionPipeline
from pipelines.commands.bench.compare_runner import compile_modules

pipeline = DiffusionPipeline.from_pretrained(sys.argv[1], dtype=torch.float32)
pipeline.set_progress_bar_config(disable=True)
pictures = []
for _ in range(2):
    made = pipeline("a red boat", height=64, width=64, num_inference_steps=1, generator=torch.manual_seed(1))
    pictures.append(np.asarray(made.images[0]).astype(int))
    compile_modules(pipeline, backend="eager")
print(np.abs(pictures[0] - pictures[1]).max(), torch._dynamo.utils.counters["stats"]["unique_graphs"])
"""


def test_diffusers_compiled_makes_the_same_picture(short_dir: Path) -> None:
    """Through torch.compile's own tracer, without its C++ or Triton code; torchax must not be in the process."""
    done = subprocess.run(
        [find_forked_python(), "-c", COMPARE, short_dir / "models" / "tiny"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    difference, graphs = map(int, done.stdout.split())
    assert difference <= 1
    assert graphs >= 2  # of the UNet and of the decoder


@pytest.mark.usefixtures("fork_commands")
def test_swaps_leave_nothing_on_the_devices_and_compile_only_in_the_first_round(run: Run) -> None:
    models = ["tiny", "other"]
    turns = run("bench", "swap", *(f"--model={model}" for model in models), f"--swaps={2 * len(models)}")["swaps"]
    assert [turn["model"] for turn in turns] == 2 * models
    first, later = turns[: len(models)], turns[len(models) :]
    assert all(turn["compiles"] > 0 for turn in first)
    assert not any(turn["compiles"] for turn in later)
    assert all(turn["device_mb"] < 0.1 for turn in turns)
    assert all(turn["load_s"] > 0 and turn["shard_s"] > 0 for turn in turns)


def test_one_model_cannot_be_swapped(data_dir: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", "swap", "--model", "tiny", "--data-dir", str(data_dir)]) == 2
    assert "two models or more" in capsys.readouterr().err


@pytest.mark.parametrize("late", [0, 2])
def test_steps_that_are_told_late_take_as_long_as_others(late: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Steps of 10 s; the last ones come at once, as nothing follows them."""
    count = WARM_UP + 8
    clock = iter([10.0 * min(step + late, count) for step in range(1, count + 1)])
    monkeypatch.setattr(time, "perf_counter", lambda: next(clock))
    monkeypatch.setattr(time, "process_time", lambda: 0.0)
    watch = Watch()
    for _ in range(count):
        watch.note(0.5)
    figures = watch.describe(batch=4, precision="", learnt=0, late=late)
    assert (figures["step_s"], figures["pictures_per_s"]) == (10.0, 0.4)


@pytest.mark.parametrize("is_full", [False, True], ids=["lora", "full"])
def test_diffusers_side_of_a_training_learns_what_ours_would(data_dir: Path, tmp_path: Path, *, is_full: bool) -> None:
    task = {"model": "tiny", "models_dir": str(data_dir / "models"), "folder": str(tmp_path), "full": is_full,
            "rank": 4, "batch": 2, "steps": WARM_UP + 1, "mixed_precision": None,
            "data": str(write_pictures(tmp_path / "pictures", side=64, count=4))}  # fmt: skip
    model = load_catalog(data_dir / "models").get("tiny")
    settings = TrainingSettings(model="tiny", **({"full": True} if is_full else {"lora": True, "rank": 4}))
    step = describe_step(settings, model, build_mesh("dp=1"), shape=model.default_shape, batch_size=2, limit_bytes=None)

    found = [run_diffusers({**task, "side": side}) for side in (EVERY_STEP, ENCODED_BEFORE)]

    for figures in found:
        assert figures["learnt"] == step.learnt
        assert figures["step_s"] > 0
        assert np.isfinite(figures["loss"])

"""`bench` and `bench swap`: every process they start runs and gives its figures; which figures is the machine's."""

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from pipelines.__main__ import main
from pipelines.commands.bench import list_diffusers_sides
from pipelines.commands.bench_runner import choose_torch

ROOT = Path(__file__).resolve().parents[3]

Run = Callable[..., Any]


@pytest.fixture
def run(data_dir: Path, capsys: pytest.CaptureFixture[str]) -> Run:
    """Runs a command on the tests' data directory and reads its JSON."""

    def run(*arguments: str) -> Any:
        assert main([*arguments, "--mesh", "dp=1", "--json", "--data-dir", str(data_dir)]) == 0
        return json.loads(capsys.readouterr().out)

    return run


def test_both_sides_are_measured_alike(run: Run) -> None:
    found = run("bench", "--model", "tiny", "--vs", "diffusers", "--pictures", "1", "--num-inference-steps", "2")
    assert found["recipe"]["model"] == "tiny"
    assert list(found["results"]) == ["lumesh, cold", "lumesh, cached", "diffusers"]
    for figures in found["results"].values():
        assert figures["first_picture_s"] > figures["import_s"] + figures["load_s"] > 0
        assert figures["warm_s"] > 0
        assert figures["peak_rss_mb"] > 100


def test_on_a_gpu_diffusers_is_measured_there_in_half_precision_and_compiled_too() -> None:
    assert list_diffusers_sides(has_gpu=True) == ["diffusers", "diffusers, torch.compile"]
    assert list_diffusers_sides(has_gpu=False) == ["diffusers"]
    assert choose_torch(has_cuda=True) == ("cuda", torch.bfloat16)
    assert choose_torch(has_cuda=False) == ("cpu", torch.float32)


COMPARE = """
import sys
import numpy as np, torch
from diffusers import DiffusionPipeline
from pipelines.commands.bench_runner import compile_modules

pipeline = DiffusionPipeline.from_pretrained(sys.argv[1], dtype=torch.float32)
pipeline.set_progress_bar_config(disable=True)
pictures = []
for _ in range(2):
    made = pipeline("a red boat", height=64, width=64, num_inference_steps=1, generator=torch.manual_seed(1))
    pictures.append(np.asarray(made.images[0]).astype(int))
    compile_modules(pipeline, backend="eager")
print(np.abs(pictures[0] - pictures[1]).max(), torch._dynamo.utils.counters["stats"]["unique_graphs"])
"""


def test_diffusers_compiled_makes_the_same_picture(data_dir: Path) -> None:
    """Through torch.compile's own tracer, without its C++ or Triton code; torchax must not be in the process."""
    done = subprocess.run(
        [sys.executable, "-c", COMPARE, data_dir / "models" / "tiny"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    difference, graphs = map(int, done.stdout.split())
    assert difference <= 1
    assert graphs >= 2  # of the UNet and of the decoder


def test_swaps_leave_nothing_on_the_devices_and_compile_only_in_the_first_round(run: Run) -> None:
    models = ["middle", "tiny"]
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

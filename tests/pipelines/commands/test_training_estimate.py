"""`train --check` says what is known of time and money on this machine, or which command estimates it."""

import json
import shlex
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from typer.main import get_command

from pipelines.__main__ import app, main
from pipelines.commands.known_plans import make_question
from pipelines.commands.options import DATA_DIR, DataDirectory
from pipelines.commands.training_estimate import estimate
from pipelines.models.catalog import Model, load_catalog
from pipelines.plan.topologies import SLICES, TOPOLOGIES, find_machine
from pipelines.runtime.kernels import switches
from pipelines.training.settings import TrainingSettings
from tests.pipelines.training.zorb import make


def ask(
    tmp_path: Path,
    *,
    devices: int = 8,
    groups: int | None = None,
    buckets: dict[str, int] | None = None,
    model: Model | None = None,
    **settings: Any,
) -> Any:
    """Returns what is known of a training whose batch is shared out among `groups` of the devices, or among all."""
    checked: Any = SimpleNamespace(
        model=model or load_catalog().get("flux2-klein-4b"),
        batch_size=8,
        steps=400,
        buckets=buckets or {"1024x1024": 12},
        devices=groups or devices,
    )
    asked = TrainingSettings(model="flux2-klein-4b", lora=True, **settings)
    return estimate(asked, checked, DataDirectory(data_dir=tmp_path), kind="TPU v6 lite", devices=devices)


def test_a_plan_that_ships_is_told_with_the_steps_of_this_training(tmp_path: Path) -> None:
    said = " ".join(ask(tmp_path).tell())
    assert "Estimated by the TPU compiler, nothing was run: 0.21 s a step, 400 steps in 1.4 min, 0.50 US" in said
    assert ask(tmp_path).describe()["estimate"]["steps"] == 400
    assert "counted as 1024x1024" in ask(tmp_path, buckets={"1024x1024": 8, "768x1344": 4}).tell()[-1]


@pytest.mark.parametrize("settings", [{"rank": 8}, {"ema": 0.99}, {"devices": 4}, {"remat": "full"}])
def test_a_plan_is_not_told_for_other_settings_or_machines(tmp_path: Path, settings: dict[str, Any]) -> None:
    found = ask(tmp_path, **settings)
    assert found.describe()["estimate"] is None
    (said,) = found.tell()
    assert "was not planned yet; this does: python -m pipelines plan --train" in said


def test_the_command_asks_for_the_same_training(tmp_path: Path) -> None:
    asked: dict[str, Any] = {"rank": 8, "optimizer": "lion", "convolutions": True, "mixed_precision": "no"}
    command = ask(tmp_path, **asked, strict=True, buckets={"512x512": 1}).command
    assert command == (
        "python -m pipelines plan --train --model flux2-klein-4b --lora --topology v6e-8 --shape 512x512 --steps 400 "
        f"--batch 8 --rank 8 --optimizer lion --convolutions --mixed-precision no --strict --data-dir {tmp_path}"
    )
    plan: Any = get_command(app).commands["plan"]  # pyrefly: ignore[missing-attribute] - a group's
    params = plan.make_context("plan", shlex.split(command)[4:]).params
    assert (params["mixed_precision"], params["strict"], params["rank"]) == ("no", True, 8)
    assert params["data_dir"] == tmp_path, "else the answer is kept where this check does not look for it"
    assert "--data-dir" not in ask(DATA_DIR, rank=8).command


def test_a_mesh_or_a_repository_of_which_no_plan_is_made_is_said_so(tmp_path: Path) -> None:
    for found, said in (
        (ask(tmp_path, mesh="dp=4,tp=2", groups=4), "(dp=8), and this training's mesh is dp=4,tp=2"),
        (ask(tmp_path, model=replace(load_catalog().get("flux2-klein-4b"), id="some-klein")), "are on the hub"),
    ):
        (line,) = found.tell()
        assert said in line and "plan --train" not in line
        assert found.describe() == {"estimate": None, "plan_command": None}
    assert ask(tmp_path, mesh="dp=8").answer is not None


def test_no_plan_is_told_of_steps_without_some_kernels(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(switches._switches, "off", frozenset({"flash", "cudnn"}))
    found = ask(tmp_path)
    assert found.answer is None and found.tell() == [
        "What it takes is not known before: plans are of steps with all kernels, and off are flash"
    ]


def test_a_batch_that_cannot_be_planned_is_said(tmp_path: Path) -> None:
    (line,) = ask(tmp_path, devices=3, accumulate=3).tell()  # no TPU has three chips
    assert "without one (of 24 pictures a step: 8 cannot be shared out among 8 devices in 3 parts): " in line
    assert "--batch" not in line and "--accumulate 3" in line


def test_settings_that_say_the_same_are_one_question(tmp_path: Path) -> None:
    settings = TrainingSettings(model="wan2.2-a14b", lora=True)
    model, machine = load_catalog().get("wan2.2-a14b"), TOPOLOGIES["v6e-8"]
    plain, both = (
        make_question(one, model, machine, shape=model.default_shape, batch_size=8)
        for one in (settings, settings.model_copy(update={"expert": "both"}))
    )
    assert plain == both
    strict = ask(tmp_path, strict=True)  # what ships fits in as many parts as were asked for
    assert strict.answer is not None and strict.answer.question.others == {"strict": True}


def test_machines_are_known_by_what_jax_calls_their_devices() -> None:
    assert find_machine("TPU v6 lite", 8) is TOPOLOGIES["v6e-8"]
    assert find_machine("TPU v5", 32) is SLICES["v5p-64"]
    assert find_machine("TPU7x", 8) is TOPOLOGIES["v7x-8"]
    assert find_machine("cpu", 8) is None
    assert find_machine("TPU v6 lite", 3) is None


def test_checking_on_a_cpu_names_the_command(
    short_dir: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data = make(tmp_path / "zorb", count=2, side=64)
    words = ["train", "tiny", "--lora", "--data", str(data), "--data-dir", str(short_dir), "--check", "--allow-cpu"]
    assert main([*words, "--json"]) == 0
    (plan,) = map(json.loads, capsys.readouterr().out.splitlines())
    assert plan["event"] == "plan" and plan["estimate"] is None
    assert "plan --train --model tiny --lora --topology v6e-8 --shape 64x64" in plan["plan_command"]
    assert main(words) == 0
    assert "What it would take on a TPU is estimated by its compiler, without one: " in capsys.readouterr().err
    assert main([*words, "--global-batch-size", "4", "--mesh", "dp=1"]) == 0
    assert "What it takes is not known before: a plan is for all devices" in capsys.readouterr().err

"""`doctor --measure`: every program of a model runs on random weights, is timed, told, kept for plans, and written."""

import json
from pathlib import Path
from typing import Any

import pytest

from pipelines.__main__ import main
from pipelines.commands import doctor
from pipelines.commands.bench import programs_runner
from pipelines.doctor import examination
from pipelines.doctor.machine import look_at_access, look_at_disk
from pipelines.doctor.report import Report
from pipelines.plan import measured
from pipelines.runtime.kernels.switches import Found

STAGES = ["encode", "condition", "denoise", "preview", "decode"]


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch, data_dir: Path, cache_dir: Path) -> None:
    """No checks before, and the runner in this process, on the tests' cache of programs."""

    def examine(*_args: Any, **_options: Any) -> Report:
        return Report(
            at=1.0, seconds=1.0, versions={"jax": "1"}, hardware="", kind="cpu", host_bytes=10**9,
            devices=[{"kind": "cpu", "limit_bytes": 0, "used_bytes": 0}], disk=look_at_disk(data_dir),
            access=look_at_access(), checks={"devices": Found(verdict="right")}, off=(),
        )  # fmt: skip

    def run(_runner: str, task: dict[str, Any], *, what: str) -> Any:
        return programs_runner.run(task | {"cache_dir": str(cache_dir)})

    monkeypatch.setattr(doctor, "examine", examine)
    monkeypatch.setattr(doctor, "run_apart", run)


def test_every_program_is_timed_kept_for_plans_and_written_without_what_is_private(
    quick: None,
    short_dir: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    file, own_dir = tmp_path / "report.json", tmp_path / "data"
    own_dir.mkdir()
    (own_dir / "models").symlink_to(short_dir / "models")
    line = f"doctor --measure --model tiny --mesh dp=1 --repeats 1 --report {file} --data-dir {own_dir}"
    assert main(line.split()) == 0
    text = capsys.readouterr().out
    assert "random weights" in text and f"Written to {file}" in text
    found = {one.stage: one for one in measured.read(own_dir / "cache" / "plan")}
    assert [*found] == STAGES and all(one.ms is not None and one.ms > 0 for one in found.values())
    assert {one.estimated_ms for one in found.values()} == {None}, "a CPU has no estimate"
    assert (found["denoise"].devices, found["denoise"].kind, found["denoise"].model) == (1, "cpu", "tiny")
    written = file.read_text("utf-8")
    assert [one["stage"] for one in json.loads(written)["measured"]] == STAGES
    assert str(own_dir) not in written


@pytest.mark.parametrize("wrong", ["--model nothing", "--model tiny --shape 1x1"])
def test_a_model_or_size_that_is_not_there_is_refused_before_anything_runs(
    wrong: str, data_dir: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(examination.subprocess, "Popen", None)
    assert main(f"doctor --measure {wrong} --data-dir {data_dir}".split()) == 2
    told = capsys.readouterr().err
    assert "allowed: 64x64" in told or "Known models: demo-flux2" in told


def test_kernels_that_nobody_knows_are_refused_with_their_names(
    data_dir: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(f"generate --model tiny --prompt x --kernels flush --data-dir {data_dir}".split()) == 2
    assert (
        "flash, flash_gradient, ulysses, head_norm, low_rank, sparse_cores, conv3x3, conv3x3_gradient, upsample, cudnn"
        in capsys.readouterr().err
    )


def test_a_program_that_the_devices_refuse_is_told_with_its_reason() -> None:
    line = {"stage": "denoise", "ms": None, "estimated_ms": None, "refusal": "RESOURCE_EXHAUSTED", "compile_s": 3.2}
    assert doctor._describe(line)[:3] == ["denoise", "refused", "RESOURCE_EXHAUSTED"]
    fast = {"stage": "decode", "ms": 30.0, "estimated_ms": 20.0, "refusal": "", "compile_s": 1.0}
    assert doctor._describe(fast) == ["decode", "30.00 ms", "20.00 ms", "1.50", "1 s"]

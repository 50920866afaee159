"""The doctor finds kernels that are wrong, refused, hanging or deadly, switches them off, and remembers that."""

import dataclasses
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from pipelines.__main__ import main
from pipelines.doctor import examination, report
from pipelines.doctor.examination import Limits, examine, find_known
from pipelines.runtime.kernels import switches

FEW = ("rotary", "upsample", "flash", "flash_gradient", "collective permute")


@pytest.fixture(autouse=True)
def two_devices(fork_commands: None, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Two CPU devices for the processes that are started, and this process's own choice as it was."""
    monkeypatch.setenv("XLA_FLAGS", "--xla_force_host_platform_device_count=2 --xla_backend_optimization_level=0")
    monkeypatch.setenv("JAX_PLATFORMS", "cpu")
    yield
    switches.choose_by_hand(None)


def test_what_fails_is_told_from_what_is_well_and_switched_off(tmp_path: Path) -> None:
    """One run: a wrong kernel, one that hangs and one that ends its process take nothing else along."""
    begun: list[str] = []
    cache_dir = tmp_path / "cache" / "jax"
    found = examine(
        tmp_path,
        cache_dir=cache_dir,
        only=FEW,
        limits=Limits(check_s=60.0, hangs={"flash_gradient": 3.0}),
        pretends={"upsample": "wrong", "flash_gradient": "hung", "flash": "ended", "collective permute": "wrong"},
        on_check=begun.append,
    )
    verdicts = {name: one.verdict for name, one in found.checks.items()}
    assert verdicts == {
        "devices": "right",
        "rotary": "right",
        "upsample": "wrong",
        "flash": "ended",
        "flash_gradient": "hung",
        "collective permute": "wrong",
    }
    assert begun.count("devices") == 3  # one process, and one after each that was lost
    assert found.off == ("flash", "flash_gradient", "upsample")
    assert "1 of 2" in found.checks["collective permute"].detail or "0, 1" in found.checks["collective permute"].detail
    texts = "\n".join(found.problems)
    assert "XLA's repeats of rows and columns" in texts and "nothing to take in its place" in texts

    known = find_known(cache_dir)
    assert known is not None and known.off == found.off and known.kind == "cpu"
    assert switches.decide(switches.find_file(cache_dir), kind="cpu") == found.off
    assert not switches.is_on("flash") and switches.is_on("conv3x3")


def test_devices_that_cannot_be_opened_are_a_problem_and_nothing_is_remembered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JAX_PLATFORMS", "tpu")
    monkeypatch.setenv("TPU_SKIP_MDS_QUERY", "1")
    found = examine(tmp_path, cache_dir=tmp_path / "cache" / "jax", only=["rotary"])
    assert found.checks["devices"].verdict == "refused" and not found.devices
    assert found.problems and not found.remembered
    assert find_known(tmp_path / "cache" / "jax") is None


def test_the_command_says_it_once_and_exits_with_1(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    line = f"doctor --data-dir {tmp_path} --check rotary --check upsample --json"
    assert main(line.split()) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["is_well"] and told["off"] == [] and [one["kind"] for one in told["devices"]] == ["cpu", "cpu"]
    assert (
        told["versions"]["jax"] and told["disk"]["free_bytes"] > 0 and told["checks"]["upsample"]["verdict"] == "right"
    )

    assert main([*line.split()[:-1], "--pretend", "upsample=refused"]) == 1
    text = capsys.readouterr().out
    assert "BAD  upsample" in text and "Kernels that are off: upsample." in text
    assert find_known(tmp_path / "cache" / "jax").off == ()


def test_a_process_whose_doctor_is_gone_ends(tmp_path: Path, wait_for: Callable[..., Any]) -> None:
    task = {
        "cache_dir": str(tmp_path),
        "allow_cpu": True,
        "checks": ["rotary"],
        "off": [],
        "pretends": {"rotary": "hung"},
    }
    with subprocess.Popen(
        [sys.executable, "-m", "pipelines.doctor.child"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        cwd=examination.ROOT,
        env=os.environ.copy(),
    ) as process:
        assert process.stdin and process.stdout
        process.stdin.write(json.dumps(task).encode() + b"\n")
        process.stdin.flush()
        lines = iter(process.stdout)
        wait_for("the check to hang", lambda: json.loads(next(lines)).get("begin") == "rotary", timeout_s=60)
        process.stdin.close()
        assert process.wait(10) == 3


def test_a_picture_that_is_right_only_without_our_kernels_switches_all_of_them_off(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever is to blame; the processes are played here, since a picture takes as long as all other checks."""
    devices = [{"kind": "TPU v9", "limit_bytes": 0, "used_bytes": 0}]
    opened = {"end": "devices", "verdict": "right", "devices": devices, "checks": ["picture"]}
    pictures = iter(
        (
            {"end": "picture", "verdict": "wrong", "detail": "9.1 dB"},
            {"end": "picture", "verdict": "right", "detail": "38.0 dB"},
        )
    )
    tasks: list[Any] = []

    def play(self: Any, task: Any) -> bool:
        tasks.append(task)
        self._note(opened)
        self._note(next(pictures))
        return True

    monkeypatch.setattr(examination._Examination, "_run_process", play)
    found = examine(tmp_path, cache_dir=tmp_path / "cache" / "jax")
    assert found.checks["picture"].off == tuple(switches.INSTEAD) and "38.0 dB" in found.checks["picture"].detail
    assert tasks[1]["off"] == [*switches.INSTEAD]
    assert set(find_known(tmp_path / "cache" / "jax").off) == switches.INSTEAD.keys()


def test_chips_that_a_killed_process_holds_a_moment_longer_are_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened = {"end": "devices", "verdict": "right", "devices": [{"kind": "TPU v9"}], "checks": ["rotary", "flash"]}
    refused = {"end": "devices", "verdict": "refused", "detail": "in use"}
    told = iter(
        [
            [opened, {"end": "rotary", "verdict": "hung"}],
            [refused],
            [refused],
            [opened, {"end": "flash", "verdict": "right"}],
        ]
    )

    def play(self: Any, _task: Any) -> bool:
        for line in next(told):
            self._note(line)
        return self.found["devices"].verdict == "right"

    monkeypatch.setattr(examination, "SETTLE_S", 0.0)
    monkeypatch.setattr(examination._Examination, "_run_process", play)
    found = examine(tmp_path, cache_dir=tmp_path / "cache" / "jax", is_kept=False)
    assert {name: one.verdict for name, one in found.checks.items()} == {
        "devices": "right",
        "rotary": "hung",
        "flash": "right",
    }


def test_a_closed_or_full_disk_is_a_problem(tmp_path: Path) -> None:
    disk = examination.machine.look_at_disk(tmp_path / "not" / "there")
    assert disk.total_bytes >= disk.free_bytes > 0 and disk.unwritable == ()
    full = dataclasses.replace(disk, free_bytes=10**9, unwritable=("/data/cache",))
    whole = report.Report(
        at=0.0, seconds=1.0, versions={}, hardware="", kind="", devices=[], host_bytes=1, disk=full,
        access=examination.machine.Access(files=("/dev/accel0",), closed=("/dev/accel0",), holders=(), has_lock=False),
        checks={}, off=(),
    )  # fmt: skip
    texts = whole.problems
    assert any("/data/cache" in text for text in texts)
    assert any("1.0 GB" in text for text in texts)
    assert any("may not open /dev/accel0" in text for text in texts)

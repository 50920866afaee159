"""What was compiled for a TPU is kept for the next run, by all that it was compiled from."""

import os
import time
from pathlib import Path
from typing import Any

import pytest

from tests import kept_programs
from tests.kept_programs import OLD_S, compile_for_tpu, forget_old_programs


class Chip:
    device_kind = "TPU v6 lite"


class OtherChip:
    device_kind = "TPU v4"


class Lowering:
    """One that counts how often it is compiled."""

    def __init__(self, text: str) -> None:
        self.text, self.compiled = text, 0

    def as_text(self) -> str:
        return self.text

    def compile(self, options: dict[str, str]) -> Any:
        self.compiled += 1
        return Lowering(f"optimized {self.text} {options} {self.compiled}")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv(kept_programs.VARIABLE, str(tmp_path))
    return tmp_path


@pytest.mark.model
def test_a_program_is_compiled_again_where_program_chip_options_or_flags_differ(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lowering = Lowering("add")
    for same in (lowering, lowering, Lowering("add")):
        assert compile_for_tpu(same, Chip()) == "optimized add {} 1"
    compile_for_tpu(lowering, OtherChip())
    compile_for_tpu(lowering, Chip(), {"room": "6144"})
    monkeypatch.setenv("LIBTPU_INIT_ARGS", "--other")
    compile_for_tpu(lowering, Chip())
    assert lowering.compiled == 4
    other = Lowering("multiply")
    compile_for_tpu(other, Chip())
    assert other.compiled == 1


@pytest.mark.model
def test_what_a_killed_run_has_cut_off_is_compiled_again(folder: Path) -> None:
    lowering = Lowering("add")
    compile_for_tpu(lowering, Chip())
    (file,) = (folder / "tpu").iterdir()
    file.write_bytes(file.read_bytes()[:-9])
    assert compile_for_tpu(lowering, Chip()) == "optimized add {} 2" == compile_for_tpu(lowering, Chip())


def test_what_was_compiled_weeks_ago_is_forgotten(folder: Path) -> None:
    old, new = folder / "tpu" / "old.hlo.gz", folder / "new-cache"
    old.parent.mkdir()
    for file in (old, new):
        file.write_bytes(b"")
    then = time.time() - OLD_S - 1
    os.utime(old, (then, then))
    assert forget_old_programs(folder) == 1
    assert new.exists() and not old.exists()
    assert forget_old_programs(folder / "missing") == 0

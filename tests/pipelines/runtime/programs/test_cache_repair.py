"""Damaged entries of the compilation cache are deleted when it is opened, and their programs kept anew."""

import os
import zlib
from pathlib import Path

import pytest

from pipelines.runtime.programs import cache_repair
from pipelines.runtime.programs.cache_repair import INDEX, LEDGER, repair


@pytest.fixture(autouse=True)
def _at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cache_repair, "STILL_WRITTEN_S", 0.0)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Three entries and an index."""
    for name in "abc":
        (tmp_path / f"jit_{name}-cache").write_bytes(zlib.compress(os.urandom(5000)))
    (tmp_path / INDEX).write_text("[]")
    return tmp_path


def list_entries(folder: Path) -> list[str]:
    return sorted(file.name for file in folder.glob("*-cache"))


def test_whole_entries_stay_and_are_read_once(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert repair(folder, index=folder / INDEX) == 0
    assert len(list_entries(folder)) == 3
    monkeypatch.setattr(cache_repair, "_is_whole", lambda file: pytest.fail(f"{file} is read again"))
    assert repair(folder, index=folder / INDEX) == 0
    assert (folder / INDEX).exists()


@pytest.mark.parametrize("was_checked", [False, True])
@pytest.mark.parametrize("kept", [0, 1, 2500, -1])
def test_a_cut_off_entry_is_deleted_and_the_index_forgets(folder: Path, *, was_checked: bool, kept: int) -> None:
    if was_checked:
        repair(folder, index=folder / INDEX)
    damaged = folder / "jit_b-cache"
    damaged.write_bytes(damaged.read_bytes()[:kept])
    assert repair(folder, index=folder / INDEX) == 1
    assert list_entries(folder) == ["jit_a-cache", "jit_c-cache"]
    assert not (folder / INDEX).exists()
    assert repair(folder, index=folder / INDEX) == 0


def test_changed_bytes_are_found_by_their_checksum(folder: Path) -> None:
    content = bytearray((folder / "jit_a-cache").read_bytes())
    content[3000] ^= 1
    (folder / "jit_a-cache").write_bytes(content)
    assert repair(folder, index=folder / INDEX) == 1


def test_what_another_process_still_writes_is_left_alone(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    entry = folder / "jit_b-cache"
    whole = entry.read_bytes()
    entry.write_bytes(whole[:100])
    monkeypatch.setattr(cache_repair.time, "sleep", lambda _s: entry.write_bytes(whole))
    assert repair(folder, index=folder / INDEX) == 0
    assert len(list_entries(folder)) == 3


@pytest.mark.parametrize("ledger", ["", "[]", "{", '{"jit_a-cache": 3}'])
def test_a_damaged_list_of_checked_entries_is_made_anew(folder: Path, ledger: str) -> None:
    (folder / LEDGER).write_text(ledger)
    (folder / "jit_c-cache").write_bytes(b"\x78")
    assert repair(folder, index=folder / INDEX) == 1
    assert len(list_entries(folder)) == 2


def test_entries_in_another_format_are_not_judged(folder: Path) -> None:
    (folder / "jit_z-cache").write_bytes(b"\x28\xb5\x2f\xfd" + bytes(9))
    assert repair(folder, index=folder / INDEX) == 0

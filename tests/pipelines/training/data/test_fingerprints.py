"""Rows of one encoder are never taken for those of another."""

import os
from pathlib import Path

import pytest

from pipelines.training.data import fingerprints
from pipelines.training.data.fingerprints import fingerprint


@pytest.fixture(name="folder")
def write_model(tmp_path: Path) -> Path:
    folder = tmp_path / "model"
    for name, content in {
        "vae/a.safetensors": b"x" * 9000,
        "text_encoder/b.bin": b"y",
        "model_index.json": b"{}",
    }.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content)
    return folder


def describe(folder: Path, *, dtype: str = "float32", variant: str | None = None, own: Path | None = None) -> str:
    return fingerprint(folder, ["vae"], [own] if own else [], dtype=dtype, variant=variant)


def rewrite(file: Path, content: bytes) -> None:
    """Writes other content of the same size, and sets the time back: as unpacking an archive does."""
    status = file.stat()
    assert len(content) == status.st_size
    file.write_bytes(content)
    os.utime(file, ns=(status.st_atime_ns, status.st_mtime_ns))


@pytest.mark.parametrize("whole_bytes", [2**20, 100], ids=["whole", "by pieces"])
@pytest.mark.parametrize("place", [0, 4500, 8999])
def test_other_content_of_the_same_size_and_time_is_another_encoder(
    folder: Path, place: int, whole_bytes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fingerprints, "WHOLE_BYTES", whole_bytes)
    monkeypatch.setattr(fingerprints, "PIECES", 101)
    monkeypatch.setattr(fingerprints, "PIECE_BYTES", 100)
    before = describe(folder)
    content = bytearray(b"x" * 9000)
    content[place] = 0
    rewrite(folder / "vae" / "a.safetensors", bytes(content))
    assert describe(folder) != before


def test_dtype_variant_index_and_own_files_count_and_other_components_and_copies_do_not(folder: Path) -> None:
    before = describe(folder)
    own = folder.parent / "own.safetensors"
    own.write_bytes(b"z")
    others = [describe(folder, dtype="bfloat16"), describe(folder, variant="fp16"), describe(folder, own=own)]
    assert len({before, *others}) == 4
    copy = folder.rename(folder.with_name("copy"))
    (copy / "text_encoder" / "b.bin").write_bytes(b"other")
    os.utime(copy / "vae" / "a.safetensors", (1, 1))
    assert describe(copy) == before
    (copy / "model_index.json").write_text('{"force_zeros_for_empty_prompt": false}')
    assert describe(copy) != before

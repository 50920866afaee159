"""Weights that are not the published ones are told before they are loaded, each file by its name."""

import hashlib
from pathlib import Path

import pytest

from pipelines.__main__ import main
from pipelines.errors import Cancelled, ModelError
from pipelines.runtime.weights.checksums import verify_weights

FILES = {"unet/a.safetensors": b"first", "unet/b.safetensors": b"second", "vae/c.safetensors": b"third"}


def ignore(_done: int, _total: int) -> None:
    pass


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Two components, and their sums as `sha256sum` writes them."""
    for name, content in FILES.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(content)
    lines = [f"{hashlib.sha256(content).hexdigest()}  {name}\n" for name, content in FILES.items()]
    (tmp_path / "SHA256SUMS").write_text("".join(lines))
    return tmp_path


def test_files_that_are_as_recorded_pass_and_are_counted(folder: Path) -> None:
    seen: list[tuple[int, int]] = []
    verify_weights(folder, ["unet", "vae", "tokenizer"], on_bytes=lambda done, total: seen.append((done, total)))
    assert seen[-1] == (16, 16)


def test_a_changed_byte_is_told_with_the_file(folder: Path) -> None:
    (folder / "unet/b.safetensors").write_bytes(b"sEcond")
    with pytest.raises(ModelError, match=r"unet/b\.safetensors is damaged: its SHA-256 is .*download or copy it again"):
        verify_weights(folder, ["unet"], on_bytes=ignore)
    verify_weights(folder, ["vae"], on_bytes=ignore)


def test_the_hubs_cache_names_files_by_their_sum(folder: Path) -> None:
    (folder / "SHA256SUMS").unlink()
    for name, content in FILES.items():
        blob = folder / hashlib.sha256(content).hexdigest()
        (folder / name).rename(blob)
        (folder / name).symlink_to(blob)
    verify_weights(folder, ["unet", "vae"], on_bytes=ignore)
    (folder / "vae/c.safetensors").resolve().write_bytes(b"other")
    with pytest.raises(ModelError, match=r"c\.safetensors is damaged"):
        verify_weights(folder, ["unet", "vae"], on_bytes=ignore)


def test_a_file_without_a_record_is_told_and_how_to_make_one(folder: Path) -> None:
    (folder / "unet/new.safetensors").write_bytes(b"new")
    with pytest.raises(ModelError, match=r"what .*new\.safetensors should be.*sha256sum \*/\*\.safetensors"):
        verify_weights(folder, ["unet"], on_bytes=ignore)


def test_a_large_file_is_told_piece_by_piece_and_left_in_the_middle(folder: Path) -> None:
    large = folder / "unet/a.safetensors"
    with large.open("wb") as stream:
        stream.truncate(2**33)  # sparse: no disk, but seconds of hashing

    def stop_early(done: int, total: int) -> None:
        if done > 16:
            assert done < total // 2
            raise Cancelled

    with pytest.raises(Cancelled):
        verify_weights(folder, ["unet"], on_bytes=stop_early)


def test_whoever_watches_may_stop_it(folder: Path) -> None:
    def stop(_done: int, _total: int) -> None:
        raise Cancelled

    with pytest.raises(Cancelled):
        verify_weights(folder, ["unet"], on_bytes=stop)


def test_generate_verifies_before_it_loads(data_dir: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def run() -> int:
        flags = ["--model", "middle", "--prompt", "a boat", "--verify-weights", "--mesh", "dp=1"]
        return main(["generate", *flags, "--data-dir", str(data_dir)])

    assert run() == 1
    assert "SHA256SUMS" in capsys.readouterr().err
    model = data_dir / "models" / "middle"
    lines = [f"{'0' * 64}  {file.relative_to(model).as_posix()}\n" for file in model.glob("*/*.safetensors")]
    (model / "SHA256SUMS").write_text("".join(lines))
    try:
        assert run() == 1
        assert "is damaged" in capsys.readouterr().err
    finally:
        (model / "SHA256SUMS").unlink()

"""What was kept as it lies on the mesh is what the checkpoint gives, and is made anew when anything changes."""

import errno
import logging
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from jax.sharding import PartitionSpec as P
from safetensors.torch import save_file

from pipelines.runtime.bridge.modules import TracedModule
from pipelines.runtime.devices.mesh import build_mesh
from pipelines.runtime.weights import sharded_copies, stored
from pipelines.runtime.weights.components import load_component
from pipelines.runtime.weights.lora_update import LowRank
from pipelines.runtime.weights.permuted import PermutedTensor
from pipelines.stages import ignore_progress

RULES = ((r"2\.weight", P("tp")), (r"1\.weight", P(None, "tp")), ("", P()))

Load = Callable[..., dict[str, jax.Array]]


def deal_out(stored: Any, *, parts: int = 4) -> Any:
    """The last layer's outputs, as two blocks for each device."""
    packed = stored.keys() & {"2.weight"}
    return stored | {name: PermutedTensor(stored=stored[name], axis=0, blocks=(8, 8), parts=parts) for name in packed}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A checkpoint in fp32: a convolution for the kernel, a layer split in columns, a packed one, and a number."""
    torch.manual_seed(0)
    folder = tmp_path / "unet"
    folder.mkdir()
    module = build()
    save_file(module.state_dict(), folder / "model.safetensors")
    return folder


def build() -> torch.nn.Module:
    module = torch.nn.Sequential(torch.nn.Conv2d(8, 8, 3, padding=1), torch.nn.Linear(16, 8), torch.nn.Linear(8, 16))
    module.scale = torch.nn.Parameter(torch.tensor(0.5))
    return module


@pytest.fixture
def load(folder: Path, tmp_path: Path) -> Load:
    def load(*, mesh: str = "dp=2,tp=4", dtype: Any = jnp.bfloat16, **how: Any) -> dict[str, jax.Array]:
        usual: dict[str, Any] = {"layouts": tmp_path / "layouts", "arrange": deal_out, "taps": ["0.weight"]}
        usual["on_progress"] = ignore_progress
        return load_component(
            folder,
            TracedModule(build()),
            mesh=build_mesh(mesh),
            rules=RULES,
            dtype=dtype,
            variant="",
            **(usual | how),
        )

    return load


def list_kept(tmp_path: Path) -> list[Path]:
    return sorted((tmp_path / "layouts").glob("*"))


def assert_same(one: dict[str, jax.Array], other: dict[str, jax.Array]) -> None:
    assert one.keys() == other.keys()
    for name, array in one.items():
        assert array.sharding == other[name].sharding
        np.testing.assert_array_equal(np.asarray(array), np.asarray(other[name]))


@pytest.fixture
def read_files(monkeypatch: pytest.MonkeyPatch) -> set[Path]:
    """Files that weights were read from."""
    found = set[Path]()
    run = stored.Read.run

    def note(read: stored.Read) -> None:
        found.add(read.stored.file)
        run(read)

    monkeypatch.setattr(stored.Read, "run", note)
    return found


def test_a_later_load_reads_what_was_kept_and_nothing_else(
    load: Load, tmp_path: Path, folder: Path, read_files: set[Path]
) -> None:
    expected = load(layouts=None)
    assert not list_kept(tmp_path)
    assert_same(load(), expected)
    (kept,) = list_kept(tmp_path)
    assert read_files == {folder / "model.safetensors"}
    read_files.clear()
    assert_same(load(), expected)
    assert read_files == {kept}
    # Of the packed matrix and the split one each number once, in bf16.
    assert kept.stat().st_size < 2 * sum(array.size for array in expected.values()) + 2000


def test_parts_in_other_precisions_are_kept_beside_each_other(load: Load, tmp_path: Path) -> None:
    names = (["1.weight"], ["1.bias", "2.weight"])
    for dtype, own in zip((jnp.float32, jnp.bfloat16), names, strict=True):
        load(names=own, dtype=dtype)
    assert len(list_kept(tmp_path)) == 2
    for dtype, own in zip((jnp.float32, jnp.bfloat16), names, strict=True):
        assert_same(load(names=own, dtype=dtype), load(names=own, dtype=dtype, layouts=None))
    assert len(list_kept(tmp_path)) == 2


def change_file(folder: Path) -> None:
    torch.manual_seed(1)
    save_file(build().state_dict(), folder / "model.safetensors")
    os.utime(folder / "model.safetensors", ns=(1, 1))


@pytest.mark.parametrize(
    ("how", "change"),
    [
        ({"mesh": "dp=4,tp=2", "arrange": lambda stored: deal_out(stored, parts=2)}, None),
        ({"arrange": lambda stored: deal_out(stored, parts=8)}, None),
        ({"taps": []}, None),
        ({}, change_file),
    ],
    ids=["another mesh", "dealt out otherwise", "turned otherwise", "other numbers"],
)
def test_what_changes_is_kept_anew_in_its_place(
    load: Load, tmp_path: Path, folder: Path, how: dict[str, Any], change: Callable[[Path], None] | None
) -> None:
    load()
    (before,) = list_kept(tmp_path)
    if change is not None:
        change(folder)
    for _ in range(2):
        assert_same(load(**how), load(**how, layouts=None))
    (after,) = list_kept(tmp_path)
    assert after != before


def test_updates_are_added_to_what_the_checkpoint_holds(load: Load, tmp_path: Path, read_files: set[Path]) -> None:
    load()
    read_files.clear()
    update = LowRank(down=np.ones((1, 16), np.float32), up=np.ones((8, 1), np.float32), scale=1.0)
    changed = load(updates={"1.weight": [update]})
    assert not read_files & {*list_kept(tmp_path)}
    assert np.abs(np.asarray(changed["1.weight"], np.float32) - np.asarray(load()["1.weight"], np.float32)).min() > 0.9


def test_a_damaged_copy_is_made_again(load: Load, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    expected = load()
    (kept,) = list_kept(tmp_path)
    kept.write_bytes(kept.read_bytes()[:-100])
    with caplog.at_level(logging.WARNING):
        assert_same(load(), expected)
    assert "truncated" in caplog.text
    caplog.clear()
    assert_same(load(), expected)
    assert not caplog.text


def test_a_copy_that_another_process_removes_meanwhile_is_not_missed(
    load: Load, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = load()
    find = sharded_copies.ShardedCopy.find

    def find_and_lose(layout: sharded_copies.ShardedCopy) -> Any:
        found = find(layout)
        layout.file.unlink()
        return found

    monkeypatch.setattr(sharded_copies.ShardedCopy, "find", find_and_lose)
    assert_same(load(), whole)


def test_a_load_that_is_cancelled_keeps_nothing(load: Load, tmp_path: Path) -> None:
    def stop(progress: Any) -> None:
        if progress.done == 3:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        load(on_progress=stop)
    assert not list_kept(tmp_path)


def test_what_a_killed_process_left_goes(load: Load, tmp_path: Path) -> None:
    load()
    (kept,) = list_kept(tmp_path)
    kept.rename(kept.with_suffix(".1.part"))
    load()
    assert list_kept(tmp_path) == [kept]


def fill_disk(_file: int, _data: Any, _at: int) -> int:
    raise OSError(errno.ENOSPC, "No space left on device")


@pytest.mark.parametrize("trouble", ["no room", "full on the way", "a file in the way"])
def test_a_disk_that_cannot_have_it_costs_nothing_but_the_copy(
    load: Load, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, trouble: str
) -> None:
    match trouble:
        case "no room":
            monkeypatch.setattr(sharded_copies, "SPARE_BYTES", 2**60)
        case "full on the way":
            monkeypatch.setattr(sharded_copies.os, "pwrite", fill_disk)
        case _:
            (tmp_path / "layouts").write_text("in the way")
    assert_same(load(), load(layouts=None))
    assert "The weights' layout is not kept" in caplog.text
    assert not list_kept(tmp_path)


def test_a_checkpoint_that_goes_wrong_is_not_taken_for_a_disk_without_room(load: Load, folder: Path) -> None:
    def lose(progress: Any) -> None:
        raise FileNotFoundError(folder)

    with pytest.raises(FileNotFoundError):
        load(on_progress=lose)

"""Updates are added slice by slice, whatever the order in which a weight is read."""

from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from pipelines.runtime.weights.lora_merge import adapt
from pipelines.runtime.weights.lora_update import LowRank
from pipelines.runtime.weights.permuted import PermutedTensor, stack_layers
from pipelines.runtime.weights.stored import Destination, WeightSource, read_headers


@pytest.fixture(name="rng")
def make_rng() -> np.random.Generator:
    return np.random.default_rng(0)


def draw_update(rng: np.random.Generator, *shape: int, scale: float = 0.5) -> LowRank:
    rows, *rest = shape
    up, down = rng.normal(size=(rows, 2)), rng.normal(size=(2, *rest))
    return LowRank(up=up.astype(np.float32), down=down.astype(np.float32), scale=scale)


def fill(source: WeightSource, *slices: slice, dtype: type = np.float32) -> np.ndarray:
    found = np.zeros([part.stop - part.start for part in slices], dtype)
    for read in source.plan([Destination(index=slices, array=found)]):
        read.run()
    return found


@pytest.mark.parametrize("shape", [(6, 4), (6,), (6, 4, 3, 3)])
def test_a_slice_is_that_of_the_sum(tmp_path: Path, rng: np.random.Generator, shape: tuple[int, ...]) -> None:
    base = rng.normal(size=shape).astype(np.float32)
    updates = [draw_update(rng, *shape), draw_update(rng, *shape, scale=-2.0)]
    whole = base + sum(
        one.scale * np.tensordot(one.up, one.down, 1).astype(np.float64) for one in updates
    )  # fmt: skip
    save_file({"weight": torch.from_numpy(base)}, tmp_path / "a.safetensors")
    stored = adapt(read_headers([tmp_path / "a.safetensors"]), {"weight": updates})["weight"]
    slices = (slice(1, 5), *(slice(1, size) for size in shape[1:]))
    np.testing.assert_allclose(fill(stored, *slices), whole[slices], atol=1e-5)


def test_the_sum_is_rounded_once(tmp_path: Path) -> None:
    save_file({"weight": torch.full((1, 1), 1.0, dtype=torch.bfloat16)}, tmp_path / "a.safetensors")
    small = LowRank(up=np.full((1, 1), 0.002, np.float32), down=np.ones((1, 1), np.float32), scale=1.0)
    stored = adapt(read_headers([tmp_path / "a.safetensors"]), {"weight": [small] * 3})["weight"]
    found = fill(stored, slice(0, 1), slice(0, 1), dtype=ml_dtypes.bfloat16)
    assert float(found[0, 0]) == float(ml_dtypes.bfloat16(1.006)) > 1


def test_packed_and_stacked_weights_have_theirs(tmp_path: Path, rng: np.random.Generator) -> None:
    base = {f"blocks.{layer}.weight": rng.normal(size=(12, 3)).astype(np.float32) for layer in range(2)}
    save_file({name: torch.from_numpy(value) for name, value in base.items()}, tmp_path / "a.safetensors")
    update = draw_update(rng, 12, 3)
    stored = adapt(read_headers([tmp_path / "a.safetensors"]), {"blocks.1.weight": [update]})
    packed = {name: PermutedTensor(stored=tensor, axis=0, blocks=(4, 8), parts=2) for name, tensor in stored.items()}
    stack = stack_layers(packed, {"blocks.every_layer.weight": (2, 12, 3)})["blocks.every_layer.weight"]
    second = base["blocks.1.weight"] + update.scale * update.up @ update.down
    expected = np.stack([value[[2, 3, 8, 9, 10, 11], :2] for value in (base["blocks.0.weight"], second)])
    np.testing.assert_allclose(fill(stack, slice(0, 2), slice(6, 12), slice(0, 2)), expected, atol=1e-6)


def test_updates_of_weights_that_are_not_read_now_are_left_out(tmp_path: Path, rng: np.random.Generator) -> None:
    save_file({"a.weight": torch.zeros(2, 2)}, tmp_path / "a.safetensors")
    stored = read_headers([tmp_path / "a.safetensors"])
    assert adapt(stored, {"b.weight": [draw_update(rng, 2, 2)]}) == stored

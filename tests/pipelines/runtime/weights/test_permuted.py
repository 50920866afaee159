"""Weights that are read in another order than they are stored in: whole, or each device's slice alone."""

from pathlib import Path

import numpy as np
import torch
from safetensors.torch import save_file

from pipelines.runtime.kernels.taps import block_taps, find_flat_shape
from pipelines.runtime.weights.lora_merge import adapt
from pipelines.runtime.weights.lora_update import LowRank
from pipelines.runtime.weights.permuted import PermutedTensor, TapsTensor, stack_layers, turn_convolutions
from pipelines.runtime.weights.stored import Destination, StoredTensor, WeightSource, read_headers


def store(folder: Path, **values: np.ndarray) -> dict[str, StoredTensor]:
    save_file({name: torch.from_numpy(value) for name, value in values.items()}, folder / "model.safetensors")
    return read_headers([folder / "model.safetensors"])


def fill(source: WeightSource, *slices: slice) -> np.ndarray:
    found = np.zeros([part.stop - part.start for part in slices], np.float32)
    for read in source.plan([Destination(index=slices, array=found)]):
        read.run()
    return found


def test_every_part_has_its_slice_of_every_block(tmp_path: Path) -> None:
    stored = store(tmp_path, weight=np.arange(12, dtype=np.float32))
    packed = PermutedTensor(stored=stored["weight"], axis=0, blocks=(4, 8), parts=2)
    assert fill(packed, slice(0, 6)).tolist() == [0, 1, 4, 5, 6, 7]
    assert fill(packed, slice(6, 12)).tolist() == [2, 3, 8, 9, 10, 11]
    assert fill(packed, slice(0, 12)).tolist() == [0, 1, 4, 5, 6, 7, 2, 3, 8, 9, 10, 11]


def test_columns_are_dealt_out_alike(tmp_path: Path) -> None:
    values = np.arange(36, dtype=np.float32).reshape(3, 12)
    packed = PermutedTensor(stored=store(tmp_path, weight=values)["weight"], axis=1, blocks=(4, 8), parts=2)
    np.testing.assert_array_equal(fill(packed, slice(1, 3), slice(6, 12)), values[1:, [2, 3, 8, 9, 10, 11]])


def test_layers_lie_one_after_the_other_and_a_device_reads_its_slice_of_each(tmp_path: Path) -> None:
    layers = store(
        tmp_path, **{f"blocks.{index}.weight": np.full((4, 2), index, dtype=np.float32) for index in range(11)}
    )
    stacked = stack_layers(layers, {"blocks.every_layer.weight": (11, 4, 2)})["blocks.every_layer.weight"]
    assert stacked.shape == (11, 4, 2)
    part = fill(stacked, slice(0, 11), slice(0, 2), slice(0, 2))
    assert part[:, 0, 0].tolist() == [*range(11)]
    assert fill(stacked, slice(3, 5), slice(2, 4), slice(1, 2))[:, 1, 0].tolist() == [3, 4]


def test_what_is_no_stack_stays_as_it_is(tmp_path: Path) -> None:
    stored = store(tmp_path, other=np.zeros(2, np.float32))
    assert stack_layers(stored, {"other": (2,)}) == stored


WEIGHT = np.random.default_rng(0).integers(-9, 9, (130, 12, 3, 3)).astype(np.float32)  # exact in bf16


def pack(weight: np.ndarray) -> np.ndarray:
    """By the kernel's own rule."""
    return np.asarray(block_taps(weight[:, :, None]), np.float32).reshape(find_flat_shape(weight.shape))


def test_a_convolution_is_read_as_its_kernel_takes_it(tmp_path: Path) -> None:
    source = TapsTensor(stored=store(tmp_path, weight=WEIGHT)["weight"])
    expected = pack(WEIGHT)
    assert source.shape == expected.shape
    whole = [slice(0, size) for size in source.shape]
    np.testing.assert_array_equal(fill(source, *whole), expected)
    np.testing.assert_array_equal(fill(source, slice(1, 2), *whole[1:]), expected[1:])


def test_updates_are_added_before_it_is_turned(tmp_path: Path) -> None:
    up, down = np.ones((130, 1), np.float32), np.ones((1, 12, 3, 3), np.float32)
    update = LowRank(up=up, down=down, scale=2.0)
    stored = adapt(store(tmp_path, weight=WEIGHT), {"weight": [update]})
    turned = turn_convolutions(stored, ["weight"])["weight"]
    found = fill(turned, *(slice(0, size) for size in turned.shape))
    np.testing.assert_array_equal(found, pack(WEIGHT + 2))


def test_only_the_named_convolutions_are_turned(tmp_path: Path) -> None:
    stored = store(tmp_path, weight=WEIGHT, other=WEIGHT + 1)
    turned = turn_convolutions(stored, ["weight", "gone"])
    assert turned == {"weight": TapsTensor(stored=stored["weight"]), "other": stored["other"]}

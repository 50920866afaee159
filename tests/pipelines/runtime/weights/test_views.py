"""Views of stored weights are read slice by slice as what numpy would make of the whole, and so are updates of them."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.numpy import save_file

from pipelines.errors import ModelError
from pipelines.runtime.weights.lora_merge import AdaptedTensor
from pipelines.runtime.weights.lora_update import Difference
from pipelines.runtime.weights.single_file import StandIn
from pipelines.runtime.weights.stored import Destination, WeightSource, read_headers
from pipelines.runtime.weights.views import ScaledTensor, apply_scales

MATRIX = np.arange(48, dtype=np.float32).reshape(12, 4)
CONVOLUTION = np.arange(6, dtype=np.float32).reshape(3, 2, 1, 1)


def store(folder: Path, **values: np.ndarray) -> dict[str, Any]:
    save_file(
        {name.replace("__", "."): np.ascontiguousarray(one) for name, one in values.items()}, folder / "a.safetensors"
    )
    return read_headers([folder / "a.safetensors"])


def read(source: WeightSource, rows: slice | None = None, columns: slice | None = None) -> np.ndarray:
    """Reads a weight, or some rows and columns of it."""
    whole = [slice(0, size) for size in source.shape]
    index = (rows or whole[0], *([columns or whole[1]] if len(whole) > 1 else []), *whole[2:])
    array = np.empty([one.stop - one.start for one in index], np.float32)
    for one in source.plan([Destination(index=index, array=array)]):
        one.run()
    return array


@pytest.mark.parametrize(
    "make",
    [
        pytest.param(lambda one: one[4:8, :].clone().detach(), id="rows"),
        pytest.param(lambda one: one[8:, :], id="the last rows"),
        pytest.param(lambda one: one.T.contiguous(), id="turned"),
        pytest.param(lambda one: torch.chunk(one, 3, dim=0)[1], id="a third"),
        pytest.param(lambda one: torch.cat([one.chunk(2, dim=0)[1], one.chunk(2, dim=0)[0]], dim=0), id="swapped"),
        pytest.param(lambda one: torch.cat([one, one[2:5]], dim=0)[3:14], id="rows of what was joined"),
    ],
)  # fmt: skip
def test_what_a_converter_does_to_a_tensor_is_what_is_read(tmp_path: Path, make: Callable[[Any], Any]) -> None:
    expected = make(torch.from_numpy(MATRIX)).numpy()
    source = make(StandIn(store(tmp_path, weight=MATRIX)["weight"])).source
    assert source.shape == expected.shape
    np.testing.assert_array_equal(read(source), expected)
    np.testing.assert_array_equal(read(source, slice(1, 3), slice(1, 4)), expected[1:3, 1:4])


def test_a_convolution_of_one_pixel_becomes_a_matrix(tmp_path: Path) -> None:
    source = StandIn(store(tmp_path, weight=CONVOLUTION)["weight"])[:, :, 0, 0].source
    np.testing.assert_array_equal(read(source, slice(1, 3)), CONVOLUTION[1:3, :, 0, 0])


def test_what_no_converter_does_is_refused(tmp_path: Path) -> None:
    one: Any = StandIn(store(tmp_path, weight=MATRIX)["weight"])
    for wrong in (lambda: one[::2], lambda: one[:, 0], lambda: torch.cat([one, one], dim=1)):
        with pytest.raises((AssertionError, TypeError)):
            wrong()


def test_scales_are_multiplied_in_and_gone(tmp_path: Path) -> None:
    import ml_dtypes

    low = MATRIX.astype(ml_dtypes.float8_e4m3fn)
    scale = np.linspace(0.5, 2, 12, dtype=np.float32)
    from safetensors.torch import save_file as save_torch

    save_torch(
        {
            "a.weight": torch.from_numpy(MATRIX).to(torch.float8_e4m3fn),
            "a.weight_scale": torch.from_numpy(scale).reshape(12, 1),
            "a.input_scale": torch.ones(()),
            "b.weight": torch.from_numpy(MATRIX).to(torch.float8_e4m3fn),
            "b.scale_weight": torch.tensor(0.25),
            "b.bias": torch.ones(12),
            "scaled_fp8": torch.zeros(0, dtype=torch.float8_e4m3fn),
        },
        tmp_path / "a.safetensors",
    )
    weights = apply_scales(read_headers([tmp_path / "a.safetensors"]))
    assert weights.keys() == {"a.weight", "b.weight", "b.bias"}
    exact = low.astype(np.float32)
    np.testing.assert_array_equal(read(weights["a.weight"], slice(5, 9)), (exact * scale[:, None])[5:9])
    np.testing.assert_array_equal(read(weights["b.weight"]), exact * np.float32(0.25))


def test_scales_of_another_kind_are_refused(tmp_path: Path) -> None:
    for values in (
        {"a__weight": MATRIX.astype(np.int8), "a__weight_scale": np.ones(1, np.float32)},
        {"a__weight": MATRIX, "a__scale_weight": np.ones(1, np.float32)},
    ):
        with pytest.raises(ModelError, match=r"a\.weight in .* with scales of shape"):
            apply_scales(store(tmp_path, **values))


def test_updates_are_added_to_what_a_view_means(tmp_path: Path) -> None:
    """A LoRA of a projection that the file holds within a larger tensor, in fp8 with a scale."""
    scaled = ScaledTensor(source=store(tmp_path, weight=MATRIX)["weight"], scale=(0.5,))
    view = StandIn(scaled)[4:8, :].source
    added = np.full((4, 4), 3, np.float32)
    adapted = AdaptedTensor(source=view, updates=[Difference(values=added, scale=2.0)])
    np.testing.assert_array_equal(read(adapted, slice(1, 4)), (MATRIX[4:8] * 0.5 + 6)[1:4])

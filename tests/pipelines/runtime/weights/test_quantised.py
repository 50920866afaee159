"""Quantised weights are read slice by slice as what their format's own package makes of the whole."""

from pathlib import Path

import gguf
import numpy as np
import pytest

from pipelines.errors import ModelError
from pipelines.runtime.weights.quantised import read_weights
from pipelines.runtime.weights.single_file import StandIn
from tests.pipelines.runtime.weights.test_views import read

KINDS = ("Q8_0", "Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q2_K", "Q3_K", "Q4_K", "Q5_K", "Q6_K", "IQ4_NL", "BF16", "F16", "F32")
SHAPE = (12, 2, 256)


def store(file: Path, kind: str, shape: tuple[int, ...] = SHAPE, *, recut: int = 0) -> np.ndarray:
    """Writes a file with one weight in blocks of arbitrary bytes; returns the numbers that they stand for."""
    quantised = gguf.GGMLQuantizationType[kind]
    count, size = gguf.GGML_QUANT_SIZES[quantised]
    rows = (int(np.prod(shape)) // recut, recut) if recut else shape
    stored = np.random.default_rng(7).integers(0, 60, (*rows[:-1], rows[-1] // count * size), np.uint8)
    writer = gguf.GGUFWriter(file, "wan")
    if recut:
        writer.add_array("comfy.gguf.orig_shape.a", [*shape])
    dtype = {"F32": np.float32, "F16": np.float16}.get(kind)
    writer.add_tensor("a", stored if dtype is None else stored.view(dtype), raw_dtype=quantised)
    for write in (writer.write_header_to_file, writer.write_kv_data_to_file, writer.write_tensors_to_file):
        write()
    writer.close()
    return gguf.dequantize(stored, quantised).astype(np.float32).reshape(shape)


@pytest.mark.parametrize("kind", KINDS)
def test_slices_are_those_of_the_whole(tmp_path: Path, kind: str) -> None:
    expected = store(tmp_path / "a.gguf", kind)
    weight = read_weights(tmp_path / "a.gguf")["a"]
    assert weight.shape == SHAPE
    np.testing.assert_array_equal(read(weight), expected)
    np.testing.assert_array_equal(read(weight, slice(3, 7), slice(1, 2)), expected[3:7, 1:2])
    np.testing.assert_array_equal(read(StandIn(weight)[4:].source, slice(1, 3)), expected[5:7])


def test_rows_may_begin_within_a_block(tmp_path: Path) -> None:
    """A convolution's 48 numbers a row are no blocks of 256: it was cut anew, and its shape noted."""
    expected = store(tmp_path / "a.gguf", "Q4_K", (32, 6, 2, 4), recut=256)
    weight = read_weights(tmp_path / "a.gguf")["a"]
    assert weight.shape == (32, 6, 2, 4)
    np.testing.assert_array_equal(read(weight, slice(5, 11), slice(2, 5)), expected[5:11, 2:5])


def test_a_file_that_became_shorter_says_so(tmp_path: Path) -> None:
    store(tmp_path / "a.gguf", "Q8_0")
    weight = read_weights(tmp_path / "a.gguf")["a"]
    content = (tmp_path / "a.gguf").read_bytes()
    (tmp_path / "a.gguf").write_bytes(content[:-600])
    with pytest.raises(ModelError, match="truncated or not a GGUF file"):
        read(weight)
    with pytest.raises(ModelError, match="truncated or not a GGUF file"):
        read_weights(tmp_path / "a.gguf")

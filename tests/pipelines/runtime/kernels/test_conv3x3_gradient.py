"""The kernel of gradients by a convolution's weight, interpreted, against XLA's own: channels, widths, blocks.

Inputs are rounded to bf16 beforehand, which makes products exact: only the order of sums is left.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from pipelines.runtime.kernels.conv3x3_gradient import Blocks, choose_blocks, differentiate_taps

MIB = 2**20


def draw(*shape: int, seed: int) -> jax.Array:
    return jnp.asarray(np.random.default_rng(seed).standard_normal(shape), jnp.bfloat16)


def differentiate_exactly(x_BHWI: jax.Array, out_BHWO: jax.Array) -> np.ndarray:
    """Returns XLA's own in fp32, (rows' taps, columns' taps, O, I)."""

    def convolve(weight: jax.Array) -> jax.Array:
        return jax.lax.conv_general_dilated(
            x_BHWI.astype(jnp.float32),
            weight,
            window_strides=(1, 1),
            padding=((1, 1), (1, 1)),
            dimension_numbers=("NHWC", "HWOI", "NHWC"),
            precision=jax.lax.Precision.HIGHEST,
        )

    _, pull_back = jax.vjp(convolve, jnp.zeros((3, 3, out_BHWO.shape[-1], x_BHWI.shape[-1])))
    return np.asarray(pull_back(out_BHWO.astype(jnp.float32))[0])


def check(shape_BHW: tuple[int, int, int], *, inputs: int, outputs: int, blocks: Blocks) -> None:
    x, out = draw(*shape_BHW, inputs, seed=0), draw(*shape_BHW, outputs, seed=1)
    found = differentiate_taps(x, out, blocks=blocks, dtype=jnp.float32, interpret=True)
    assert found.shape == (3, 3, outputs, inputs)
    np.testing.assert_allclose(found, differentiate_exactly(x, out), atol=2e-4)


@pytest.mark.parametrize("width", [1, 7, 16, 17, 40])
def test_columns_that_fill_no_tile_are_those_of_xla(width: int) -> None:
    blocks = Blocks(rows=2, outputs=10, inputs=6, turns=1, vmem_bytes=MIB)
    check((2, 4, width), inputs=6, outputs=10, blocks=blocks)


@pytest.mark.parametrize("rows", [1, 2, 6])
def test_rows_above_and_below_are_the_pictures_own(rows: int) -> None:
    blocks = Blocks(rows=rows, outputs=10, inputs=6, turns=1, vmem_bytes=MIB)
    check((2, 6, 16), inputs=6, outputs=10, blocks=blocks)


@pytest.mark.parametrize(("inputs", "outputs"), [(4, 320), (320, 4), (200, 300)])
def test_blocks_of_channels_that_fill_none_are_those_of_xla(inputs: int, outputs: int) -> None:
    blocks = Blocks(rows=2, outputs=min(256, outputs), inputs=min(128, inputs), turns=1, vmem_bytes=MIB)
    check((1, 4, 16), inputs=inputs, outputs=outputs, blocks=blocks)


@pytest.mark.parametrize("turns", [1, 2, 10])
def test_outputs_may_be_multiplied_some_at_a_time(turns: int) -> None:
    blocks = Blocks(rows=4, outputs=160, inputs=6, turns=turns, vmem_bytes=MIB)
    check((1, 4, 16), inputs=6, outputs=160, blocks=blocks)


@pytest.mark.parametrize("size", [(128, 128, 320, 320), (56, 72, 1280, 640), (104, 152, 4, 320)])
def test_blocks_fit_and_divide(size: tuple[int, int, int, int]) -> None:
    height, width, inputs, outputs = size
    for vmem_bytes in (12 * MIB, 48 * MIB, 96 * MIB):
        blocks = choose_blocks(height, width, inputs=inputs, outputs=outputs, vmem_bytes=vmem_bytes)
        assert blocks is not None and blocks.vmem_bytes <= vmem_bytes
        assert height % blocks.rows == blocks.outputs % blocks.turns == 0
        for channels, block in ((inputs, blocks.inputs), (outputs, blocks.outputs)):
            assert block == channels or block % 128 == 0


def test_where_a_row_has_no_room_there_are_no_blocks() -> None:
    assert choose_blocks(64, 64, inputs=320, outputs=320, vmem_bytes=MIB) is None

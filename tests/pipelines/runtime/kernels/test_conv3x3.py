"""The kernel of convolutions, interpreted, against XLA's own: channels, widths, blocks of rows, and what lies around.

Inputs are rounded to bf16 beforehand, which makes products exact: only the order of sums is left.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from pipelines.runtime.kernels.conv3x3 import Blocks, choose_blocks, choose_groups, convolve_taps
from pipelines.runtime.kernels.taps import LANES, TAPS, block_taps, order_taps, restore_taps, unblock_taps

MIB = 2**20


def draw(*shape: int, seed: int, scale: float = 1.0) -> jax.Array:
    values = scale * np.random.default_rng(seed).standard_normal(shape)
    return jnp.asarray(values, jnp.float32).astype(jnp.bfloat16)


def draw_weight(inputs: int, outputs: int, *, time_taps: int) -> jax.Array:
    return draw(outputs, inputs, time_taps, 3, 3, seed=1, scale=(9 * time_taps * inputs) ** -0.5)


def convolve_exactly(
    x_BFHWC: jax.Array, weight_OITHW: jax.Array, bias_O: jax.Array, *, pads: tuple[int, int] = (1, 1)
) -> np.ndarray:
    """XLA's own in fp32, of frames that are all there; `pads` of zeros above and below, left and right."""
    out = jax.lax.conv_general_dilated(
        x_BFHWC.astype(jnp.float32),
        weight_OITHW.astype(jnp.float32),
        window_strides=(1, 1, 1),
        padding=((0, 0), *((pad, pad) for pad in pads)),
        dimension_numbers=("NDHWC", "OIDHW", "NDHWC"),
        precision=jax.lax.Precision.HIGHEST,
    )
    return np.asarray(out + bias_O)


def convolve_here(
    seen_BFHWC: jax.Array,
    weight: jax.Array,
    bias: jax.Array,
    above_and_below: jax.Array | None = None,
    left_and_right: jax.Array | None = None,
    *,
    rows: int,
    wide: int = 1,
) -> np.ndarray:
    """The kernel, interpreted; the first frames are those before."""
    earlier = weight.shape[2] - 1
    out = convolve_taps(
        seen_BFHWC[:, earlier:],
        seen_BFHWC[:, :earlier],
        block_taps(weight),
        bias,
        above_and_below,
        left_and_right,
        blocks=Blocks(rows=rows, wide=wide),
        dtype=jnp.float32,
        vmem_bytes=64 * MIB,
        interpret=True,
    )
    return np.asarray(out)


@pytest.mark.parametrize("time_taps", [1, 3])
@pytest.mark.parametrize(
    ("inputs", "outputs", "wide"), [(3, 24, 1), (96, 130, 1), (130, 3, 1), (200, 260, 3), (300, 250, 2)]
)
def test_it_is_xlas_own_whatever_the_channels(inputs: int, outputs: int, wide: int, time_taps: int) -> None:
    """Also where several blocks of outputs are made at a time, and groups of inputs are half full."""
    seen, bias = draw(2, 1 + time_taps, 4, 11, inputs, seed=0), draw(outputs, seed=2).astype(jnp.float32)
    weight = draw_weight(inputs, outputs, time_taps=time_taps)
    found = convolve_here(seen, weight, bias, rows=2, wide=wide)
    np.testing.assert_allclose(found, convolve_exactly(seen, weight, bias), atol=1e-5)


@pytest.mark.parametrize("turned", [False, True])
@pytest.mark.parametrize(
    ("inputs", "outputs", "rows", "wide"), [(3, 24, 2, 1), (130, 3, 2, 1), (200, 260, 4, 3), (640, 300, 30, 3)]
)
def test_a_weight_may_be_read_as_it_lies(inputs: int, outputs: int, rows: int, wide: int, *, turned: bool) -> None:
    """Also in a loop over the channels; turned, it is the gradient of the convolution to `inputs` channels."""
    x, bias = draw(2, 1, rows, 46, inputs, seed=0), draw(outputs, seed=2).astype(jnp.float32)
    weight = draw_weight(inputs, outputs, time_taps=1)
    own = (weight[..., ::-1, ::-1].swapaxes(0, 1) if turned else weight)[:, :, 0]
    ordered = order_taps(own, turned=turned)
    found = convolve_taps(
        x,
        x[:, :0],
        ordered,
        bias,
        blocks=Blocks(rows=rows, wide=wide),
        dtype=jnp.float32,
        vmem_bytes=64 * MIB,
        turned=turned,
        interpret=True,
    )
    np.testing.assert_allclose(found, convolve_exactly(x, weight, bias), atol=1e-5)
    restored = restore_taps(ordered, inputs=inputs, outputs=outputs, turned=turned)
    np.testing.assert_array_equal(restored.astype(jnp.float32), weight[:, :, 0].astype(jnp.float32))


def test_it_is_xlas_own_when_a_loop_goes_over_the_channels() -> None:
    """Blocks as large as those of 384 channels at 720p: one group first, then two a turn; or all of them alike."""
    for inputs in (384, 256):
        groups = 3 * TAPS * (inputs // LANES)
        seen, weight = draw(1, 3, 30, 46, inputs, seed=0), draw_weight(inputs, 384, time_taps=3)
        found = convolve_here(seen, weight, jnp.zeros(384), rows=30, wide=3)
        np.testing.assert_allclose(found, convolve_exactly(seen, weight, jnp.zeros(384)), atol=1e-5)
        assert choose_groups(groups, lanes=LANES, pixels=30 * 48, wide=3) < groups


@pytest.mark.parametrize(("width", "rows"), [(1, 3), (14, 1), (14, 6), (16, 2), (31, 6), (48, 2)])
def test_it_is_xlas_own_whatever_the_width_and_however_many_rows_at_a_time(width: int, rows: int) -> None:
    """14 pixels and their neighbours fill a tile exactly; 6 rows are all there are."""
    seen, bias = draw(1, 4, 6, width, 8, seed=0), jnp.zeros(8)
    weight = draw_weight(8, 8, time_taps=3)
    found = convolve_here(seen, weight, bias, rows=rows)
    np.testing.assert_allclose(found, convolve_exactly(seen, weight, bias), atol=1e-5)


@pytest.mark.parametrize("time_taps", [1, 3])
def test_given_rows_lie_above_and_below_all_frames(time_taps: int) -> None:
    picture, weight = draw(1, 1 + time_taps, 6, 14, 8, seed=0), draw_weight(8, 8, time_taps=time_taps)
    around = jnp.stack([picture[:, :, 0], picture[:, :, -1]], 2)
    found = convolve_here(picture[:, :, 1:-1], weight, jnp.zeros(8), around, rows=2)
    np.testing.assert_allclose(found, convolve_exactly(picture, weight, jnp.zeros(8), pads=(0, 1)), atol=1e-5)


@pytest.mark.parametrize("time_taps", [1, 3])
def test_given_columns_lie_left_and_right_of_all_frames(time_taps: int) -> None:
    picture, weight = draw(1, 1 + time_taps, 4, 16, 8, seed=0), draw_weight(8, 8, time_taps=time_taps)
    around = jnp.stack([picture[..., 0, :], picture[..., -1, :]], 3)
    found = convolve_here(picture[..., 1:-1, :], weight, jnp.zeros(8), None, around, rows=2)
    np.testing.assert_allclose(found, convolve_exactly(picture, weight, jnp.zeros(8), pads=(1, 0)), atol=1e-5)


@pytest.mark.parametrize(("inputs", "outputs"), [(3, 24), (130, 96), (128, 256)])
def test_packed_weights_fill_lanes_and_come_back_as_they_were(inputs: int, outputs: int) -> None:
    weight = draw_weight(inputs, outputs, time_taps=3)
    packed = block_taps(weight.astype(jnp.float32))
    assert packed.dtype == jnp.bfloat16
    assert packed.shape[3] % LANES == 0
    np.testing.assert_array_equal(unblock_taps(packed, inputs=inputs, outputs=outputs), weight)


# (height, width, inputs) of Wan's decoder at 720p: the levels of one chip of eight, and of one alone
LEVELS = [(90, 20, 384), (180, 40, 384), (360, 80, 192), (720, 160, 96), (90, 160, 384), (720, 1280, 96)]


@pytest.mark.parametrize(("height", "width", "inputs"), LEVELS)
def test_rows_at_a_time_divide_the_height_and_are_fewer_where_room_is_short(
    height: int, width: int, inputs: int
) -> None:
    blocks = [choose(height, width, inputs=inputs, blocks=-(-inputs // LANES), mib=mib) for mib in (1, 12, 96)]
    none, few, many = blocks
    assert none is None
    assert many is not None
    assert few is None or few.rows * few.wide <= many.rows * many.wide
    assert not any(height % one.rows for one in (few, many) if one)


def choose(
    height: int, width: int, *, inputs: int, blocks: int, mib: int = 96, frames: int = 4, has_rows: bool = False
) -> Blocks | None:
    return choose_blocks(
        height,
        width,
        frames=frames,
        inputs=inputs,
        blocks=blocks,
        time_taps=3,
        vmem_bytes=mib * MIB,
        has_rows=has_rows,
    )


@pytest.mark.parametrize(("blocks", "wide"), [(1, 1), (2, 2), (3, 3), (4, 2), (5, 5), (7, 1), (10, 2)])
def test_blocks_of_outputs_are_made_together_as_they_fill_the_matrix_units(blocks: int, wide: int) -> None:
    """Two take three units, five eight, and three five; one alone takes two and fills one and a half."""
    found = choose(90, 20, inputs=384, blocks=blocks)
    assert found
    assert found.wide == wide


def test_where_room_is_short_one_block_of_outputs_at_a_time_leaves_more_for_pixels() -> None:
    assert choose(180, 40, inputs=384, blocks=3, mib=12) == Blocks(rows=6, wide=1)


def test_rows_of_other_devices_take_room_too() -> None:
    assert choose(180, 40, inputs=384, blocks=3, mib=12, has_rows=True) == Blocks(rows=5, wide=1)


def test_one_turn_of_the_loop_holds_all_groups_where_that_is_little_code() -> None:
    assert choose_groups(9, lanes=128, pixels=144, wide=1) == 9
    assert choose_groups(15, lanes=256, pixels=384, wide=2) == 6  # three units first, then twice six of them
    assert choose_groups(27, lanes=128, pixels=1440, wide=3) == 2


def test_the_largest_layers_of_wan_make_eight_rows_at_a_time_without_a_loop() -> None:
    assert choose(720, 160, inputs=96, blocks=1) == Blocks(rows=8, wide=1)
    assert choose_groups(9, lanes=128, pixels=8 * 176, wide=1) == 9


def test_the_largest_layers_of_sdxl_have_no_loop() -> None:
    assert choose_groups(9, lanes=128, pixels=4 * 144, wide=3) == 9
    assert choose_groups(9, lanes=128, pixels=6 * 144, wide=3) < 9


def test_what_is_read_at_a_time_has_room_twice_beside_the_weights() -> None:
    found, vmem_bytes = choose(720, 160, inputs=96, blocks=1, mib=48), 48 * MIB
    assert found
    read = 2 * (4 + 2) * (found.rows + 2) * 160 * LANES
    weights = 2 * 27 * LANES * LANES
    assert 2 * (read + weights) < vmem_bytes

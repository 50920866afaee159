"""XLA for TPU hides collectives and gives large products the room that a chip has; for a CPU, whose library is used."""

import jax
import jax.numpy as jnp
import pytest
from jax.sharding import SingleDeviceSharding

from pipelines.plan.topologies import find_devices, find_topology
from pipelines.runtime.kernels import switches
from pipelines.runtime.programs.compiled import Program, lower
from pipelines.runtime.programs.compiler_options import choose_options

LIBRARY = "xla_cpu_experimental_ynn_fusion_type"
VMEM = "xla_tpu_scoped_vmem_limit_kib"


def draw_argument(device: jax.Device) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct((8, 128), jnp.float32, sharding=SingleDeviceSharding(device))


def test_a_cpu_is_asked_nothing_that_is_for_tpus_and_arguments_that_lie_nowhere_nothing() -> None:
    assert set(choose_options((draw_argument(jax.devices("cpu")[0]),), vmem_share=0.75)) == {LIBRARY}
    assert choose_options((jax.ShapeDtypeStruct((8,), jnp.float32),), vmem_share=0.75) == {}


def test_a_cpu_convolves_by_xlas_own_library() -> None:
    where = SingleDeviceSharding(jax.devices("cpu")[0])
    picture, kernel = (
        jax.ShapeDtypeStruct(shape, jnp.float32, sharding=where) for shape in ((8, 32, 32, 64), (3, 3, 64, 64))
    )

    def convolve(picture: jax.Array, kernel: jax.Array) -> jax.Array:
        return jax.lax.conv_general_dilated(picture, kernel, (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC"))

    text = lower(Program(key=("convolve",), function=convolve, arguments=(picture, kernel))).compile().as_text()
    assert " convolution(" in text[text.index("ENTRY") :]


@pytest.mark.tpu_aot
@pytest.mark.parametrize(("topology", "kib"), [("v6e-1", "65536"), ("v5p-8", "32768"), ("v4-8", None)])
def test_room_is_half_of_what_the_chip_has_if_that_is_more_than_usual(topology: str, kib: str | None) -> None:
    argument = draw_argument(find_devices(find_topology(topology))[0])
    assert choose_options(({"weight": argument},), vmem_share=0.5).get(VMEM) == kib
    assert VMEM not in choose_options((argument,))


@pytest.mark.tpu_aot
@pytest.mark.parametrize("topology", ["v6e-1", "v4-8"])
def test_short_code_takes_less_room_than_usual(topology: str) -> None:
    argument = draw_argument(find_devices(find_topology(topology))[0])
    assert choose_options((argument,), compact_vmem_bytes=12 * 2**20)[VMEM] == "12288"
    assert VMEM not in choose_options((draw_argument(jax.devices("cpu")[0]),), compact_vmem_bytes=12 * 2**20)


@pytest.mark.tpu_aot
def test_weights_stay_in_one_piece_where_the_compiler_would_take_them_apart() -> None:
    windowed = "xla_jf_spmd_threshold_for_windowed_einsum_mib"
    new, old = (draw_argument(find_devices(find_topology(name))[0]) for name in ("v7x-8", "v6e-1"))
    assert windowed in choose_options((new,), gathers_whole=True)
    assert windowed not in choose_options((new,)) and windowed not in choose_options((old,), gathers_whole=True)
    program = Program(key=("double",), function=lambda x: 2 * x, arguments=(new,), gathers_whole=True)
    assert "HloModule" in lower(program).compile().as_text()


@pytest.mark.tpu_aot
@pytest.mark.parametrize(("topology", "told"), [("v6e-8", 2), ("v5p-8", 2), ("v7x-8", 0), ("v5e-8", 0)])
def test_exchanges_of_weights_are_left_to_sparse_cores_where_the_compiler_has_to_be_told(
    topology: str, told: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    argument = draw_argument(find_devices(find_topology(topology))[0])

    def count(**asked: bool) -> int:
        return sum("sparse_core" in name for name in choose_options((argument,), **asked))  # type: ignore[arg-type]

    assert count(exchanges=True) == told and count() == 0
    monkeypatch.setattr(switches._switches, "off", frozenset({"sparse_cores"}))
    assert count(exchanges=True) == 0


@pytest.mark.tpu_aot
def test_weights_are_gathered_apart_from_products_where_they_shall_be() -> None:
    fused = "xla_tpu_enable_async_collective_fusion_fuse_all_gather"
    argument = draw_argument(find_devices(find_topology("v5p-8"))[0])
    assert choose_options((argument,))[fused] == "true"
    assert choose_options((argument,), gathers_apart=True)[fused] == "false"
    assert choose_options((argument,), gathers_apart=True, exchanges=True)[fused] == "false"  # SparseCores leave some
    program = Program(key=("double",), function=lambda x: 2 * x, arguments=(argument,), gathers_apart=True)
    assert "HloModule" in lower(program).compile().as_text()


@pytest.mark.tpu_aot
def test_options_make_another_program_that_compiles() -> None:
    argument = draw_argument(find_devices(find_topology("v6e-1"))[0])
    programs = [
        Program(key=("double",), function=lambda x: 2 * x, arguments=(argument,), vmem_share=share)
        for share in (0.0, 0.5)
    ]
    lowered = [lower(program) for program in programs]
    assert lowered[0].as_text() == lowered[1].as_text()
    assert len({program.describe(own) for program, own in zip(programs, lowered, strict=True)}) == 2
    assert "HloModule" in lowered[1].compile().as_text()

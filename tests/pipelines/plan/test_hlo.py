"""Reading optimized HLO: two excerpts of the TPU compiler's own text, and programs that the CPU compiler makes here."""

from pathlib import Path

import jax
import jax.numpy as jnp
import pytest
from jax.sharding import PartitionSpec as P

from pipelines.plan.hlo import (
    Instruction,
    Module,
    count_group,
    count_moved_bytes,
    count_pallas_bytes,
    count_pallas_flops,
    read_bytes,
)
from pipelines.runtime.devices.mesh import build_mesh

EXCERPTS = Path(__file__).parent / "hlo"


def read_excerpt(name: str) -> Module:
    return Module((EXCERPTS / f"{name}.hlo").read_text())


def find(module: Module, opcode: str) -> list[tuple[str, Instruction]]:
    """Every instruction of this kind, with the computation it stands in."""
    return [
        (computation, one)
        for computation in module._lines
        for one in module.list_instructions(computation)
        if one.opcode == opcode
    ]


def test_a_loop_of_known_length_is_counted_and_one_with_bounds_at_run_time_is_not() -> None:
    module = read_excerpt("denoising_loop")
    trips = {one.name: module.count_trips(one, computation) for computation, one in find(module, "while")}
    assert trips == {"while.21": 7, "while.20": None}


def test_cycles_are_read_where_the_compiler_gives_them() -> None:
    module = read_excerpt("denoising_loop")
    cycles = {one.name: one.cycles for one in module.list_instructions("wide.region_1.1_spmd.sunk") if one.cycles}
    assert cycles == {"tanh_bitcast_fusion.2": 6512, "copy.7": 4612}


def test_an_all_reduce_of_the_tpu_compiler_moves_twice_its_bytes_but_its_own_part() -> None:
    module = read_excerpt("all_reduce")
    ((_, one),) = find(module, "all-reduce")
    assert (one.collective, count_group(one)) == ("all-reduce", 8)
    assert count_moved_bytes(one) == 2 * 4 * 1024 * 1024 * 7 // 8


SCATTERED = """
%all-reduce-scatter.2.clone.1 (input: bf16[640,640], input.1: bf16[640,2048]) -> (bf16[80,640], bf16[640,256]) {
  %input = bf16[640,640]{1,0} parameter(0)
  %input.1 = bf16[640,2048]{1,0} parameter(1)
  %all-reduce.7 = (bf16[640,640]{1,0}, bf16[640,2048]{1,0}) all-reduce(%input, %input.1), channel_id=3, \
replica_groups={{0,1,2,3,4,5,6,7}}, to_apply=%add
  %whole = bf16[640,640]{1,0} get-tuple-element(%all-reduce.7), index=0
  %part = bf16[80,640]{1,0} dynamic-slice(%whole, %at, %zero), dynamic_slice_sizes={80,640}
  %whole.1 = bf16[640,2048]{1,0} get-tuple-element(%all-reduce.7), index=1
  %part.1 = bf16[640,256]{1,0} dynamic-slice(%whole.1, %zero, %at), dynamic_slice_sizes={640,256}
  ROOT %parts = (bf16[80,640]{1,0}, bf16[640,256]{1,0}) tuple(%part, %part.1)
}

ENTRY %main (a: bf16[640,640], b: bf16[640,2048]) -> (bf16[80,640], bf16[640,256]) {
  %a = bf16[640,640]{1,0} parameter(0)
  %b = bf16[640,2048]{1,0} parameter(1)
  ROOT %fusion = (bf16[80,640]{1,0}, bf16[640,256]{1,0}) fusion(%a, %b), calls=%all-reduce-scatter.2.clone.1
}
"""


def test_an_all_reduce_that_the_tpu_compiler_scatters_moves_half_of_what_a_whole_one_does() -> None:
    one = Module(SCATTERED).find_collective("all-reduce-scatter.2.clone.1")
    assert one is not None
    assert one.collective == "reduce-scatter"
    assert count_moved_bytes(one) == 2 * 640 * (640 + 2048) * 7 // 8


def test_the_length_of_a_scan_is_found_in_what_the_cpu_compiler_makes() -> None:
    def scan(x: jax.Array, weights: jax.Array) -> jax.Array:
        return jax.lax.scan(lambda x, w: (jnp.tanh(x @ w), None), x, weights)[0]

    compiled = jax.jit(scan).lower(jnp.ones((4, 16)), jnp.ones((11, 16, 16))).compile()
    module = Module(compiled.as_text())
    assert [module.count_trips(one, computation) for computation, one in find(module, "while")] == [11]


def test_the_bytes_of_a_psum_are_found_in_what_the_cpu_compiler_makes() -> None:
    mesh = build_mesh("dp=2,tp=4")
    double = jax.shard_map(
        lambda x: jax.lax.psum(x, "tp"), mesh=mesh, in_specs=P("dp", "tp"), out_specs=P("dp"), check_vma=False
    )
    module = Module(jax.jit(double).lower(jnp.ones((2, 4 * 256), jnp.float32)).compile().as_text())
    ((_, one),) = find(module, "all-reduce")
    assert count_group(one) == 4
    assert count_moved_bytes(one) == 2 * (4 * 256) * 3 // 4


def make(opcode: str, shape: str, attributes: str = "") -> Instruction:
    return Instruction(
        name="x", opcode=opcode, shape=shape, operands=("y",), attributes=f", {attributes}", is_root=False
    )


@pytest.mark.parametrize(
    ("groups", "size"),
    [
        ("replica_groups={{0,1},{2,3}}", 2),
        ("replica_groups=[2,4]<=[8]", 4),
        ("replica_groups=[2,4]<=[4,2]T(1,0), dimensions={2}", 4),
        ("replica_groups=mesh['axis_0'=2,'axis_1'=1,'axis_2'=4,'axis_3'=1] {'axis_2','axis_3'}", 4),
    ],
)
def test_groups_are_read_in_every_way_they_are_written(groups: str, size: int) -> None:
    assert count_group(make("all-gather", "bf16[8]{0}", groups)) == size


@pytest.mark.parametrize(
    ("opcode", "shape", "moved"),
    [
        ("all-gather", "bf16[8,100]{1,0:T(8,128)(2,1)}", 1200),
        ("all-gather-start", "(bf16[2,100]{1,0}, bf16[8,100]{1,0})", 1200),
        ("reduce-scatter", "f32[100]{0}", 1200),
        ("all-to-all", "(f32[100]{0}, f32[100]{0}, f32[100]{0}, f32[100]{0})", 1200),
        ("collective-permute-start", "(s8[100]{0}, s8[100]{0}, u32[]{:S(2)}, u32[]{:S(2)})", 100),
    ],
)
def test_each_collective_moves_what_a_ring_would(opcode: str, shape: str, moved: int) -> None:
    assert count_moved_bytes(make(opcode, shape, "replica_groups=[2,4]<=[8]")) == moved


def test_tuples_with_comments_and_layouts_have_their_bytes_counted() -> None:
    assert read_bytes("(s32[]{:T(128)}, bf16[2,3]{1,0:T(8,128)(2,1)S(1)}, /*index=5*/pred[4]{0})") == [4, 12, 4]


def test_a_kernel_says_its_flops_or_has_them_counted_from_q_k_and_v() -> None:
    target = 'custom_call_target="tpu_custom_call"'
    told = make("custom-call", "bf16[4,8,64]{2,1,0}", f'{target}, backend_config={{"cost_estimate":{{"flops":"77"}}}}')
    assert count_pallas_flops(told) == 77
    assert count_pallas_bytes(told) == 0
    layouts = "{s8[1,16,16]{2,1,0}, bf16[4,256,128]{2,1,0}, bf16[4,512,128]{2,1,0}, bf16[4,512,128]{2,1,0}}"
    moving = '{"cost_estimate":{"flops":"0","transcendentals":"0","bytes_accessed":"300"}}'
    assert count_pallas_bytes(make("custom-call", "bf16[4]{0}", f"{target}, backend_config={moving}")) == 300
    silent = make("custom-call", "bf16[4,256,128]{2,1,0}", f"{target}, operand_layout_constraints={layouts}")
    assert count_pallas_flops(silent) == 4 * 4 * 256 * 128 * 512


def test_text_that_is_no_hlo_is_refused() -> None:
    with pytest.raises(ValueError, match="ENTRY"):
        Module("nothing")


def test_metadata_over_several_lines_end_no_computation() -> None:
    text = """
ENTRY %main (a: bf16[8]) -> bf16[8] {
  %a = bf16[8]{0} parameter(0)
  %kernel.1 = bf16[8]{0} custom-call(%a), custom_call_target="tpu_custom_call", frontend_attributes={kernel_metadata={
"xprof_metadata":"{\\"block_q\\": 768}"
}}, metadata={op_name="attention"}
  ROOT %negate = bf16[8]{0} negate(%kernel.1)
}
"""
    names = [one.name for one in Module(text).list_instructions("main")]
    assert names == ["a", "kernel.1", "negate"]
    assert Module(text).list_instructions("main")[1].is_attention

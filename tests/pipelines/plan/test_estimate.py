"""Time from optimized HLO: loops multiply, kernels count by FLOPs, collectives cost what nothing hides."""

import pytest

from pipelines.plan.estimate import LATENCY_S, OWN_UTILISATION, PALLAS_UTILISATION, count_chunks, estimate
from pipelines.plan.hlo import Module
from pipelines.plan.topologies import V5E, V5P, V6E
from tests.pipelines.plan.test_hlo import read_excerpt

PERMUTE = """
%fused (p: bf16[8]) -> bf16[8] {
  ROOT %p = bf16[8]{0} parameter(0)
}

ENTRY %main (a: bf16[90000000], b: bf16[8]) -> bf16[90000000] {
  %a = bf16[90000000]{0} parameter(0)
  %b = bf16[8]{0} parameter(1)
  %collective-permute-start = (bf16[90000000]{0}, bf16[90000000]{0}, u32[], u32[]) collective-permute-start(%a), channel_id=1, source_target_pairs={{0,1},{1,0}}
  %fusion = bf16[8]{0} fusion(%b), kind=kLoop, calls=%fused, backend_config={"window_config":{"estimated_cycles":"CYCLES"}}
  ROOT %collective-permute-done = bf16[90000000]{0} collective-permute-done(%collective-permute-start)
}
"""  # noqa: E501 - one instruction a line
FUSED = """
%begin (p: bf16[90000000]) -> (bf16[90000000], u32[]) {
  %p = bf16[90000000]{0} parameter(0)
  %moving.1 = bf16[90000000]{0} collective-permute(%p), channel_id=7, source_target_pairs={{0,1},{1,0}}, frontend_attributes={chain_id="0"}
  ROOT %started = (bf16[90000000]{0}, u32[]) custom-call(%moving.1), custom_call_target="AsyncCollectiveStart"
}

%compute (p: bf16[90000000], b: bf16[8]) -> bf16[8] {
  %p = bf16[90000000]{0} parameter(0)
  %moving.2 = bf16[90000000]{0} collective-permute(%p), channel_id=7, source_target_pairs={{0,1},{1,0}}, frontend_attributes={chain_id="0"}
  ROOT %b = bf16[8]{0} parameter(1)
}

%end (p: bf16[90000000]) -> bf16[90000000] {
  %p = bf16[90000000]{0} parameter(0)
  %moving.3 = bf16[90000000]{0} collective-permute(%p), channel_id=7, source_target_pairs={{0,1},{1,0}}, frontend_attributes={chain_id="0"}
  ROOT %ended = bf16[90000000]{0} custom-call(%p, %moving.3), custom_call_target="AsyncCollectiveDone"
}

ENTRY %main (a: bf16[90000000], b: bf16[8]) -> bf16[90000000] {
  %a = bf16[90000000]{0} parameter(0)
  %b = bf16[8]{0} parameter(1)
  %fusion.1 = (bf16[90000000]{0}, u32[]) fusion(%a), kind=kCustom, calls=%begin
  %part = bf16[90000000]{0} get-tuple-element(%fusion.1), index=0
  %fusion.2 = bf16[8]{0} fusion(%part, %b), kind=kOutput, calls=%compute, backend_config={"window_config":{"estimated_cycles":"CYCLES"}}
  ROOT %fusion.3 = bf16[90000000]{0} fusion(%part), kind=kCustom, calls=%end
}
"""  # noqa: E501 - one instruction a line
MOVING_S = 180e6 / V6E.ici_bytes_per_s


def test_a_step_counts_its_inner_loop_seven_times_and_what_is_around_the_steps_apart() -> None:
    found = estimate(read_excerpt("denoising_loop"), V6E)
    assert found.run.total_s == pytest.approx(7 * (6512 + 4612) / V6E.clock_hz)
    assert found.once.total_s == pytest.approx(2 * 6640 / V6E.clock_hz)


def test_a_slower_clock_takes_longer() -> None:
    module = read_excerpt("denoising_loop")
    ratio = estimate(module, V5E).run.total_s / estimate(module, V6E).run.total_s
    assert ratio == pytest.approx(V6E.clock_hz / V5E.clock_hz)


def test_a_collective_that_blocks_is_exposed_with_its_latency() -> None:
    found = estimate(read_excerpt("all_reduce"), V6E)
    assert found.run.counts == {"all-reduce": 1}
    assert found.run.total_s == pytest.approx(7340032 / V6E.ici_bytes_per_s + LATENCY_S)


@pytest.mark.parametrize("text", [PERMUTE, FUSED], ids=["of its own", "inside fusions"])
@pytest.mark.parametrize("share", [0.25, 2.0])
def test_computing_between_start_and_end_hides_as_much_of_a_collective(share: float, text: str) -> None:
    cycles = int(share * MOVING_S * V6E.clock_hz)
    found = estimate(Module(text.replace("CYCLES", str(cycles))), V6E).run
    exposed_s = (1 - share) * MOVING_S + LATENCY_S if share < 1 else 0.0
    assert found.exposed_s == pytest.approx(exposed_s, rel=1e-3)
    assert found.hidden_s == pytest.approx(min(share, 1) * MOVING_S, rel=1e-3)
    assert found.moved_bytes == {"collective-permute": 180_000_000}


def test_a_kernel_takes_its_flops_at_the_assumed_utilisation() -> None:
    text = """
ENTRY %main (q: bf16[4,2048,128]) -> bf16[4,2048,128] {
  %q = bf16[4,2048,128]{2,1,0} parameter(0)
  ROOT %kernel = bf16[4,2048,128]{2,1,0} custom-call(%q, %q, %q), custom_call_target="tpu_custom_call", backend_config={"custom_call_config":{"cost_estimate":{"flops":"8623489024"}}}
}
"""  # noqa: E501 - one instruction a line
    found = estimate(Module(text), V6E).run
    assert found.attention_s == found.total_s == pytest.approx(8623489024 / (PALLAS_UTILISATION * 918e12))


@pytest.mark.parametrize(
    ("name", "outputs", "share"),
    [("flash_attention", 128, 0.95), ("convolve_taps", 640, 0.89), ("convolve_taps", 128, 0.80)],
)
def test_where_a_schedule_is_known_a_kernel_takes_its_share(name: str, outputs: int, share: float) -> None:
    text = f"""
ENTRY %main (q: bf16[4,2048,{outputs}]) -> bf16[4,2048,{outputs}] {{
  %q = bf16[4,2048,{outputs}]{{2,1,0}} parameter(0)
  ROOT %{name}.3 = bf16[4,2048,{outputs}]{{2,1,0}} custom-call(%q, %q), custom_call_target="tpu_custom_call", backend_config={{"custom_call_config":{{"cost_estimate":{{"flops":"86234890240"}}}}}}
}}
"""  # noqa: E501 - one instruction a line
    assert estimate(Module(text), V5P).run.total_s == pytest.approx(86234890240 / (share * 459e12))
    assert estimate(Module(text), V5E).run.total_s == pytest.approx(86234890240 / (PALLAS_UTILISATION * 197e12))


def test_plain_attention_is_shown_apart_from_other_computing() -> None:
    text = """
ENTRY %main (q: bf16[8]) -> bf16[8] {
  %q = bf16[8]{0} parameter(0)
  %a = bf16[8]{0} exponential(%q), metadata={op_name="jit(f)/scaled_dot_product_attention/exp"}, backend_config={"window_config":{"estimated_cycles":"1750"}}
  ROOT %b = bf16[8]{0} add(%a, %q), metadata={op_name="jit(f)/add"}, backend_config={"window_config":{"estimated_cycles":"3500"}}
}
"""  # noqa: E501 - one instruction a line
    found = estimate(Module(text), V6E).run
    assert (found.attention_s, found.compute_s) == pytest.approx((1e-6, 2e-6))


REUSING = """
%fused (p: bf16[8]) -> bf16[8] {
  ROOT %p = bf16[8]{0} parameter(0)
}

%compute (p: bf16[8]) -> bf16[8] {
  %p = bf16[8]{0} parameter(0)
  ROOT %layers = bf16[8]{0} fusion(%p), kind=kLoop, calls=%fused, backend_config={"window_config":{"estimated_cycles":"9000"}}
}

%reuse (p: bf16[8]) -> bf16[8] {
  %p = bf16[8]{0} parameter(0)
  ROOT %added = bf16[8]{0} fusion(%p), kind=kLoop, calls=%fused, backend_config={"window_config":{"estimated_cycles":"100"}}
}

%step (p: bf16[8]) -> bf16[8] {
  %p = bf16[8]{0} parameter(0)
  %in = bf16[8]{0} fusion(%p), kind=kLoop, calls=%fused, backend_config={"window_config":{"estimated_cycles":"500"}}
  ROOT %chosen = bf16[8]{0} conditional(%in, %in, %in), true_computation=%reuse, false_computation=%compute
}

%goes_on (p: bf16[8]) -> pred[] {
  ROOT %p = bf16[8]{0} parameter(0)
}

ENTRY %main (a: bf16[8]) -> bf16[8] {
  %a = bf16[8]{0} parameter(0)
  ROOT %steps = bf16[8]{0} while(%a), condition=%goes_on, body=%step
}
"""  # noqa: E501 - one instruction a line


def test_with_a_step_cache_a_step_is_counted_with_its_layers_and_without() -> None:
    found = estimate(Module(REUSING), V6E, reuses=True)
    assert found.reused is not None
    cycles = [cost.total_s * V6E.clock_hz for cost in (found.run, found.reused)]
    assert cycles == pytest.approx([9500, 600])
    assert estimate(Module(REUSING), V6E).reused is None


def test_short_steps_come_in_chunks_and_long_ones_alone() -> None:
    assert count_chunks(steps=25, step_s=0.01, max_chunk=8, target_s=0.1) == 4
    assert count_chunks(steps=50, step_s=4.0, max_chunk=8, target_s=0.1) == 50


def test_kernels_of_gradients_have_shares_of_their_own() -> None:
    text = """
ENTRY %main (q: bf16[4,2048,128]) -> bf16[4,2048,128] {
  %q = bf16[4,2048,128]{2,1,0} parameter(0)
  ROOT %NAME.3 = bf16[4,2048,128]{2,1,0} custom-call(%q, %q, %q), custom_call_target="tpu_custom_call", backend_config={"custom_call_config":{"cost_estimate":{"flops":"8623489024"}}}
}
"""  # noqa: E501 - one instruction a line
    large = "flash_gradient_2048x512x1"
    assert OWN_UTILISATION[large][V6E.name] > OWN_UTILISATION["flash_gradient"][V6E.name]
    for name, chip in (("flash_gradient", V5P), ("flash_gradient", V6E), (large, V6E), ("conv3x3_gradient", V6E)):
        found = estimate(Module(text.replace("NAME", name)), chip).run
        seconds = 8623489024 / (OWN_UTILISATION[name][chip.name] * chip.peak_flops)
        assert (found.attention_s or found.convolution_s) == pytest.approx(seconds)
        assert (found.convolution_s > 0) == name.startswith("conv")


def test_a_product_beside_a_gather_takes_as_long_as_memory_does_where_weights_are_learnt() -> None:
    """The compiler says 228 240 cycles, 130 us, for 453 MB beside what is gathered, which take 276 us on v6e."""
    wide, step = "bf16[4608,12288]{1,0:T(8,128)(2,1)}", "bf16[1,4096,12288]{2,1,0}"
    text = f"""
%fused (p: bf16[4608,16], q: {wide}, r: {step}) -> {wide} {{
  %q = {wide} parameter(1)
  %r = {step} parameter(2)
  %all-gather.7 = {step} all-gather(%r), channel_id=47, replica_groups={{{{0,1}}}}, frontend_attributes={{chain_id="26"}}
  ROOT %t = ({wide}, {step}) tuple(%q, %r)
}}

ENTRY %main (few: bf16[4608,16], wide: {wide}, kept: bf16[24,1,4608,12288], step: {step}) -> {wide} {{
  %few = bf16[4608,16]{{0,1:T(8,128)S(1)}} parameter(0)
  %wide = {wide} parameter(1)
  %kept = bf16[24,1,4608,12288]{{3,2,1,0}} parameter(2)
  %step = {step} parameter(3)
  %fusion = (bf16[24,1,4608,12288]{{3,2,1,0}}, {wide}, {step}) fusion(%step, %few, %wide, %kept), kind=kOutput, calls=%fused, backend_config={{"window_config":{{"estimated_cycles":"228240"}},"continuation_config":{{"output_tuple_original_start":"0","output_tuple_original_end":"1","operand_original_start":"1","operand_original_end":"3"}}}}
  ROOT %out = {wide} get-tuple-element(%fusion), index=1
}}
"""  # noqa: E501 - one instruction a line
    told, learnt = (estimate(Module(text), V6E, learns=learns).run.compute_s for learns in (False, True))
    assert told == pytest.approx(228_240 / V6E.clock_hz)
    assert learnt == pytest.approx(4 * 2 * 4608 * 12288 / V6E.hbm_bytes_per_s) and 276e-6 < learnt < 277e-6

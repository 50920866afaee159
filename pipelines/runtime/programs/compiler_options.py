"""Options for XLA's compilers: on TPUs collectives beside computing, large tiles for products, short code.

By the TPU compiler, Wan 14B at 832x480x81 on a v6e-8: 918 ms a step without, 879 with gathers beside computing, 793
with large tiles too. Its decoder at 1280x720x81 with small ones: 71 MB of code in place of 98 and compiled in 40 s in
place of 62, for 689 ms in place of 646 (plan/TRIED.md). On a CPU: which library computes what.
"""

from typing import Any

import jax

from pipelines.runtime.kernels.flash import SMALL_VMEM_BYTES, VMEM_BYTES
from pipelines.runtime.kernels.switches import is_on

_COLLECTIVES = (
    "xla_enable_async_all_gather",
    "xla_tpu_enable_async_all_to_all",
    "xla_tpu_enable_async_collective_fusion",
    "xla_tpu_enable_async_collective_fusion_fuse_all_gather",
)
# Split weights of a training are gathered layer by layer, and their gradients scattered. On these chips the core that
# multiplies waits for the latter, unless the compiler is told to leave both to SparseCores, as TPU7x does unasked:
# klein 4B with all weights on a v6e-8 takes 0.287 s a step so, in place of 0.319 (plan/TRIED.md).
_BY_SPARSE_CORES = (
    "xla_tpu_enable_sparse_core_collective_offload_all_gather",
    "xla_tpu_enable_sparse_core_collective_offload_reduce_scatter",
)
_HAND_OVER_ON = ("TPU v5", "TPU v5p", "TPU v6 lite", "TPU v6e")
_USUAL_VMEM_BYTES = 16 * 2**20
# TPU7x's compiler multiplies by a weight in as many pieces as it is split into, each as it comes from another device,
# unless that is worth less than so many MiB. By it Wan 2.2 A14B at 1280x720x81 on a v7x-8 takes 3.42 s a step so, and
# 2.40 s where a weight is gathered whole, beside the computing before.
_WHOLE_ON = "TPU7x"
_WHOLE = {"xla_jf_spmd_threshold_for_windowed_einsum_mib": "1000000"}
# The compiler joins sums over devices, up to 256 gradients in one kernel, which takes it long. Joined up to so many
# bytes they let SD2's step compile in 290 s in place of 319, and take it as long (plan/TRIED.md).
_SMALL_SUMS = {"xla_jf_crs_combiner_threshold_in_bytes": "1000000"}
# A gather within a product makes the product a kernel of its own, where equal layers share one otherwise: of SD2's step
# with all weights 1121 of 4255 fusions are kinds of their own so, and 676 of 3995 apart, which compile in a tenth less.
_APART = {"xla_tpu_enable_async_collective_fusion_fuse_all_gather": "false"}

# XLA:CPU hands sums, products and convolutions to the library YNNPACK, unless it is told which of them. Eigen's
# convolutions share the cores better: a training step of demo-sdxl takes a fifth less time by them, a picture of it and
# a clip of demo-wan an eighth less (docs/measured.md).
_ON_CPU = {
    "xla_cpu_experimental_ynn_fusion_type": "LIBRARY_FUSION_TYPE_REDUCE,LIBRARY_FUSION_TYPE_INDIVIDUAL_DOT",
}


def choose_options(
    arguments: Any,
    *,
    vmem_share: float = 0.0,
    compact_vmem_bytes: int | None = None,
    gathers_whole: bool = False,
    joins_little: bool = False,
    exchanges: bool = False,
    gathers_apart: bool = False,
) -> dict[str, str]:
    """Compiler options of a program with these arguments: a CPU's are always the same, and a GPU has none.

    All that may be asked for is for TPUs. `vmem_share` of a core's vector memory is what each of its operations may
    use, if that is more than XLA gives it anyway. Products of large matrices gain by it, convolutions only compile
    longer. XLA unrolls all of a tile, so with `compact_vmem_bytes`, less than usual, code is much shorter and a little
    slower. With `gathers_whole` weights are gathered before they are multiplied by, and not piece by piece meanwhile.
    With `joins_little` sums over devices are joined as far as that compiles fast. A training that `exchanges` its
    weights leaves that to SparseCores, as far as these take them; one that `gathers_apart` has the others gathered
    apart from products, and not within them.
    """
    shardings = (getattr(one, "sharding", None) for one in jax.tree.leaves(arguments))
    device = next((next(iter(one.device_set)) for one in shardings if one is not None), None)
    if device is not None and device.platform == "cpu":
        return dict(_ON_CPU)
    if device is None or device.platform != "tpu":
        return {}
    options: dict[str, str] = dict.fromkeys(_COLLECTIVES, "true")
    if gathers_whole and device.device_kind == _WHOLE_ON:
        options |= _WHOLE
    if joins_little:
        options |= _SMALL_SUMS
    if exchanges and is_on("sparse_cores"):
        options |= hand_over(device.device_kind)
    if gathers_apart:
        options |= _APART
    vmem_bytes = _count_vmem_bytes(device.device_kind, vmem_share=vmem_share, compact_vmem_bytes=compact_vmem_bytes)
    if vmem_bytes != _USUAL_VMEM_BYTES:
        options["xla_tpu_scoped_vmem_limit_kib"] = str(vmem_bytes // 1024)
    return options


def hand_over(device_kind: str) -> dict[str, str]:
    """Options that leave gathering and scattering to a chip's SparseCores; none where it has none or needs no word."""
    return dict.fromkeys(_BY_SPARSE_CORES if device_kind in _HAND_OVER_ON else (), "true")


def _count_vmem_bytes(device_kind: str, *, vmem_share: float, compact_vmem_bytes: int | None) -> int:
    """Returns the vector memory that each operation of a program compiled like this may use."""
    share_bytes = int(vmem_share * VMEM_BYTES.get(device_kind, SMALL_VMEM_BYTES))
    return compact_vmem_bytes or max(share_bytes, _USUAL_VMEM_BYTES)

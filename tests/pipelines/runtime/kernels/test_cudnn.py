"""Attention on NVIDIA GPUs, as far as a machine without one can tell: what is chosen, and the same call through XLA."""

from types import SimpleNamespace
from typing import Any

import jax
import jax._src.cudnn.fused_attention_stablehlo as kernel
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import PartitionSpec as P

from pipelines.runtime.devices.mesh import build_mesh
from pipelines.runtime.kernels import attention, cudnn
from pipelines.runtime.kernels.attention import attend
from pipelines.runtime.kernels.attention_axes import AttentionAxes
from pipelines.runtime.kernels.cudnn import attend_fused, can_run, find_capability, has_cuda, takes
from pipelines.runtime.weights.components import choose_dtype


def draw(*shape: int, seed: int) -> jax.Array:
    return jnp.asarray(np.random.default_rng(seed).standard_normal(shape), jnp.float32)


@pytest.mark.parametrize("is_causal", [False, True])
@pytest.mark.parametrize("scale", [None, 0.3])
@pytest.mark.parametrize("key_heads", [4, 2])
def test_the_fused_call_is_our_own_attention(*, is_causal: bool, scale: float | None, key_heads: int) -> None:
    query = draw(2, 4, 24, 16, seed=0)
    key, value = (draw(2, key_heads, 24, 16, seed=seed) for seed in (1, 2))
    expected = attend(query, key, value, mask=None, is_causal=is_causal, scale=scale, has_grouped_heads=key_heads != 4)
    found = attend_fused(query, key, value, is_causal=is_causal, scale=scale, implementation="xla")
    np.testing.assert_allclose(found, expected, atol=2e-6)


def test_keys_may_be_of_another_length() -> None:
    query, key, value = draw(1, 2, 24, 16, seed=0), draw(1, 2, 7, 16, seed=1), draw(1, 2, 7, 16, seed=2)
    expected = attend(query, key, value, mask=None, is_causal=False, scale=None, has_grouped_heads=False)
    found = attend_fused(query, key, value, is_causal=False, scale=None, implementation="xla")
    np.testing.assert_allclose(found, expected, atol=2e-6)


@pytest.mark.parametrize(
    ("shape", "dtype", "has_mask", "is_taken"),
    [
        ((1, 10, 4096, 64), jnp.bfloat16, False, True),  # SDXL
        ((1, 48, 4608, 128), jnp.bfloat16, False, True),  # FLUX.2
        ((1, 40, 75600, 128), jnp.float16, False, True),  # Wan
        ((1, 1, 16384, 512), jnp.bfloat16, False, False),  # an autoencoder's middle
        ((1, 10, 4096, 64), jnp.float32, False, False),
        ((1, 64, 512, 64), jnp.bfloat16, True, False),  # a text encoder's padding or position bias
        ((1, 2, 64, 20), jnp.bfloat16, False, False),
        ((2, 64, 64), jnp.bfloat16, False, False),
    ],
)
def test_the_kernel_gets_what_it_can_do(shape: tuple[int, ...], dtype: type, *, has_mask: bool, is_taken: bool) -> None:
    mask = jnp.ones((1, 1, shape[-2], shape[-2]), bool) if has_mask else None
    query = jax.ShapeDtypeStruct(shape, dtype)
    assert takes(query, query, mask=mask) is is_taken


@pytest.mark.parametrize(
    ("tokens", "keys", "learns"), [(4096, 77, True), (75, 64, True), (4096, 78, True), (4096, 77, False)]
)
def test_odd_lengths_are_taken_where_jax_takes_them(
    tokens: int, keys: int, monkeypatch: pytest.MonkeyPatch, *, learns: bool
) -> None:
    """SDXL's 77 of a text, in a training: as far as a CPU can tell, which is JAX's own check."""
    monkeypatch.setattr(kernel, "check_cudnn_version", lambda: 91000)
    monkeypatch.setattr(kernel, "check_compute_capability", lambda *_arguments: True)
    query, key = (jax.ShapeDtypeStruct((1, 2, length, 64), jnp.bfloat16) for length in (tokens, keys))

    def attend(query: jax.Array, key: jax.Array) -> jax.Array:
        return attend_fused(query, key, key, is_causal=False, scale=None).astype(jnp.float32).sum()

    run = jax.grad(attend) if learns else attend
    try:
        jax.eval_shape(run, query, key)
        is_taken = True
    except NotImplementedError:
        is_taken = False
    assert takes(query, key, mask=None, learns=learns) is is_taken


def test_a_cpu_has_none() -> None:
    assert not has_cuda()
    assert find_capability(jax.devices()[0]) is None


@pytest.mark.parametrize(
    ("platform_version", "capability", "found"),
    [("PJRT C API\ncuda 13000", "7.5", (7, 5)), ("cuda 12090", "10.3", (10, 3)), ("rocm 70000", "gfx90a", None)],
)
def test_a_gpus_capability_is_read(platform_version: str, capability: str, found: tuple[int, int] | None) -> None:
    device = SimpleNamespace(
        client=SimpleNamespace(platform_version=platform_version), compute_capability=capability, platform="gpu"
    )
    assert find_capability(device) == found


@pytest.mark.parametrize(
    ("capabilities", "version", "is_run"),
    [
        ({(8, 0)}, 90800, True),
        ({(9, 0)}, 91100, True),
        ({(7, 0)}, 91100, False),  # V100
        ({(7, 5)}, 91100, False),  # T4
        ({(7, 5), (8, 6)}, 91100, False),
        ({(10, 3)}, 91000, False),
        ({(10, 3)}, 91100, True),
        ({(9, 0)}, 0, False),  # no cuDNN
        ({None}, 0, False),
    ],
)
def test_old_gpus_and_old_versions_keep_to_plain_xla(
    capabilities: set[tuple[int, int] | None], version: int, *, is_run: bool
) -> None:
    assert can_run(capabilities, version=version) is is_run


@pytest.mark.parametrize(
    ("platform", "capability", "dtype"),
    [
        ("cpu", None, jnp.float32),
        ("gpu", "7.5", jnp.float32),
        ("gpu", "8.0", jnp.bfloat16),
        ("tpu", None, jnp.bfloat16),
    ],
)
def test_what_big_modules_compute_in(platform: str, capability: str | None, dtype: type) -> None:
    client = SimpleNamespace(platform_version="cuda 13000" if capability else platform)
    device = SimpleNamespace(platform=platform, client=client, compute_capability=capability)
    mesh: Any = SimpleNamespace(devices=np.array([device], object))
    assert choose_dtype(mesh) is dtype


@pytest.mark.parametrize("mesh", ["dp=2,sp=4", "dp=2,sp=2,tp=2", "sp=8", "tp=8"])
@pytest.mark.parametrize(
    ("key_heads", "keys", "is_causal"), [(4, 24, False), (4, 24, True), (2, 24, False), (4, 7, False)]
)
def test_devices_share_it(mesh: str, key_heads: int, keys: int, *, is_causal: bool) -> None:
    query = draw(2, 4, 24, 16, seed=0)
    key, value = (draw(2, key_heads, keys, 16, seed=seed) for seed in (1, 2))
    axes = AttentionAxes(mesh=build_mesh(mesh), rows="dp", heads="tp", tokens="sp")
    how = {"is_causal": is_causal, "scale": None}
    found = jax.jit(lambda *x: attention.attend_fused(*x, axes=axes, implementation="xla", **how))(query, key, value)
    np.testing.assert_allclose(found, attend_fused(query, key, value, implementation="xla", **how), atol=2e-6)


@pytest.mark.parametrize("mesh", ["dp=2,sp=4", "dp=2,sp=2,tp=2", "tp=8"])
@pytest.mark.parametrize("is_entered", [False, True])
def test_the_kernel_itself_can_be_shared_so(mesh: str, monkeypatch: pytest.MonkeyPatch, *, is_entered: bool) -> None:
    """Goes as far as a CPU can: all but its last word, that it has no such kernel, is about the devices' parts."""
    monkeypatch.setattr(cudnn, "has_cuda", lambda: True)
    monkeypatch.setattr(kernel, "check_cudnn_version", lambda: 91000)
    monkeypatch.setattr(kernel, "check_is_flash_attention", lambda *_arguments, **_options: None)
    monkeypatch.setattr(kernel, "check_compute_capability", lambda *_arguments: True)
    built = build_mesh(mesh)
    entered = frozenset({"tp"}) if is_entered else frozenset[str]()
    axes = AttentionAxes(mesh=built, rows="dp", heads=None if is_entered else "tp", tokens="sp", entered=entered)

    def run(query: jax.Array, key: jax.Array) -> jax.Array:
        how = {"mask": None, "is_causal": False, "scale": None, "has_grouped_heads": False}
        return attend(query, key, key, axes=axes, **how)

    if is_entered:
        own = P(None, "tp")
        run = jax.shard_map(run, mesh=built, in_specs=(own, own), out_specs=own, axis_names=entered, check_vma=False)
    query, key = (jax.ShapeDtypeStruct((2, 8, length, 64), jnp.bfloat16) for length in (64, 64))
    with pytest.raises(Exception, match=r"translation rule .* not found for platform cpu"):
        jax.jit(run).lower(query, key).compile()

"""Which kernels are on: by hand, by what the doctor remembers, and what is computed in place of one that is off."""

import dataclasses
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

from pipelines.errors import RecipeError
from pipelines.runtime.devices.mesh import build_mesh
from pipelines.runtime.kernels import attention, switches
from pipelines.runtime.kernels.attention import attend, attend_merged, attend_rotated
from pipelines.runtime.kernels.attention_axes import AttentionAxes
from pipelines.runtime.kernels.blocks import attend_in_blocks
from pipelines.runtime.kernels.convolution import PictureAxes
from pipelines.runtime.kernels.flash import Tiles, flash_attention
from pipelines.runtime.kernels.switches import Checked, Found

WRONG = Checked(
    kind="TPU v9",
    hardware="8 x 1ae0:0099",
    versions=switches.list_versions(),
    at=1.0,
    checks={"flash": Found(verdict="wrong", detail="differs by 1", off=("flash",)), "rotary": Found(verdict="right")},
)


@pytest.fixture(autouse=True)
def _as_before() -> Iterator[None]:
    yield
    switches.choose_by_hand(None)


@pytest.mark.parametrize(
    ("text", "off"),
    [
        ("on", set[str]()),
        ("off", {*switches.INSTEAD}),
        ("flash, ulysses", switches.INSTEAD.keys() - {"flash", "ulysses"}),
        ("no-flash,no-cudnn", {"flash", "cudnn"}),
    ],
)
def test_a_choice_by_hand_is_read_and_written(text: str, off: set[str]) -> None:
    assert switches.read_choice(text) == off
    assert switches.read_choice(switches.write_choice(off)) == off


@pytest.mark.parametrize("text", ["", "flush", "flash,no-ulysses", "off,flash"])
def test_a_choice_that_means_nothing_is_refused_with_the_names(text: str) -> None:
    with pytest.raises(RecipeError, match="flash, flash_gradient, ulysses"):
        switches.read_choice(text)


def test_what_is_remembered_counts_for_that_kind_of_chip_and_those_versions_alone(tmp_path: Path) -> None:
    file = tmp_path / "cache" / "doctor.json"
    switches.remember(file, WRONG)
    switches.remember(file, dataclasses.replace(WRONG, kind="TPU v8", checks={}))
    older = dataclasses.replace(
        WRONG, versions={"jax": "0.1"}, checks={"ulysses": Found(verdict="hung", off=("ulysses",))}
    )
    switches.remember(file, older)
    assert switches.find(file, versions=WRONG.versions, kind="TPU v9") == WRONG
    assert switches.find(file, versions=WRONG.versions, hardware="2 x 1ae0:0099") is None
    assert switches.decide(file, kind="TPU v8") == ()
    assert switches.decide(file, kind="TPU v9") == ("flash",)
    right = dataclasses.replace(WRONG, checks={"flash": Found(verdict="right")})
    switches.remember(file, right)  # takes the place of what was found before, in the next process
    assert switches.find(file, versions=WRONG.versions, kind="TPU v9") == right
    assert switches.decide(file, kind="TPU v9") == ("flash",)


def test_a_choice_by_hand_counts_before_what_is_remembered(tmp_path: Path) -> None:
    file = tmp_path / "doctor.json"
    switches.remember(file, WRONG)
    switches.choose_by_hand("on")
    assert switches.decide(file, kind="TPU v9") == ()


@pytest.mark.parametrize("content", ["", "{}", '{"checked": [{"kind": 1}]}', '{"checked": 3}'])
def test_a_damaged_file_remembers_nothing(tmp_path: Path, content: str) -> None:
    file = tmp_path / "doctor.json"
    file.write_text(content, "utf-8")
    assert switches.read(file) == [] and switches.decide(file, kind="cpu") == ()


def draw(*shape: int, seed: int) -> jax.Array:
    return jnp.asarray(np.random.default_rng(seed).standard_normal(shape), jnp.float32)


@pytest.mark.parametrize("window", [None, 20])
def test_attention_in_blocks_is_the_kernels(window: int | None) -> None:
    query, key, value = (draw(2, length, 32, seed=length) for length in (70, 90, 91))
    value = value[:, :90]
    gain = jnp.abs(draw(2, 70, 1, seed=4)) + 0.5
    options: dict[str, Any] = {"heads": 4, "scale": 0.4, "window": window, "first_query": 5, "key_length": 83}
    found = attend_in_blocks(query, key, value, query_gain_BL1=gain, most_logits=8 * 2 * 4 * 90, **options)
    tiles = Tiles(queries=128, keys=128, step=128)
    expected = flash_attention(query, key, value, query_gain_BL1=gain, tiles=tiles, interpret=True, **options)
    np.testing.assert_allclose(found, expected, atol=3e-6)


def test_with_flash_and_ulysses_off_a_split_attention_has_no_kernel_and_is_the_same() -> None:
    axes = AttentionAxes(mesh=build_mesh("dp=2,sp=4"), rows="dp", tokens="sp", interprets=True)
    arrays = [draw(2, 64, 4 * 128, seed=seed) for seed in (1, 2, 3)]

    def run() -> tuple[str, Any]:
        attend_split = jax.jit(lambda *x: attend_merged(*x, heads=4, scale=0.1, axes=axes, is_self=True))
        placed = [jax.device_put(x, NamedSharding(axes.mesh, P("dp", "sp"))) for x in arrays]
        return str(attend_split.trace(*placed).jaxpr), attend_split(*placed)

    with_kernels, expected = run()
    switches.choose_by_hand("no-flash,no-ulysses")
    without, found = run()
    assert "pallas_call" in with_kernels and "pallas_call" not in without
    np.testing.assert_allclose(found, expected, atol=3e-6)


def test_a_kernel_that_is_off_is_not_traced_for_pictures_and_gradients(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attention, "LONG", 64)
    monkeypatch.setattr(attention, "_MANY_KEYS", 64)
    mesh = build_mesh("dp=1", devices=jax.devices()[:1])
    axes = AttentionAxes(mesh=mesh, learns=True, interprets=True)
    query = draw(1, 2, 64, 8, seed=1)

    def trace() -> str:
        run = lambda x: attend(x, x, x, mask=None, is_causal=False, scale=None, has_grouped_heads=False, axes=axes)  # noqa: E731
        return str(jax.make_jaxpr(run)(query))

    assert "pallas_call" in trace() and PictureAxes(mesh=mesh, spec=P(), interprets=True).takes_kernels
    switches.choose_by_hand("off")
    assert "pallas_call" not in trace() and not PictureAxes(mesh=mesh, spec=P(), interprets=True).takes_kernels


def test_a_rotated_attention_without_kernels_is_that_with_them() -> None:
    axes = AttentionAxes(mesh=build_mesh("dp=1", devices=jax.devices()[:1]), interprets=True)
    length, width = 900, 128
    angles = np.repeat(np.random.default_rng(7).uniform(0, 6, (length, width // 2)), 2, axis=1)
    arrays = [draw(1, length, width, seed=seed) for seed in (1, 2, 3)]
    tables = [jnp.asarray(table, jnp.float32) for table in (np.cos(angles), np.sin(angles))]
    weights = [draw(width, seed=seed) for seed in (4, 5)]

    def run() -> Any:
        return jax.jit(lambda *x: attend_rotated(*x, heads=1, eps=1e-6, axes=axes))(*arrays, *tables, *weights)

    expected = run()
    switches.choose_by_hand("off")
    np.testing.assert_allclose(run(), expected, atol=2e-5)

"""A step described from configs alone runs, and computes the same whatever of its layers is computed twice."""

import functools
import itertools
import json
import re
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from pipelines.commands.training_terminal import tell_refusal
from pipelines.errors import LumeshError
from pipelines.models.catalog import Catalog, Model, Shape, load_catalog
from pipelines.models.fingerprints import find_configs
from pipelines.plan.topologies import V6E
from pipelines.runtime.devices import hosts
from pipelines.runtime.devices.mesh import build_mesh
from pipelines.runtime.programs.compiled import Program, Programs, lower
from pipelines.training.engine import pieces
from pipelines.training.engine.adapters import name_in_checkpoint
from pipelines.training.engine.compiled_steps import put_packed_first
from pipelines.training.engine.step import POLICIES, Way, compile_first_that_fits, list_remats, list_ways, name_step
from pipelines.training.planning import TrainingStep, describe_step
from pipelines.training.settings import REMATS_BY_SIZE, TrainingSettings
from tests.pipelines.short import ONE_LEVEL


def fill(described: Any) -> Any:
    """Random numbers of these shapes; counts are zero, and what weighs or varies is positive."""
    rng = np.random.default_rng(0)

    def draw(path: Any, leaf: jax.ShapeDtypeStruct) -> jax.Array:
        if not jnp.issubdtype(leaf.dtype, jnp.floating):
            return jnp.zeros(leaf.shape, leaf.dtype)
        values = 0.2 * rng.standard_normal(leaf.shape)
        is_positive = jax.tree_util.keystr(path[-1:]).strip("[]'") in ("weight", "deviation")
        return jnp.asarray(np.abs(values) if is_positive else values, leaf.dtype)

    return jax.tree_util.tree_map_with_path(draw, described)


IN_PIECES = "layers, in pieces"
# A block of each kind; a UNet of one level.
SHORT: dict[str, dict[str, Any]] = {
    "demo-flux2": {"num_layers": 1, "num_single_layers": 1},
    "tiny": ONE_LEVEL,
}


def shorten(model: Model, folder: Path) -> Model:
    """A model with few layers: this is of what surrounds them."""
    short = SHORT[model.id]
    for config in find_configs(model).rglob("*.json"):
        copy = folder / config.relative_to(find_configs(model))
        copy.parent.mkdir(parents=True, exist_ok=True)
        fields = json.loads(config.read_text("utf-8"))
        copy.write_text(json.dumps({**fields, **short} if short.keys() <= fields.keys() else fields), "utf-8")
    return replace(model, path=folder)


@pytest.mark.parametrize(
    ("model_id", "kind", "remats"),
    [("tiny", "full", ("none", "layers")), ("demo-flux2", "lora", (*POLICIES, IN_PIECES))],
)
def test_loss_and_gradients_are_the_same_whatever_is_computed_twice_or_in_pieces(  # noqa: PLR0917 - fixtures
    local_catalog: Catalog,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    model_id: str,
    kind: str,
    remats: tuple[str, ...],
) -> None:
    model = shorten(local_catalog.get(model_id), tmp_path)

    def describe() -> TrainingStep:
        return describe_step(
            TrainingSettings(model=model_id, **({"lora": True, "rank": 4} if kind == "lora" else {"full": True})),
            model,
            build_mesh("dp=1"),
            shape=Shape(width=64, height=64),
            batch_size=2,
            limit_bytes=None,
        )

    step = describe()
    state, frozen, rows = (fill(described) for described in (step.state, dict(step.frozen), dict(step.rows)))
    rate = jnp.asarray(1e-3)
    found: dict[str, Any] = {}
    for remat in remats:
        if remat == IN_PIECES:
            monkeypatch.setattr(pieces, "pays", lambda _mesh: True)
            step = describe()
            assert sum(".pieces." in name for name in step.frozen) == 5 + 2 + 2 * 2
            wholes = {name_in_checkpoint(name): value for name, value in frozen.items()}
            frozen = pieces.cut_weights(wholes, step.frozen)
        program = step.program("layers" if remat == IN_PIECES else remat)

        def run(*arguments: Any, program: Any = program) -> list[jax.Array]:
            new, metrics = program.function(*arguments)
            return jax.tree.leaves((metrics.loss, metrics.gradient_norm, new.optimizer))  # no weights: soon compiled

        traced = jax.jit(run).lower(state, frozen, rows, rate)
        assert ("checkpoint" in traced.as_text(debug_info=True)) == (remat != "none")
        found[remat] = traced.compile()(state, frozen, rows, rate)
    for remat in remats:
        for value, expected in zip(found[remat], found["none"], strict=True):
            np.testing.assert_allclose(value, expected, rtol=2e-4, atol=1e-6 * max(1.0, np.abs(expected).max()))


WAYS = tuple(Way(remat=remat, accumulate=1) for remat in REMATS_BY_SIZE)


def build_small(way: Way, *, failure: str) -> Program:
    def run(x: jax.Array) -> jax.Array:
        if way.remat != "full":
            raise jax.errors.JaxRuntimeError(failure)
        return x

    return Program(key=("train",), function=run, arguments=(jax.ShapeDtypeStruct((), jnp.float32),))


def test_the_first_way_that_fits_is_compiled() -> None:
    programs, refused = Programs(), list[tuple[Way, Way | None]]()
    note = lambda *ways: refused.append(ways)  # noqa: E731
    build = functools.partial(build_small, failure="RESOURCE_EXHAUSTED: Ran out of memory in memory space hbm")
    assert compile_first_that_fits(programs, build, WAYS, on_refusal=note) == WAYS[-1]
    assert (refused, programs.has("train")) == ([*itertools.pairwise(WAYS)], True)
    with pytest.raises(LumeshError, match="with remat narrow.*Choose remat auto"):
        compile_first_that_fits(Programs(), build, WAYS[:2], on_refusal=note)


def test_hosts_take_the_first_way_that_fits_on_all_of_them(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[str, bool]] = []
    build = functools.partial(build_small, failure="RESOURCE_EXHAUSTED: Ran out of memory in memory space hbm")
    has_room = iter([True, False, True, False, True])  # on the other host

    def collect(topic: str, value: bool) -> list[bool]:  # noqa: FBT001 - as hosts are asked
        asked.append((topic, value))
        return [value, next(has_room)]

    monkeypatch.setattr(hosts, "collect", collect)
    named = lambda way: replace(build(way), key=name_step(Shape(width=64, height=64), way))  # noqa: E731
    ways = (*WAYS, Way(remat="full", accumulate=2))
    assert compile_first_that_fits(Programs(), named, ways, on_refusal=lambda *_ways: None) == ways[-1]
    topics = [f"room for train 64x64 {way.remat} {way.accumulate}" for way in ways]
    assert asked == [*zip(topics, (False, False, False, True, True), strict=True)], "a host without room says so, too"


def test_hosts_of_which_not_all_have_a_pack_try_the_ways_in_the_same_order(monkeypatch: pytest.MonkeyPatch) -> None:
    shape, (first, *others) = Shape(width=64, height=64), WAYS
    packs: Any = SimpleNamespace(has=lambda key: key in (name_step(shape, others[0]), name_step(shape, others[1])))
    assert put_packed_first(WAYS, shape, packs)[:3] == [*others[:2], first]
    monkeypatch.setattr(hosts, "collect", lambda _topic, own: [own, [way == others[1] for way in WAYS]])
    assert put_packed_first(WAYS, shape, packs)[:3] == [others[1], first, others[0]]
    assert put_packed_first(WAYS, shape, None) == [*WAYS]


def test_where_the_compiler_refuses_nothing_the_first_way_with_room_is_taken() -> None:
    """A GPU's compiler refuses nothing. The ways here keep the more between two products the earlier they are tried."""
    side = 512

    def build(way: Way) -> Program:
        def run(x: jax.Array) -> jax.Array:
            parts = REMATS_BY_SIZE[::-1].index(way.remat) + 1  # type: ignore[arg-type]
            return sum((jnp.sort(x @ (x + part)) @ x for part in range(parts)), start=x)

        return Program(key=("train", way), function=run, arguments=(jax.ShapeDtypeStruct((side, side), jnp.float32),))

    measured = Programs()
    measured.compile_all([build(way) for way in WAYS])
    wanted = {way: measured.count_working_bytes("train", way) for way in WAYS}
    assert wanted[WAYS[-1]] < wanted[WAYS[0]]

    programs, refused = Programs(), list[tuple[Way, Way | None]]()
    note = lambda *ways: refused.append(ways)  # noqa: E731
    room_bytes = wanted[WAYS[-1]]
    found = compile_first_that_fits(programs, build, WAYS, on_refusal=note, room_bytes=room_bytes)
    assert wanted[found] <= room_bytes
    assert [way for way, _ in refused] == [way for way in WAYS if wanted[way] > room_bytes]
    assert [way for way in WAYS if programs.has("train", way)] == [found]
    with pytest.raises(LumeshError, match="even if all of its layers"):
        compile_first_that_fits(Programs(), build, WAYS, on_refusal=note, room_bytes=room_bytes - 1)


@pytest.mark.parametrize(
    ("model_id", "remats"), [("sd2-base", ("none", *REMATS_BY_SIZE)), ("sdxl-base", REMATS_BY_SIZE)]
)
def test_all_is_kept_first_where_no_layers_are_a_scan(v6e_8: list[Any], model_id: str, remats: tuple[str, ...]) -> None:
    model = load_catalog().get(model_id)
    settings = TrainingSettings(model=model_id, full=True)
    for mesh, expected in ((build_mesh("dp=8", devices=v6e_8), remats), (build_mesh("dp=2"), ("none",))):
        step = describe_step(settings, model, mesh, shape=model.default_shape, batch_size=8, limit_bytes=None)
        assert list_remats("auto", step.plan) == expected
        assert list_remats("full", step.plan) == ("full",)


@pytest.mark.parametrize(
    ("model_id", "kind", "first", "vmem_kib", "is_exchanged"),
    [
        ("flux2-klein-4b", "full", "attention", "49152", True),
        ("flux2-klein-4b", "lora", "layers", None, False),  # each device has the whole base
        ("wan2.1-14b", "lora", "layers", "65536", True),
        ("wan2.1-1.3b", "full", "layers", "65536", False),
    ],
)
def test_each_familys_step_is_compiled_as_it_was_found_quickest(
    v6e_8: list[Any], model_id: str, kind: str, *, first: str, vmem_kib: str | None, is_exchanged: bool
) -> None:
    model = load_catalog().get(model_id)
    settings = TrainingSettings(model=model.id, full=kind == "full", lora=kind == "lora")
    mesh = build_mesh("dp=8", devices=v6e_8)
    step = describe_step(settings, model, mesh, shape=model.default_shape, batch_size=8, limit_bytes=V6E.hbm_bytes)
    options = step.program("attention").options
    assert list_remats("auto", step.plan)[0] == first
    assert options.get("xla_tpu_scoped_vmem_limit_kib") == vmem_kib
    assert any("sparse_core" in name for name in options) == is_exchanged


def test_another_failure_of_the_compiler_is_raised_at_once() -> None:
    build = functools.partial(build_small, failure="INTERNAL: something else")
    with pytest.raises(jax.errors.JaxRuntimeError, match="something else"):
        compile_first_that_fits(Programs(), build, WAYS, on_refusal=lambda *_ways: None)


def test_a_batch_is_computed_in_more_parts_once_all_is_computed_twice_unless_that_is_refused() -> None:
    plan: Any = SimpleNamespace(mesh=build_mesh("dp=2"), accumulate=1)
    ways = list_ways("full", plan, batch_size=12)
    assert [(way.remat, way.accumulate) for way in ways] == [("full", 1), ("full", 2)]  # of 12, 8 parts of 2 are none
    assert list_ways("full", plan, batch_size=12, is_strict=True) == ways[:1]
    told = tell_refusal({**vars(ways[0]), "next": vars(ways[1])})
    assert "in 2 parts" in told
    assert "--strict" in told


@pytest.mark.tpu_aot
@pytest.mark.parametrize(
    ("model_id", "shape", "own"),
    [("demo-flux2", "1024x1024", set()), ("demo-wan", "256x256x17", set()), ("tiny", "512x512", {"convolve_taps"})],
)
def test_no_kernel_without_a_gradient_is_in_a_step_for_tpu(
    v6e_8: list[Any], local_catalog: Catalog, tmp_path: Path, *, model_id: str, shape: str, own: set[str]
) -> None:
    """A trace would fail at one, so this tells which there are: one for attention each way."""
    model, mesh = local_catalog.get(model_id), build_mesh("dp=8", devices=v6e_8)
    step = describe_step(
        TrainingSettings(model=model_id, lora=True, rank=4),
        shorten(model, tmp_path) if model_id in SHORT else model,
        mesh,
        shape=Shape.parse(shape),
        batch_size=8,
        limit_bytes=V6E.hbm_bytes,
    )
    text = lower(step.program("layers")).as_text()
    names = {re.sub(r"_\d+x\d+x\d+$", "", name) for name in re.findall(r'kernel_name = "(\w+)"', text)}
    assert names == {"flash_attention", "flash_gradient"} | own

"""Programs are compiled once, counted, found again on disk, and remembered with their seconds."""

import dataclasses
import random
import threading
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax._src import compiler, distributed

from pipelines.errors import Cancelled
from pipelines.runtime.programs import compiled as compiled_module
from pipelines.runtime.programs.compiled import CacheIndex, Program, Programs, counter, use_persistent_cache

OWN = 1 + random.random()
"""Part of all programs, so that the cache of an earlier run knows none of them."""


def make_program(factor: float, *key: Any) -> Program:
    """A program nobody else compiles; the factor is part of it."""
    return Program(
        key=key,
        function=lambda x: jnp.cos(x) * (OWN * factor),
        arguments=(jax.ShapeDtypeStruct((3,), jnp.float32),),
    )


@pytest.fixture(autouse=True)
def _use_the_cache(cache_dir: Path) -> None:
    """Compiles into the cache of this test run."""


def test_each_program_is_compiled_once() -> None:
    programs = Programs()
    wanted = [make_program(1.01, "a", 1), make_program(1.02, "a", 2)]
    assert [programs.compile_all(wanted), programs.compile_all(wanted)] == [2, 0]


def test_the_counter_counts_what_xla_builds_and_nothing_for_a_call() -> None:
    programs = Programs()
    built, compiled = counter.built, counter.compiled
    programs.compile_all([make_program(1.11, "one"), make_program(1.12, "two")])
    assert (counter.built - built, counter.compiled - compiled) == (2, 2)
    argument = np.zeros(3, np.float32)
    np.testing.assert_allclose(programs.get("two")(argument), 1.12 * OWN, rtol=1e-6)
    programs.get("two")(argument)
    assert counter.built - built == 2


def test_another_process_would_read_the_program_from_disk() -> None:
    """A second `Programs` shares nothing with the first but the cache."""
    Programs().compile_all([make_program(1.21, "same")])
    compiled, from_cache = counter.compiled, counter.from_cache
    Programs().compile_all([make_program(1.21, "same")])
    assert (counter.compiled - compiled, counter.from_cache - from_cache) == (0, 1)


@pytest.fixture(name="nobody_chose")
def forget_the_users_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    """The tests' own folder is chosen by JAX's variable, as a user's is."""
    monkeypatch.setattr(compiled_module, "_CHOSEN_BY_USER", None)


def test_the_folder_of_jaxs_own_variable_comes_first(cache_dir: Path, tmp_path: Path) -> None:
    before = set(cache_dir.iterdir())
    use_persistent_cache(tmp_path / "of a data directory")
    Programs().compile_all([make_program(1.28, "chosen")])
    assert set(cache_dir.iterdir()) > before
    assert not any((tmp_path / "of a data directory").iterdir())


@pytest.mark.usefixtures("nobody_chose")
def test_another_folder_is_the_one_from_now_on(cache_dir: Path, tmp_path: Path) -> None:
    Programs().compile_all([make_program(1.25, "first folder")])
    try:
        use_persistent_cache(tmp_path / "second")
        Programs().compile_all([make_program(1.26, "second folder")])
    finally:
        use_persistent_cache(cache_dir)
    assert any((tmp_path / "second").iterdir())


@pytest.mark.usefixtures("nobody_chose")
def test_a_damaged_program_is_compiled_once_more_and_then_kept(cache_dir: Path, tmp_path: Path) -> None:
    folder, found = tmp_path / "damaged", list[tuple[int, int]]()
    try:
        for is_damaged in (True, False, False):
            deleted = use_persistent_cache(folder)
            compiled = counter.compiled
            Programs().compile_all([make_program(1.27, "damaged")])
            found.append((deleted, counter.compiled - compiled))
            if is_damaged:
                for entry in folder.glob("*-cache"):
                    entry.write_bytes(entry.read_bytes()[:100])
            use_persistent_cache(cache_dir)
    finally:
        use_persistent_cache(cache_dir)
    assert found == [(0, 1), (1, 1), (0, 0)]


def test_even_the_quickest_program_goes_to_disk(cache_dir: Path) -> None:
    before = set(cache_dir.iterdir())
    Programs().compile_all([make_program(1.31, "quick")])
    assert set(cache_dir.iterdir()) > before


@pytest.mark.usefixtures("nobody_chose")
def test_a_further_host_of_a_slice_keeps_its_own_programs(
    cache_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(distributed.global_state, "process_id", 1)  # for which JAX keeps nothing
    monkeypatch.setattr(compiler, "_cache_write", compiler._cache_write)  # to have it back
    kept: list[bool] = []
    try:
        for is_leader in (True, False):
            monkeypatch.setattr(compiled_module.hosts, "is_leader", lambda is_leader=is_leader: is_leader)
            use_persistent_cache(tmp_path / str(is_leader))
            Programs().compile_all([make_program(1.32, "of a host")])
            kept.append(any((tmp_path / str(is_leader)).glob("*-cache")))
    finally:
        use_persistent_cache(cache_dir)
    assert kept == [False, True]


def test_cleared_programs_are_gone() -> None:
    programs = Programs()
    programs.compile_all([make_program(1.41, "a")])
    programs.clear()
    assert not programs.has("a")


def test_who_gives_up_waiting_finds_the_program_later() -> None:
    programs, wanted = Programs(), [make_program(1.51, "slow")]

    def give_up(_done: int) -> None:
        raise Cancelled

    with pytest.raises(Cancelled):
        programs.compile_all(wanted, on_wait=give_up)
    calls = []

    def give_up_later(done: int) -> None:
        calls.append(done)
        if len(calls) == 2:  # the first call is before tracing, the second while it compiles
            raise Cancelled

    release = threading.Event()
    slow = dataclasses.replace(wanted[0], function=lambda x: jnp.cos(x) * 1.52)
    programs._pool.submit(release.wait)
    for _ in range(3):
        programs._pool.submit(release.wait)
    with pytest.raises(Cancelled):
        programs.compile_all([slow], on_wait=give_up_later)
    release.set()
    built = counter.built
    assert programs.compile_all([slow]) == 1
    assert counter.built - built == 1


def test_a_program_that_does_not_compile_may_be_tried_again() -> None:
    programs = Programs()

    def fail(_x: jax.Array) -> jax.Array:
        raise ValueError("no such program")

    broken = dataclasses.replace(make_program(1.61, "broken"), function=fail)
    for _ in range(2):
        with pytest.raises(ValueError, match="no such program"):
            programs.compile_all([broken])
    assert programs.compile_all([make_program(1.62, "broken")]) == 1


def test_the_index_remembers_what_was_added(tmp_path: Path) -> None:
    index = CacheIndex(tmp_path, context="model on 1 device")
    assert not index.has("shape", "64x64")
    index.add("shape", "64x64")
    index.add("shape", "64x96")
    again = CacheIndex(tmp_path, context="model on 1 device")
    assert again.has("shape", "64x64") and again.has("shape", "64x96")


def test_another_model_mesh_or_shape_is_another_entry(tmp_path: Path) -> None:
    CacheIndex(tmp_path, context="model on 1 device").add("shape", "64x64")
    assert not CacheIndex(tmp_path, context="model on 8 devices").has("shape", "64x64")
    assert not CacheIndex(tmp_path, context="model on 1 device").has("shape", "64x96")


@pytest.mark.parametrize("content", ["", "{torn"])
def test_a_damaged_index_counts_as_empty(tmp_path: Path, content: str) -> None:
    index = CacheIndex(tmp_path, context="model")
    (tmp_path / "lumesh-programs.json").write_text(content)
    assert not index.has("shape")
    index.add("shape")
    assert index.has("shape")


def test_what_is_awaited_comes_back_while_the_rest_is_still_made() -> None:
    release = threading.Event()

    def hold(program: Program, _lowered: Any) -> Any:
        def wait_for_release() -> None:
            assert release.wait(60)

        return wait_for_release if program.key == ("slow",) else None

    programs, wanted = Programs(hold), [make_program(1.71, "quick"), make_program(1.72, "slow")]
    programs.compile_all(wanted, awaited=wanted[:1])
    assert programs.has("quick")
    assert not programs.has("slow")
    assert programs.unfinished == 1
    np.testing.assert_allclose(programs.get("quick")(np.zeros(3, np.float32)), 1.71 * OWN, rtol=1e-6)
    release.set()
    built = counter.built
    assert programs.compile_all(wanted) == 1
    assert counter.built - built <= 1  # it may have ended before this call
    assert programs.has("slow")


def test_what_is_ready_elsewhere_is_not_compiled_and_what_turns_out_not_to_be_is() -> None:
    ready = {("kept",): lambda: "ready", ("damaged",): lambda: None}
    programs, built = Programs(lambda program, _lowered: ready[program.key]), counter.built
    assert programs.compile_all([make_program(1.81, "kept"), make_program(1.82, "damaged")]) == 2
    assert programs.get("kept") == "ready"
    assert counter.built - built == 1

"""Answers of the compiler: kept under what they depend on, refusals too; other failures are errors."""

import errno
import hashlib
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import jax
import jax.numpy as jnp
import pytest

from pipelines.plan.compiler import Compiler, CompilerError, is_about_memory, read_wanted_bytes
from pipelines.plan.topologies import TOPOLOGIES
from pipelines.plan.verdicts import read_versions
from pipelines.runtime.programs.compiled import Program, lower

NUMBERS = jax.ShapeDtypeStruct((8,), jnp.float32)


def make_program(factor: float = 2.0) -> Program:
    return Program(key=("twice",), function=lambda x: factor * x, arguments=(NUMBERS,))


def count_compiles(compiler: Compiler, *programs: Program) -> int:
    counted: list[int] = []
    for program in programs:
        compiler.ask(program, on_compile=lambda: counted.append(1))
    return len(counted)


def test_the_same_program_is_compiled_once(tmp_path: Path) -> None:
    assert count_compiles(Compiler(TOPOLOGIES["cpu-8"], cache_dir=tmp_path), make_program(), make_program()) == 1
    again = Compiler(TOPOLOGIES["cpu-8"], cache_dir=tmp_path)
    assert count_compiles(again, make_program()) == 0
    assert count_compiles(Compiler(TOPOLOGIES["cpu-8"], cache_dir=tmp_path, is_anew=True), make_program()) == 1
    verdict = again.ask(make_program())
    assert verdict.answer.arguments_bytes == 32
    assert "ENTRY" in verdict.text


def test_what_is_known_is_not_compiled(tmp_path: Path) -> None:
    verdict = Compiler(TOPOLOGIES["cpu-8"], cache_dir=tmp_path / "one").ask(make_program())
    knowing = Compiler(TOPOLOGIES["cpu-8"], cache_dir=tmp_path / "other", known={verdict.program: verdict})
    assert count_compiles(knowing, make_program()) == 0
    assert count_compiles(knowing, make_program(3.0)) == 1


def test_another_program_or_topology_is_another_answer(tmp_path: Path) -> None:
    assert count_compiles(Compiler(TOPOLOGIES["cpu-8"], cache_dir=tmp_path), make_program(), make_program(3.0)) == 2
    assert count_compiles(Compiler(TOPOLOGIES["v6e-8"], cache_dir=tmp_path), make_program()) == 1


@pytest.mark.parametrize("spoil", [lambda whole: b"broken", lambda whole: b"", lambda whole: whole[:20] + b"x" * 40])
def test_a_damaged_answer_is_made_again(tmp_path: Path, spoil: Callable[[bytes], bytes]) -> None:
    compiler = Compiler(TOPOLOGIES["cpu-8"], cache_dir=tmp_path)
    compiler.ask(make_program())
    for file in tmp_path.glob("*.gz"):
        file.write_bytes(spoil(file.read_bytes()))
    assert count_compiles(compiler, make_program()) == 1


def test_an_answer_that_cannot_be_kept_is_still_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    compiler = Compiler(TOPOLOGIES["cpu-8"], cache_dir=tmp_path)

    def fill_up(file: Path, content: bytes) -> int:
        with file.open("wb") as stream:
            stream.write(content[:10])
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(Path, "write_bytes", fill_up)
    assert "ENTRY" in compiler.ask(make_program()).text
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("refusal", "gib"),
    [
        ("the total memory required for HLO temporaries (640.00G) exceeds available HBM (31.25G).", 640.0),
        ("Used 98.50G of 31.25G hbm. Total hbm usage >= 98.7G: reserved 262.00M program 85.50G arguments 12.98G", 98.7),
        ("Used 98.50G of 31.25G hbm.", 98.5),
        ("Ran out of memory in memory space vmem. Used 256.00M of 127.94M vmem.", 0.0),
        ("something else", 0.0),
    ],
)
def test_the_bytes_of_a_refusal_are_read(refusal: str, gib: float) -> None:
    assert read_wanted_bytes(refusal) == int(gib * (1 << 30))


@pytest.mark.parametrize(
    "refusal",
    [
        "Ran out of memory on HBM, the total memory required for HLO temporaries (64.00G) exceeds available HBM.",
        "XLA:TPU compile permanent error. Ran out of memory in memory space vmem. Used 256.00M of 127.94M vmem.",
        "Ran out of memory in memory space hbm.\nUsed 98.50G of 31.25G hbm.",
        "Scoped allocation with size 17.00M exceeded scoped vmem limit by 1.00M.",
    ],
)
def test_that_a_chip_has_too_little_memory_is_a_refusal(refusal: str) -> None:
    assert is_about_memory(f"RESOURCE_EXHAUSTED: {refusal}")


@pytest.mark.parametrize(
    "failure",
    [
        "RESOURCE_EXHAUSTED: Out of memory allocating 34359738368 bytes.",  # of this host
        "INTERNAL: RET_CHECK failure (platforms/xla/mosaic/mosaic_passes.cc:12) memory space",
        "INVALID_ARGUMENT: Custom emitter for scoped not found",
    ],
)
def test_other_failures_are_no_refusals(failure: str) -> None:
    assert not is_about_memory(failure)


def test_another_failure_is_an_error_that_is_not_kept(tmp_path: Path) -> None:
    def call_nobody(numbers: jax.Array) -> jax.Array:
        return jax.ffi.ffi_call("lumesh_nobody", NUMBERS)(numbers)

    program = Program(key=("denoise", "8x8"), function=call_nobody, arguments=(NUMBERS,))
    with pytest.raises(CompilerError, match="failed at denoise 8x8: NOT_FOUND") as failure:
        Compiler(TOPOLOGIES["cpu-8"], cache_dir=tmp_path).ask(program)
    assert "not kept" in failure.value.advice
    assert not list(tmp_path.iterdir())


def test_another_failure_that_was_kept_as_a_refusal_is_not_believed(tmp_path: Path) -> None:
    compiler = Compiler(TOPOLOGIES["cpu-8"], cache_dir=tmp_path)
    verdict = compiler.ask(make_program())
    file, failure = tmp_path / f"{verdict.program}.json", "INTERNAL: RET_CHECK failure (mosaic)"
    kept = json.loads(file.read_text())
    file.write_text(json.dumps(kept | {"refusal": failure}))
    assert count_compiles(compiler, make_program()) == 1
    wrong = replace(verdict, answer=replace(verdict.answer, refusal=failure))
    knowing = Compiler(TOPOLOGIES["cpu-8"], cache_dir=tmp_path / "other", known={verdict.program: wrong})
    assert count_compiles(knowing, make_program()) == 1
    file.write_text(json.dumps(kept | {"refusal": "RESOURCE_EXHAUSTED: Ran out of memory on HBM"}))
    assert count_compiles(compiler, make_program()) == 0


def test_flags_of_the_compiler_make_another_answer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a TPU's: this CPU's program is asked as if it were for one."""
    compiler = Compiler(TOPOLOGIES["v6e-8"], cache_dir=tmp_path)
    lowered = lower(make_program())

    def name(**environment: str) -> str:
        with monkeypatch.context() as patch:
            for variable in ("XLA_FLAGS", "LIBTPU_INIT_ARGS"):
                patch.setenv(variable, environment.get(variable, ""))
            return compiler.name(make_program(), lowered)

    plain = name()
    assert name(XLA_FLAGS="--xla_force_host_platform_device_count=3") == plain
    others = {name(LIBTPU_INIT_ARGS=f"--xla_tpu_scoped_vmem_limit_kib={size}") for size in (1, 2)}
    assert len(others | {plain, name(XLA_FLAGS="--xla_disable_hlo_passes=fusion")}) == 4


def test_the_answers_that_come_with_lumesh_are_found_by_the_fingerprint_of_old(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Nothing is added to it where no flags are set."""
    monkeypatch.delenv("XLA_FLAGS")
    program = make_program()
    lowered = lower(program)
    words = (json.dumps(read_versions(), sort_keys=True), "cpu-8", program.describe(lowered))
    expected = hashlib.sha256("\n".join(words).encode()).hexdigest()[:32]
    assert Compiler(TOPOLOGIES["cpu-8"], cache_dir=tmp_path).name(program, lowered) == expected

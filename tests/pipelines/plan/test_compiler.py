"""Answers of the compiler: kept under what they depend on, refusals too."""

import errno
from collections.abc import Callable
from pathlib import Path

import jax
import jax.numpy as jnp
import pytest

from pipelines.plan.compiler import Compiler, read_wanted_bytes
from pipelines.plan.topologies import TOPOLOGIES
from pipelines.runtime.compiled import Program

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
        ("something else", 0.0),
    ],
)
def test_the_bytes_of_a_refusal_are_read(refusal: str, gib: float) -> None:
    assert read_wanted_bytes(refusal) == int(gib * (1 << 30))

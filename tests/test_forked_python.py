"""A forked `python` is one in what it is given, in how it ends, and in who ends it."""

import os
import signal
import subprocess
from pathlib import Path

import pytest

from tests.allocator import ALLOCATOR, LOADS_IT
from tests.forked_python import find_forked_python
from tests.places import ROOT


def run(code: str, *, typed: str = "", folder: Path = ROOT, **environment: str) -> subprocess.CompletedProcess[str]:
    command = [find_forked_python(), "-c", code, "word"]
    return subprocess.run(
        command, input=typed, cwd=folder, env=os.environ | environment, capture_output=True, text=True, check=False
    )


def test_it_has_what_it_was_started_with_and_neither_jax_nor_anything_of_ours(tmp_path: Path) -> None:
    code = (
        "import os, sys; own = {*sys.modules}; print(sys.argv, os.getcwd(), os.environ['LUMESH_TRIED'], input());"
        "print('torch' in own, 'jax' in own, [name for name in own if name.startswith('pipelines')]);"
        "sys.exit('too bad')"
    )
    ran = run(code, typed="typed", folder=tmp_path, LUMESH_TRIED="tried")
    assert ran.stdout.splitlines() == [f"['-c', 'word'] {tmp_path} tried typed", "True False []"]
    assert (ran.returncode, ran.stderr) == (1, "too bad\n")


def test_a_module_is_run_as_a_program() -> None:
    command = [find_forked_python(), "-m", "pipelines", "generate", "--model", "nope", "--prompt", "x"]
    ran = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert (ran.returncode, ran.stdout) == (2, "")
    assert ran.stderr.startswith("lumesh: model: There is no model 'nope'.")


@pytest.mark.parametrize("by", [signal.SIGTERM, signal.SIGKILL])
def test_it_ends_with_the_process_that_stands_for_it(by: signal.Signals) -> None:
    code = "import time; print('here', flush=True); time.sleep(600)"
    process = subprocess.Popen([find_forked_python(), "-c", code], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "here\n"
    process.send_signal(by)
    process.communicate(timeout=60)  # until nobody has its stream any more
    assert process.returncode == -by


def test_what_imports_have_read_cannot_be_told_otherwise() -> None:
    ran = run("", OMP_NUM_THREADS="7")
    assert ran.returncode == 1
    assert "OMP_NUM_THREADS is read by imports" in ran.stderr


def test_it_has_the_allocator_of_the_test_processes_and_asks_for_it_no_longer() -> None:
    ran = run("import os; print(os.environ.get('LD_PRELOAD')); print(open('/proc/self/maps').read())")
    preload, maps = ran.stdout.split("\n", 1)
    assert ALLOCATOR in maps
    assert ALLOCATOR in Path("/proc/self/maps").read_text("utf-8")
    assert not LOADS_IT or preload == "None"

"""The backend is chosen before JAX is imported, and people see nothing of it."""

import os
import re
import subprocess
import sys
from importlib import metadata
from pathlib import Path

import pytest

from pipelines.runtime import platform

ROOT = Path(__file__).resolve().parents[3]

CHOOSE = """
import gc, os
from pipelines.runtime import platform
platform.prepare_backend()
assert gc.get_threshold() == platform.GARBAGE_THRESHOLDS
print(os.environ["JAX_PLATFORMS"])
"""


def run(code: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """A process without this test run's own settings for JAX."""
    inherited = {name: value for name, value in os.environ.items() if name not in ("JAX_PLATFORMS", "XLA_FLAGS")}
    return subprocess.run(
        [sys.executable, "-c", code],
        cwd=ROOT,
        env=inherited | environment,
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )


def test_jax_starts_without_a_word(tmp_path: Path) -> None:
    code = f"""
from pathlib import Path
from pipelines.registry import describe_devices, start_jax
start_jax(Path({str(tmp_path)!r}))
start_jax(Path({str(tmp_path)!r}))
import jax
jax.jit(lambda x: x + 1)(1.0)
print(describe_devices())
"""
    done = run(code, XLA_FLAGS="--xla_force_host_platform_device_count=2", JAX_PLATFORMS="cpu")
    assert (done.stdout, done.stderr) == ("CPU, 2 virtual devices, demo models\n", "")
    assert any(tmp_path.iterdir())


@pytest.mark.skipif(Path("/dev/accel0").exists() or platform.has_gpu(), reason="has an accelerator")
def test_without_an_accelerator_the_cpu_is_chosen() -> None:
    assert run(CHOOSE).stdout == "cpu\n"


def test_beside_a_gpu_jax_is_told_of_it_where_its_cuda_build_is() -> None:
    assert platform.choose_platforms(has_cuda=True) == "cuda,cpu"
    assert platform.choose_platforms(has_cuda=False) == "cpu"


def test_the_cuda_builds_are_looked_for_under_the_names_that_jax_has_for_them() -> None:
    extras = [line for line in metadata.requires("jax") or () if line.startswith("jax-cuda")]
    found = {re.split(r"\W", line.replace("-", "_"), maxsplit=1)[0] for line in extras}
    assert {*platform.CUDA_PLUGINS} == found


def test_a_users_own_choice_is_respected() -> None:
    assert run(CHOOSE, JAX_PLATFORMS="cuda").stdout == "cuda\n"


def test_the_floor_and_the_command_line_import_neither_jax_nor_torch() -> None:
    code = "import sys, pipelines.__main__; print(sorted({'jax', 'torch', 'diffusers'} & set(sys.modules)))"
    assert run(code).stdout == "[]\n"

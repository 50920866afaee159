"""The backend is chosen before JAX is imported, and people see nothing of it."""

import os
import re
import subprocess
import sys
from importlib import metadata
from pathlib import Path

import pytest

from pipelines.runtime.devices import platform
from tests.places import ROOT

CHOOSE = """
import gc, os
from pipelines.runtime.devices import platform
platform.prepare_backend()
assert gc.get_threshold() == platform.GARBAGE_THRESHOLDS
print(os.environ["JAX_PLATFORMS"])
"""


def run(code: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """A process without this test run's own settings for JAX."""
    own = ("JAX_PLATFORMS", "XLA_FLAGS", "JAX_COMPILATION_CACHE_DIR")
    inherited = {name: value for name, value in os.environ.items() if name not in own}
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


SHOW = """
from pipelines.runtime.devices.platform import prepare_compiler
prepare_compiler(cpu_devices=4)
from pipelines.errors import LumeshError
from pipelines.plan.topologies import TOPOLOGIES, find_devices
print(len(find_devices(TOPOLOGIES["cpu-1"])))
try:
    print(len(find_devices(TOPOLOGIES["cpu-8"])))
except LumeshError as error:
    print(error)
"""


def test_for_compiling_there_are_the_devices_that_a_topology_has_or_it_is_refused() -> None:
    told = run(SHOW, XLA_FLAGS="--xla_force_host_platform_device_count=2").stdout
    assert told.startswith("1\ncpu-8 has 8 CPU devices; JAX shows 4 here. ")
    assert run(SHOW, XLA_FLAGS="--xla_force_host_platform_device_count=9").stdout == "1\n8\n"


@pytest.mark.parametrize(
    ("flags", "expected"),
    [
        ("", "--xla_force_host_platform_device_count=8"),
        ("--xla_force_host_platform_device_count=2", "--xla_force_host_platform_device_count=8"),
        ("--xla_force_host_platform_device_count=16 --a=b", "--a=b --xla_force_host_platform_device_count=16"),
        (
            "--xla_force_host_platform_device_count=16 --xla_force_host_platform_device_count=2",  # the last one counts
            "--xla_force_host_platform_device_count=8",
        ),
    ],
)
def test_a_cpu_is_split_into_as_many_devices_as_are_needed(flags: str, expected: str) -> None:
    assert platform.with_devices(flags, 8) == expected


def test_whoever_runs_keeps_the_number_of_devices_that_the_environment_says(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XLA_FLAGS", "--xla_force_host_platform_device_count=2")
    platform.split_cpu(8)
    assert os.environ["XLA_FLAGS"] == "--xla_force_host_platform_device_count=2"


@pytest.mark.parametrize(
    ("of", "xla", "libtpu", "flags"),
    [
        ("tpu", "", "", ""),
        ("tpu", "--xla_force_host_platform_device_count=8", " --xla_tpu_use_enhanced_launch_barrier=true", ""),
        ("tpu", "--xla_dump_to=/tmp --xla_backend_optimization_level=0 --xla_cpu_a=1", "", ""),
        ("tpu", "--xla_disable_hlo_passes=a", "--xla_tpu_b=1", "--xla_disable_hlo_passes=a --xla_tpu_b=1"),
        ("cpu", "--xla_backend_optimization_level=0", "--xla_tpu_b=1", "--xla_backend_optimization_level=0"),
        ("gpu", "--xla_gpu_a=1 --xla_cpu_a=1", "", "--xla_gpu_a=1"),
    ],
)
def test_only_flags_that_change_programs_count(of: str, xla: str, libtpu: str, flags: str) -> None:
    assert platform.list_flags(of, {"XLA_FLAGS": xla, "LIBTPU_INIT_ARGS": libtpu}) == flags


HELD = """
import sys
from pathlib import Path
from pipelines.errors import DeviceError
from pipelines.registry import describe_devices, start_jax
from pipelines.runtime.devices import platform
platform.TPU_DEVICE_FILES = (sys.argv[0] + "-accel0",)
Path(platform.TPU_DEVICE_FILES[0]).touch()
try:
    start_jax(Path("{folder}"), allow_cpu={allow_cpu})
    print(describe_devices())
except DeviceError as error:
    print(error)
"""


@pytest.mark.skipif(bool(platform.list_tpu_files()), reason="has a TPU")
@pytest.mark.parametrize("allow_cpu", [False, True])
def test_a_tpu_that_cannot_be_had_is_an_error_unless_the_cpu_will_do(tmp_path: Path, allow_cpu: bool) -> None:  # noqa: FBT001 - pytest's
    code = HELD.replace("sys.argv[0]", repr(str(tmp_path / "dev"))).format(folder=tmp_path, allow_cpu=allow_cpu)
    done = run(code)
    if allow_cpu:
        assert done.stdout == "CPU, demo models\n"
        assert "JAX cannot use the accelerator of this machine, so the CPU is used: Unable to initialize" in done.stderr
    else:
        assert done.stdout.startswith(
            "JAX cannot use the accelerator of this machine: Unable to initialize backend 'tpu'"
        )
        assert done.stdout.endswith("To use the CPU all the same, start with --allow-cpu.\n")


def test_who_holds_a_tpu_is_named_as_far_as_it_can_be_seen(tmp_path: Path) -> None:
    for process, file in {"12": "/dev/accel3", "7": "/dev/null", str(os.getpid()): "/dev/accel0"}.items():
        (tmp_path / process / "fd").mkdir(parents=True)
        (tmp_path / process / "fd" / "5").symlink_to(file)
        (tmp_path / process / "cmdline").write_bytes(b"python\0app.py\0")
    (tmp_path / "13").mkdir()  # somebody else's, or one that has ended
    assert platform.find_holders(["/dev/accel0"], processes=tmp_path) == ["process 12 (python app.py)"]
    assert platform.find_holders([], processes=tmp_path) == []

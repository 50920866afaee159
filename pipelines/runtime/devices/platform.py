"""Chooses the JAX backend before JAX is imported, and keeps its start quiet.

With `jax[tpu]` installed on a machine without a TPU, JAX asks the cloud's metadata server and prints a page of warnings
before it falls back; people should never see that. Must be imported before jax.
"""

import contextlib
import gc
import importlib.util
import logging
import os
import re
import sys
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path

from pipelines.errors import DeviceError
from pipelines.messages import Message, say

log = logging.getLogger(__name__)

TPU_DEVICE_FILES = ("/dev/accel0", "/dev/vfio/0")
GPU_DEVICE_FILES = "nvidia[0-9]*"  # in /dev; a container may be given any one of them
CUDA_PLUGINS = ("jax_cuda13_plugin", "jax_cuda12_plugin")  # what jax[cuda13] and jax[cuda12] bring
GARBAGE_THRESHOLDS = (20_000, 20, 20)
MAX_REASON = 400  # characters of what libtpu says
MAX_COMMAND = 80
_JAX_ADVICE = "(set JAX_PLATFORMS='' to automatically choose an available backend)"  # which would hide the failure

_DEVICE_COUNT = "--xla_force_host_platform_device_count"
# What changes no program: into how many devices a CPU is split, what is written down on the way, and what JAX itself
# adds beside a TPU (cloud_tpu_init.py).
_HARMLESS = (_DEVICE_COUNT, "--xla_dump_", "--xla_tpu_use_enhanced_launch_barrier=true")
_OF_LLVM = ("--xla_backend_optimization_level", "--xla_llvm_")  # which makes no code for TPUs
_OF_OTHERS = {
    "cpu": ("--xla_gpu_", "--xla_tpu_"),
    "gpu": ("--xla_cpu_", "--xla_tpu_"),
    "tpu": ("--xla_cpu_", "--xla_gpu_", *_OF_LLVM),
}


def prepare_backend() -> None:
    """Sets the environment JAX reads on import; a user's own JAX_PLATFORMS is respected.

    JAX_PLATFORMS is set in any case: unset, JAX would run on the CPU without a word where a TPU cannot be had.
    """
    assert "jax" not in sys.modules, "prepare_backend must run before jax is imported"
    collect_garbage_seldom()
    platforms = "tpu,cpu" if list_tpu_files() else choose_platforms(has_cuda=has_gpu() and has_cuda_build())
    os.environ.setdefault("JAX_PLATFORMS", platforms)
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")  # XLA:CPU's machine-feature warnings on each cache read
    os.environ.setdefault("TPU_MIN_LOG_LEVEL", "3")
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    # torch modules ask for int64 positions; JAX narrows them to int32 by design, once per traced operation.
    warnings.filterwarnings("ignore", message="Explicitly requested dtype .* is not available", category=UserWarning)
    warnings.filterwarnings("ignore", message="Explicitly requested dtype .* requested in astype", category=UserWarning)


def list_tpu_files() -> list[str]:
    """Lists the device files by which this machine shows that it has a TPU."""
    return [file for file in TPU_DEVICE_FILES if Path(file).exists()]


def open_devices(*, allow_cpu: bool = False) -> None:
    """Starts JAX's backend.

    Raises DeviceError if the accelerator that is here cannot be used, for instance because another process holds it;
    with `allow_cpu` that is logged, and the CPU is used.
    """
    import jax

    try:
        jax.devices()
    except RuntimeError as error:
        reason = " ".join(str(error).split()).removesuffix(_JAX_ADVICE).strip()[:MAX_REASON]
        if not allow_cpu:
            raise DeviceError(
                say("JAX cannot use the accelerator of this machine: {reason}", reason=reason), advice=_advise()
            ) from error
        log.warning("JAX cannot use the accelerator of this machine, so the CPU is used: %s", reason)
        jax.config.update("jax_platforms", "cpu")
        jax.devices()


def _advise() -> Message:
    """Returns what may be done about a TPU that cannot be used."""
    if holders := find_holders(list_tpu_files()):
        held = ", ".join(holders)
        return say(
            "It is held by {held}: end that, or wait for it. To use the CPU all the same, start with --allow-cpu.",
            held=held,
        )
    if closed := [file for file in list_tpu_files() if not os.access(file, os.R_OK | os.W_OK)]:
        file = closed[0]
        return say(
            "This user may not open {file}: change its rights. To use the CPU all the same, start with --allow-cpu.",
            file=file,
        )
    return say(
        "See whether another user's process holds it (sudo lsof /dev/accel* /dev/vfio/*), and whether its driver and "
        "JAX's build for it are installed. To use the CPU all the same, start with --allow-cpu."
    )


def find_holders(files: Sequence[str], *, processes: Path = Path("/proc")) -> list[str]:
    """Lists the other processes that have a device file of the same kind open, as `process 12 (its command)`.

    Those of other users are only seen by root.
    """
    kinds = tuple(file.rstrip("0123456789") for file in files)
    found: list[str] = []
    for folder in sorted(processes.glob("[0-9]*"), key=lambda one: int(one.name)):
        if not kinds or folder.name == str(os.getpid()):
            continue
        with contextlib.suppress(OSError):  # it has ended, or is somebody else's
            if any(str(file.readlink()).startswith(kinds) for file in (folder / "fd").iterdir()):
                command = (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace").strip()
                found.append(f"process {folder.name} ({command[:MAX_COMMAND]})")
    return found


def collect_garbage_seldom() -> None:
    """Python looks for cycles among objects thirty times less often than it would.

    Importing and tracing make millions of objects that stay: looking through them took an eighth of the time from a
    process's start to its first picture, at the same peak of memory.
    """
    gc.set_threshold(*GARBAGE_THRESHOLDS)


def has_gpu() -> bool:
    """Whether the system shows an NVIDIA GPU; whether JAX or PyTorch can use it is another matter."""
    return any(Path("/dev").glob(GPU_DEVICE_FILES))


def has_cuda_build() -> bool:
    """Whether JAX can use an NVIDIA GPU: requirements.txt brings no plugin for it."""
    return any(importlib.util.find_spec(name) is not None for name in CUDA_PLUGINS)


def choose_platforms(*, has_cuda: bool) -> str:
    """Value of JAX_PLATFORMS where there is no TPU; unset, JAX would ask libtpu too, which complains at length."""
    return "cuda,cpu" if has_cuda else "cpu"


def prepare_compiler(*, cpu_devices: int) -> None:
    """Prepares a process that only compiles: JAX stays on the CPU, even beside a TPU, and libtpu queries no server.

    The CPU is at least `cpu_devices` devices, whatever the environment says: nothing else runs here. May be called
    after jax is imported, but before it is asked for devices.
    """
    os.environ["JAX_PLATFORMS"] = "cpu"
    os.environ.setdefault("TPU_SKIP_MDS_QUERY", "1")
    os.environ.setdefault("TPU_ACCELERATOR_TYPE", "v6e-8")
    os.environ.setdefault("TPU_WORKER_HOSTNAMES", "localhost")
    os.environ.setdefault("ALLOW_MULTIPLE_LIBTPU_LOAD", "1")  # no chip is touched, so two plans may be made at a time
    os.environ["XLA_FLAGS"] = with_devices(os.environ.get("XLA_FLAGS", ""), cpu_devices)
    if "jax" not in sys.modules:
        prepare_backend()


def split_cpu(devices: int) -> None:
    """Makes the CPU so many devices for JAX, unless the environment says another number."""
    flags = os.environ.get("XLA_FLAGS", "")
    if _DEVICE_COUNT not in flags:
        os.environ["XLA_FLAGS"] = with_devices(flags, devices)


def with_devices(flags: str, devices: int) -> str:
    """Adds to XLA_FLAGS that the CPU is so many devices, or more where the flags already say more."""
    said = [int(count) for count in re.findall(rf"{_DEVICE_COUNT}=(\d+)", flags)]
    others = [flag for flag in flags.split() if not flag.startswith(_DEVICE_COUNT)]
    return " ".join([*others, f"{_DEVICE_COUNT}={max([devices, *said[-1:]])}"])


def list_flags(platform: str, environment: Mapping[str, str] = os.environ) -> str:
    """Flags in the environment that may change programs for `cpu`, `gpu` or `tpu`; usually none."""
    names = ("XLA_FLAGS", "LIBTPU_INIT_ARGS") if platform == "tpu" else ("XLA_FLAGS",)
    flags = " ".join(environment.get(name, "") for name in names).split()
    return " ".join(flag for flag in flags if not flag.startswith((*_HARMLESS, *_OF_OTHERS[platform])))


def extend_environment(**variables: str) -> dict[str, str]:
    """This process's environment with more variables, for a process that it starts."""
    return os.environ | variables


def find_kind() -> str:
    """JAX's name of the devices here, such as `TPU v6 lite`; starts the backend."""
    import jax

    return jax.devices()[0].device_kind


def describe_devices() -> str:
    """`8 TPU chips v6e`, `1 GPU (NVIDIA H100)` or `CPU, demo models`, for people."""
    import jax

    devices = jax.devices()
    kind = devices[0].device_kind
    count = len(devices)
    if devices[0].platform == "tpu":
        return f"{count} TPU {'chip' if count == 1 else 'chips'} {kind.removeprefix('TPU ').replace(' lite', 'e')}"
    if devices[0].platform == "gpu":
        return f"{count} {'GPU' if count == 1 else 'GPUs'} ({kind})"
    return "CPU, demo models" if count == 1 else f"CPU, {count} virtual devices, demo models"

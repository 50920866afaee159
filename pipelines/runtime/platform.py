"""Chooses the JAX backend before JAX is imported, and keeps its start quiet.

With `jax[tpu]` installed on a machine without a TPU, JAX asks the cloud's metadata server and prints a page of warnings
before it falls back; people should never see that. Must be imported before jax.
"""

import os
import sys
import warnings
from pathlib import Path

TPU_DEVICE_FILES = ("/dev/accel0", "/dev/vfio/0")
GPU_DEVICE_FILES = ("/dev/nvidia0",)


def prepare_backend() -> None:
    """Sets the environment JAX reads on import; a user's own JAX_PLATFORMS is respected."""
    assert "jax" not in sys.modules, "prepare_backend must run before jax is imported"
    has_accelerator = any(Path(file).exists() for file in (*TPU_DEVICE_FILES, *GPU_DEVICE_FILES))
    if not has_accelerator:
        os.environ.setdefault("JAX_PLATFORMS", "cpu")
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")  # XLA:CPU's machine-feature warnings on each cache read
    os.environ.setdefault("TPU_MIN_LOG_LEVEL", "3")
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    # torch modules ask for int64 positions; JAX narrows them to int32 by design, once per traced operation.
    warnings.filterwarnings("ignore", message="Explicitly requested dtype .* is not available", category=UserWarning)
    warnings.filterwarnings("ignore", message="Explicitly requested dtype .* requested in astype", category=UserWarning)


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

"""Compiled programs, kept from one run to the next beside pytest's own cache, by what they were compiled from.

JAX keeps what it compiles for this CPU by itself. It cannot read back what it compiled for a TPU that is not here: of
that, tests ask for the optimized HLO, and that text is kept here. A fresh clone has neither. Importable without JAX.
"""

import gzip
import hashlib
import json
import os
import time
import zlib
from collections.abc import Mapping
from importlib import metadata
from pathlib import Path
from typing import Any

from tests.places import ROOT

VARIABLE = "JAX_COMPILATION_CACHE_DIR"  # JAX's own: whoever sets it keeps programs there
FOLDER = ROOT / ".pytest_cache" / "programs"
OLD_S = 14 * 24 * 3600.0
COMPILERS = ("jax", "jaxlib", "libtpu")
FLAGS = ("XLA_FLAGS", "LIBTPU_INIT_ARGS")


def use_kept_programs() -> None:
    """Names the folder to JAX, before it is imported, and to all processes that a run starts."""
    os.environ.setdefault(VARIABLE, str(FOLDER))


def forget_old_programs(folder: Path) -> int:
    """Deletes what was compiled more than two weeks ago, most of it from code that has changed since; says how many."""
    oldest, forgotten = time.time() - OLD_S, 0
    for file in folder.rglob("*"):
        try:
            if file.is_file() and file.stat().st_mtime < oldest:
                file.unlink()
                forgotten += 1
        except FileNotFoundError:  # another run forgets, too
            continue
    return forgotten


def compile_for_tpu(lowered: Any, device: Any, options: Mapping[str, str] | None = None) -> str:
    """Returns the optimized HLO of a lowering for chips like this `device`, compiled with these options.

    What the compiler refuses is raised, and compiled again the next time.
    """
    versions = [f"{name}={metadata.version(name)}" for name in COMPILERS]
    flags = [os.environ.get(name, "") for name in FLAGS]
    asked = json.dumps([versions, flags, device.device_kind, sorted((options or {}).items()), lowered.as_text()])
    file = Path(os.environ[VARIABLE]) / "tpu" / f"{hashlib.sha256(asked.encode()).hexdigest()}.hlo.gz"
    try:
        return gzip.decompress(file.read_bytes()).decode()
    except (OSError, EOFError, zlib.error):  # missing, or cut off when a run was killed
        pass
    from pipelines.runtime.programs.compiled import without_persistent_cache

    with without_persistent_cache():
        text = str(lowered.compile(dict(options or {})).as_text())
    file.parent.mkdir(parents=True, exist_ok=True)
    partial = file.with_suffix(f".{os.getpid()}.partial")
    partial.write_bytes(gzip.compress(text.encode(), 1))
    partial.rename(file)
    return text

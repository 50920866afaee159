"""Programs compiled ahead of time, kept by name, and counted.

Everything the model runs while people work goes through `Programs.get`: after warm-up a call is a dictionary look-up.
Compiled programs also go to JAX's persistent cache, and a small index beside it remembers whose (model, shape) are
there, so that the size picker can say disk or cold before anything is traced.
"""

import contextlib
import hashlib
import json
import logging
import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ALL_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
from jax.experimental.compilation_cache import compilation_cache

from pipelines.runtime.devices import hosts
from pipelines.runtime.devices.memory import count_working_bytes
from pipelines.runtime.programs.cache_repair import INDEX, repair
from pipelines.runtime.programs.compiler_options import choose_options
from pipelines.runtime.programs.scan_buffers import left_unwritten

log = logging.getLogger(__name__)

COMPILE_THREADS = 4
WAIT_S = 0.1

# Kernels for TPU carry the places in the source that they come from. Without them a program stays what it is when lines
# move or Lumesh lies in another folder: caches and packs still know it.
jax.config.update("jax_traceback_in_locations_limit", 0)

_BUILT = "/jax/core/compile/backend_compile_duration"
_FROM_CACHE = "/jax/compilation_cache/cache_hits"


class CompileCounter:
    """Counts, for the whole process, programs built by XLA and programs read from the persistent cache."""

    def __init__(self) -> None:
        self.built = 0
        self.from_cache = 0
        jax.monitoring.register_event_duration_secs_listener(self._on_duration)
        jax.monitoring.register_event_listener(self._on_event)

    @property
    def compiled(self) -> int:
        """Programs that XLA really compiled (a cache hit passes through the same event)."""
        return self.built - self.from_cache

    def _on_duration(self, event: str, duration_secs: float, **_facts: Any) -> None:  # noqa: ARG002 - JAX's names
        if event == _BUILT:
            self.built += 1

    def _on_event(self, event: str, **_facts: Any) -> None:
        if event == _FROM_CACHE:
            self.from_cache += 1


counter = CompileCounter()


# JAX's own variable, JAX_COMPILATION_CACHE_DIR: whoever sets it has one folder for all data directories.
_CHOSEN_BY_USER: str | None = jax.config.jax_compilation_cache_dir  # pyrefly: ignore[missing-attribute] - JAX adds its options


def use_persistent_cache(folder: Path) -> int:
    """Makes JAX keep every compiled program in this folder, however small or quick to compile.

    A folder that the environment names in JAX_COMPILATION_CACHE_DIR is used instead. Deletes damaged entries when this
    process opens the folder, and returns how many.
    """
    index, folder = folder / INDEX, Path(_CHOSEN_BY_USER or folder)
    for needed in (index.parent, folder):
        needed.mkdir(parents=True, exist_ok=True)
    opened = jax.config.jax_compilation_cache_dir  # pyrefly: ignore[missing-attribute] - JAX adds its options
    damaged = repair(folder, index=index) if opened != str(folder) else 0
    jax.config.update("jax_compilation_cache_dir", str(folder))
    compilation_cache.reset_cache()  # JAX stays with the folder that it opened
    jax.config.update("jax_persistent_cache_min_entry_size_bytes", -1)
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
    if not hosts.is_leader():
        _keep_here()
    return damaged


def _keep_here() -> None:
    """Keeps what this host compiles: JAX leaves that to the first one, whose folder is another or has other keys."""
    from jax._src import compilation_cache as kept  # none of this has a public name
    from jax._src import compiler

    def write(*told: Any) -> None:
        key, compile_s, name, backend, executable, host_callbacks = told
        if host_callbacks:  # they belong to this process
            return
        try:
            kept.put_executable_and_time(key, name, executable, backend, int(compile_s))
        except OSError as error:
            log.warning("%s is not kept in the compilation cache: %s", name, error)
        except Exception:
            log.exception("%s is not kept in the compilation cache", name)

    compiler._cache_write = write  # noqa: SLF001 # pyrefly: ignore[bad-assignment] - JAX has no setting for it


@contextlib.contextmanager
def without_persistent_cache() -> Iterator[None]:
    """Turns the persistent cache off: inside, every thread compiles afresh and keeps nothing on disk.

    Meant for executables that are kept elsewhere (what was read from the cache does not serialize whole on a CPU) or
    made for chips that are not here (those cannot be read back).
    """
    try:
        _switch_persistent_cache(is_used=False)
        yield
    finally:
        _switch_persistent_cache(is_used=True)


def _switch_persistent_cache(*, is_used: bool) -> None:
    jax.config.update("jax_enable_compilation_cache", is_used)
    compilation_cache.reset_cache()  # JAX decides once


@dataclass(frozen=True, kw_only=True)
class Program:
    """A function to compile: `arguments` are ShapeDtypeStructs with shardings, `donate` positions of donated ones.

    `vmem_share` gives large matrix products more vector memory; `compact_vmem_bytes` shortens code that would be too
    long, `gathers_whole` keeps weights in one piece, and `joins_little` sums over devices apart (compiler_options.py).
    One that `learns` has scans for a gradient (scan_buffers.py); if it `exchanges` its model's weights, SparseCores do,
    and if it `gathers_apart`, no product holds a part of a gather.
    """

    key: tuple[Any, ...]
    function: Callable[..., Any]
    arguments: tuple[Any, ...]
    donate: tuple[int, ...] = ()
    out_shardings: Any = None
    vmem_share: float = 0.0
    compact_vmem_bytes: int | None = None
    gathers_whole: bool = False
    joins_little: bool = False
    learns: bool = False
    exchanges: bool = False
    gathers_apart: bool = False

    @property
    def options(self) -> dict[str, str]:
        """Compiler options for this program (compiler_options.py)."""
        return choose_options(
            self.arguments,
            vmem_share=self.vmem_share,
            compact_vmem_bytes=self.compact_vmem_bytes,
            gathers_whole=self.gathers_whole,
            joins_little=self.joins_little,
            exchanges=self.exchanges,
            gathers_apart=self.gathers_apart,
        )

    def describe(self, lowered: Any) -> str:
        """Text of everything the compiler's result depends on; programs with different texts are different."""
        return "\n".join((*(f"{name}={value}" for name, value in sorted(self.options.items())), lowered.as_text()))


FindReady = Callable[[Program, Any], Callable[[], Any] | None]
"""Takes a program and its lowering; returns a function that loads it without compiling (None if it cannot), or None."""


class Programs:
    """One loaded model's compiled programs, by key.

    Compilation runs on threads of its own: whoever waits for it may give up, and the program is there when it is wanted
    again. Programs that `find_ready` finds are loaded instead (aot_packs.py).
    """

    def __init__(self, find_ready: FindReady = lambda _program, _lowered: None) -> None:
        self._find_ready = find_ready
        self._compiled: dict[tuple[Any, ...], Any] = {}
        self._compiling: dict[tuple[Any, ...], Future[Any]] = {}
        self._pool = ThreadPoolExecutor(max_workers=COMPILE_THREADS, thread_name_prefix="compile")

    def has(self, *key: Any) -> bool:
        return key in self._compiled

    def get(self, *key: Any) -> Any:
        hosts.note_launch(key)
        return self._compiled[key]

    def count_working_bytes(self, *key: Any) -> int:
        """Bytes of a device that the program takes beside its arguments; 0 if that is not known."""
        return count_working_bytes(self._compiled[key])

    def drop(self, *key: Any) -> None:
        """Forgets a program, and gives its code's memory back."""
        del self._compiled[key]

    @property
    def unfinished(self) -> int:
        """Number of programs being compiled right now, whoever waits for them."""
        return sum(not future.done() for future in list(self._compiling.values()))  # another thread may ask

    def compile_all(
        self,
        programs: Sequence[Program],
        *,
        awaited: Sequence[Program] | None = None,
        on_wait: Callable[[int], None] = lambda _done: None,
    ) -> int:
        """Compiles those that are missing, side by side, and returns how many there were.

        With `awaited` it returns as soon as those are there; the others go on meanwhile. `on_wait(how many are done)`
        is called some ten times a second and may raise to stop waiting. Tracing is one at a time: two traces of one
        torch module would see each other's weights.
        """
        missing = [program for program in programs if not self.has(*program.key)]
        for program in missing:
            on_wait(0)
            if program.key not in self._compiling:
                lowered = lower(program)
                ready = self._find_ready(program, lowered)
                self._compiling[program.key] = self._pool.submit(_make, lowered, ready)
        started = {program.key: self._compiling[program.key] for program in missing}
        keys = started.keys() if awaited is None else {program.key for program in awaited} & started.keys()
        waiting = [started[key] for key in keys]
        while wait(waiting, timeout=WAIT_S, return_when=ALL_COMPLETED).not_done:
            on_wait(sum(future.done() for future in started.values()))
        for key in keys:
            del self._compiling[key]
            self._compiled[key] = started[key].result()
        return len(missing)

    def clear(self) -> None:
        """Drops all; what is still compiling ends in the background and is dropped too."""
        self._pool.shutdown(wait=False, cancel_futures=True)
        self._compiling.clear()
        self._compiled.clear()


def _make(lowered: Any, ready: Callable[[], Any] | None) -> Any:
    loaded = None if ready is None else ready()
    return lowered.compile() if loaded is None else loaded


def lower(program: Program) -> Any:
    """Traces a program; `.compile()` of the result is the slow part."""
    options = {} if program.out_shardings is None else {"out_shardings": program.out_shardings}
    jitted = jax.jit(
        program.function, donate_argnums=program.donate, compiler_options=program.options or None, **options
    )
    with left_unwritten() if program.learns else contextlib.nullcontext():
        return jitted.lower(*program.arguments)


class CacheIndex:
    """Which programs the persistent cache holds, as fingerprints in one JSON file.

    `context` names everything else that programs of the same key depend on.
    """

    def __init__(self, folder: Path, *, context: str) -> None:
        self._file = folder / INDEX
        self._context = context

    def has(self, *key: Any) -> bool:
        return self._fingerprint(key) in self._read()

    def add(self, *key: Any) -> None:
        known = self._read() | {self._fingerprint(key)}
        # A worker and a command line may share the folder.
        partial = self._file.with_name(f"{self._file.name}.{os.getpid()}.partial")
        partial.write_text(json.dumps(sorted(known), indent=1), "utf-8")
        partial.replace(self._file)

    def _fingerprint(self, key: tuple[Any, ...]) -> str:
        return hashlib.sha256(repr((self._context, *map(str, key))).encode()).hexdigest()[:32]

    def _read(self) -> set[str]:
        try:
            return set(json.loads(self._file.read_text("utf-8")))
        except (FileNotFoundError, ValueError):
            return set()

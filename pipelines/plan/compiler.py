"""Compiles programs for chips that are not here, and caches the compiler's answers on disk.

Compiling takes minutes, so each answer is cached under a fingerprint of the program itself (its StableHLO with all
shardings), the topology, the compiler's version and its flags from the environment, if any. The cache holds the raw
answer, HLO text included, so a better estimate of the same program needs no second compilation. A refusal for lack of
a chip's memory is an answer too; any other failure is an error and is not cached. The answers shipped with Lumesh
(answers.py) need no compilation at all.
"""

import gzip
import hashlib
import json
import logging
import os
import re
import time
import zlib
from collections.abc import Callable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import jax

from pipelines.errors import LumeshError
from pipelines.messages import english, say
from pipelines.plan.estimate import estimate
from pipelines.plan.hlo import Module
from pipelines.plan.topologies import Topology
from pipelines.plan.verdicts import Answer, Verdict, read_versions
from pipelines.runtime.devices.platform import list_flags
from pipelines.runtime.programs.aot_packs import name_program
from pipelines.runtime.programs.compiled import Program, lower, without_persistent_cache

log = logging.getLogger(__name__)

_UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}
# Matches a chip's memory: "Ran out of memory on HBM", "in memory space vmem". The host's lack of memory is an error.
_NO_ROOM = re.compile(r"RESOURCE_EXHAUSTED.*(hbm|[vsc]mem|memory space|scoped)", re.IGNORECASE | re.DOTALL)


class CompilerError(LumeshError):
    """The compiler failed for another reason than a chip's memory."""

    title = say("The compiler failed")


class Compiler:
    """Compiles for one topology through a cache folder, except programs whose fingerprints are `known` already.

    With `is_anew` what the folder has is replaced.
    """

    def __init__(
        self, topology: Topology, *, cache_dir: Path, known: Mapping[str, Verdict] | None = None, is_anew: bool = False
    ) -> None:
        self._is_anew = is_anew
        self._topology = topology
        self._cache_dir = cache_dir
        self._known = known or {}
        cache_dir.mkdir(parents=True, exist_ok=True)

    def ask(self, program: Program, *, reuses: bool = False, on_compile: Callable[[], None] = lambda: None) -> Verdict:
        """Returns the verdict on a program, calling `on_compile` before a compilation. Raises CompilerError.

        A program that `reuses` has steps of two kinds, with and without a step cache's help.
        """
        lowered = lower(program)
        key = self.name(program, lowered)
        if key in self._known and _is_answer(self._known[key].answer):
            return self._known[key]
        found = None if self._is_anew else self._find(key)
        if found is None:
            on_compile()
            found = _compile(lowered, name=name_program(program))
            self._keep(key, *found)
        answer, text = found
        chip = self._topology.chip
        found_estimate = estimate(Module(text), chip, reuses=reuses, learns=program.learns) if chip and text else None
        return Verdict(program=key, answer=answer, text=text, estimate=found_estimate)

    def name(self, program: Program, lowered: Any) -> str:
        """Returns the fingerprint of a traced program."""
        parts = [json.dumps(read_versions(), sort_keys=True), self._topology.name, program.describe(lowered)]
        if flags := list_flags("tpu" if self._topology.chip else "cpu"):
            parts.append(flags)
        return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:32]

    def _find(self, key: str) -> tuple[Answer, str] | None:
        try:
            answer = Answer(**json.loads((self._cache_dir / f"{key}.json").read_text("utf-8")))
            text = gzip.decompress((self._cache_dir / f"{key}.hlo.gz").read_bytes()).decode()
        except (OSError, ValueError, TypeError, EOFError, zlib.error):  # missing or damaged: compiled again
            return None
        return (answer, text) if _is_answer(answer) and (text or answer.refusal) else None

    def _keep(self, key: str, answer: Answer, text: str) -> None:
        """Writes the text before the answer, so that every answer has its text; failing to write is only logged."""
        try:
            self._write(f"{key}.hlo.gz", gzip.compress(text.encode(), 6))
            self._write(f"{key}.json", json.dumps(asdict(answer), indent=1).encode())
        except OSError as error:
            log.warning("what the compiler said cannot be kept in %s: %s", self._cache_dir, error)

    def _write(self, name: str, content: bytes) -> None:
        partial = self._cache_dir / f"{name}.{os.getpid()}.partial"
        try:
            partial.write_bytes(content)
            partial.rename(self._cache_dir / name)
        finally:
            partial.unlink(missing_ok=True)


def _is_answer(answer: Answer) -> bool:
    """Rejects cached refusals for other reasons than memory, which earlier versions wrote."""
    return not answer.refusal or is_about_memory(answer.refusal)


def is_about_memory(failure: str) -> bool:
    """Returns whether the compiler failed because a chip has too little memory."""
    return _NO_ROOM.search(failure) is not None


def _compile(lowered: Any, *, name: str) -> tuple[Answer, str]:
    started = time.perf_counter()
    try:
        with without_persistent_cache():
            compiled = lowered.compile()
    except jax.errors.JaxRuntimeError as error:
        refusal = " ".join(str(error).split())[:500]
        if not is_about_memory(refusal):
            raise CompilerError(
                say("The compiler failed at {name}: {error}.", name=name, error=refusal.rstrip(".")),
                advice=say(
                    "This is not kept. Try another shape or mesh, or fewer flags in XLA_FLAGS and LIBTPU_INIT_ARGS."
                ),
            ) from error
        seconds = time.perf_counter() - started
        temp_bytes = read_wanted_bytes(str(error))
        return Answer(
            compile_s=seconds, arguments_bytes=0, temp_bytes=temp_bytes, code_bytes=0, refusal=english(refusal)
        ), ""
    seconds = time.perf_counter() - started
    memory = compiled.memory_analysis()
    answer = Answer(
        compile_s=seconds,
        arguments_bytes=memory.argument_size_in_bytes,
        temp_bytes=memory.temp_size_in_bytes + memory.output_size_in_bytes - memory.alias_size_in_bytes,
        code_bytes=memory.generated_code_size_in_bytes,
    )
    return answer, compiled.as_text()


def read_wanted_bytes(refusal: str) -> int:
    """Reads from a RESOURCE_EXHAUSTED how many bytes of HBM the compiler requested; 0 if it does not say.

    Its "temporaries" include the arguments: a transformer of 18.2 GB that is refused on 17 GB for 19.1 GB of
    temporaries takes 18.2 GB of arguments and 0.9 GB of temporaries on a chip where it fits.
    """
    patterns = (
        r"temporaries \((\d[\d.]*)([KMGT]?)",
        r"Total hbm usage >= (\d[\d.]*)([KMGT]?)",
        r"Used (\d[\d.]*)([KMGT]?) of \S+ hbm",
    )
    for pattern in patterns:
        if found := re.search(pattern, refusal):
            return int(float(found[1]) * _UNITS[found[2]])
    return 0

"""Wildcards for prompts: `wildcards/animals.txt` in the data directory is `__animals__`, one option a line.

Folders group them (`__places/cities__`); lines that start with # are comments. Names come from clients, so they may
contain only letters, digits, - and _, and cannot refer to anything outside the folder.
Not here: what a prompt with wildcards stands for (jobs/many/templates.py).
"""

import contextlib
import logging
import re
import threading
from collections.abc import Iterable, Sequence
from pathlib import Path

from pipelines.errors import LumeshError, RecipeError
from pipelines.files.whole import write_whole
from pipelines.messages import say

MAX_BYTES = 1_000_000
MAX_NAMED = 8
MAX_NAME_CHARS = 80
MAX_LISTS = 1000

_NAME = re.compile(r"[A-Za-z0-9][\w-]*(/[A-Za-z0-9][\w-]*)*", re.ASCII)

log = logging.getLogger(__name__)

_writing = threading.Lock()  # held while the limit is checked and the file is written


class WildcardError(LumeshError):
    """The wildcard cannot be stored."""

    title = say("Please check the wildcard")
    status = 422


def list_wildcards(folder: Path) -> dict[str, int]:
    """Returns the usable wildcards by name, with their number of options; one that cannot be read is only logged."""
    files = sorted(folder.rglob("*.txt")) if folder.is_dir() else []
    names = {file.relative_to(folder).with_suffix("").as_posix(): file for file in files}
    counts: dict[str, int] = {}
    for name, file in names.items():
        try:
            if _NAME.fullmatch(name) and _is_usable(file):
                counts[name] = len(_read_lines(file))
        except OSError as error:
            log.warning("%s cannot be read: %s", file, error.strerror)
    return counts


def read_wildcard(folder: Path, name: str) -> list[str]:
    """Reads the options of a wildcard; raises RecipeError for the prompt when there is none."""
    file = folder / f"{name}.txt"
    if not _NAME.fullmatch(name) or not _is_usable(file):
        known = list(list_wildcards(folder))
        there = ", ".join(known[:MAX_NAMED]) + ("…" if len(known) > MAX_NAMED else "") if known else say("none yet")
        raise RecipeError(
            {"prompt": say("there is no wildcard __{name}__; wildcards here: {there}", name=name[:60], there=there)}
        )
    lines = _read_lines(file)
    if not lines:
        raise RecipeError({"prompt": say("the wildcard __{name}__ is empty", name=name)})
    return lines


def find_wildcard(folder: Path, name: str) -> list[str] | None:
    """Reads a wildcard's lines, comments included; None when there is none of this name."""
    file = folder / f"{name}.txt"
    return _read_text(file).splitlines() if _is_name(name) and _is_usable(file) else None


def save_wildcard(folder: Path, name: str, lines: Sequence[str]) -> int:
    """Writes a wildcard atomically; returns its number of options; raises WildcardError."""
    if not _is_name(name):
        raise WildcardError(
            say("{name} cannot name a wildcard.", name=repr(name[:MAX_NAME_CHARS])),
            advice=say("Use up to {count} letters, digits, - and _, with / between folders.", count=MAX_NAME_CHARS),
        )
    for line in lines:
        if not line.isprintable():
            raise WildcardError(
                say("{line} is not one line of plain text.", line=repr(line[:60])),
                advice=say("Give each option by itself."),
            )
    content = "".join(f"{line.strip()}\n" for line in lines).encode("utf-8", "replace")
    if len(content) > MAX_BYTES:
        raise WildcardError(
            say(
                "It has {size} MB; at most {limit} are kept.",
                size=f"{len(content) / 1e6:.1f}",
                limit=MAX_BYTES // 1_000_000,
            )
        )
    file = folder / f"{name}.txt"
    with _writing:
        if not file.exists() and len(list_wildcards(folder)) >= MAX_LISTS:
            raise WildcardError(
                say("There are {count} wildcards already.", count=MAX_LISTS),
                advice=say("Delete one, or make one longer."),
            )
        write_whole(file, content)
    return count_options(lines)


def count_options(lines: Iterable[str]) -> int:
    """Counts the lines that are neither empty nor a comment."""
    return len(_take_options(lines))


def delete_wildcard(folder: Path, name: str) -> bool:
    """Deletes a wildcard, and folders that become empty; returns False when there is none."""
    file = folder / f"{name}.txt"
    if not _is_name(name) or not _is_usable(file):
        return False
    with _writing:
        file.unlink(missing_ok=True)
        for parent in list(file.relative_to(folder).parents)[:-1]:
            with contextlib.suppress(OSError):  # the folder is not empty
                (folder / parent).rmdir()
    return True


def _is_name(name: str) -> bool:
    return len(name) <= MAX_NAME_CHARS and _NAME.fullmatch(name) is not None


def _is_usable(file: Path) -> bool:
    return file.is_file() and file.stat().st_size <= MAX_BYTES


def _read_lines(file: Path) -> list[str]:
    return _take_options(_read_text(file).splitlines())


def _read_text(file: Path) -> str:
    return file.read_text("utf-8", errors="replace")


def _take_options(lines: Iterable[str]) -> list[str]:
    stripped = (line.strip() for line in lines)
    return [line for line in stripped if line and not line.startswith("#")]

"""A training's result in a data directory, where the studio lists it: whole or not at all, and never over another's.

A result replaces what the same training has put there before, also half of it. What lies there and is of another
training, or of a person, stays: that is found before anything is learnt. Importable without jax.
Not here: what a result is (export.py), the studio's own trainings, which take free names (studio/worker).
"""

import contextlib
import hashlib
import json
import os
import shutil
from collections.abc import Iterable, Iterator
from pathlib import Path

from pipelines.errors import LumeshError, RecipeError
from pipelines.files.whole import put_whole, write_whole
from pipelines.loras.files import SUFFIX, find_namesake
from pipelines.messages import english
from pipelines.training.place import LOCK, MARK

CARD = "README.md"
"""The file of a model card, as the hub shows it."""
RECORD = "installed.json"
OF_TRAINING = (
    "state*",
    "samples",
    "prior",
    "tensorboard",
    "*.jsonl",
    "settings.json",
    RECORD,
    LOCK,
    f"{MARK}*",
    ".*.part*",
)
"""What lies in a training's folder and is no part of its result."""
_END_BYTES = 1 << 16
"""Bytes that are compared at a file's beginning and end: weights that have learnt differ everywhere."""


def find_target(result: Path, data_dir: Path, name: str) -> Path:
    """Returns where a result belongs: a LoRA file in loras/, a model's folder in models/ under this name."""
    return data_dir / "loras" / result.name if result.suffix == SUFFIX else data_dir / "models" / name


def check_targets(results: Iterable[Path], output: Path, data_dir: Path, name: str) -> None:
    """Raises RecipeError where what the training in `output` will give would replace something that is not its own."""
    for result in results:
        target = find_target(result, data_dir, name)
        if (there := _find_other(target, result, output)) is not None:
            taken = f"{there} is there already, and is not of this training"
            raise RecipeError({"name": english(f"{taken}; choose another --name, or move it away")})


def install(result: Path, output: Path, data_dir: Path, name: str) -> Path:
    """Copies a result of the training in `output` to where the studio lists it, and returns that place.

    Raises LumeshError where something has come there while it learnt.
    """
    target = find_target(result, data_dir, name)
    if (there := _find_other(target, result, output)) is not None:
        raise LumeshError(
            english(f"{there} has come while this was trained, and stays."),
            advice=english(f"What was learnt is at {result}: move one of them, and run the same command again."),
        )
    if result.is_file():
        _record(output, result)
        put_whole(target, lambda part: shutil.copyfile(result, part))
        return target
    part, old = (target.with_name(f".{target.name}.{kind}") for kind in ("part", "old"))
    shutil.rmtree(part, ignore_errors=True)
    try:
        shutil.copytree(result, part, ignore=shutil.ignore_patterns(*OF_TRAINING), copy_function=_take)
    except OSError as error:
        shutil.rmtree(part, ignore_errors=True)
        raise LumeshError(
            english(f"What was learnt is at {result}, but could not be copied to {target}: {error}"),
            advice=english("Make room, and run the same command again."),
        ) from error
    _record(output, part)
    shutil.rmtree(old, ignore_errors=True)
    if os.path.lexists(target):
        target.rename(old)
    part.rename(target)
    shutil.rmtree(old, ignore_errors=True)
    return target


def _take(source: str, target: str) -> None:
    """Copies a file; weights, which nothing here ever changes in their place, are there twice by one copy if they can.

    A disk has room for a large model once more often than for two of them.
    """
    if source.endswith(SUFFIX):
        with contextlib.suppress(OSError):  # on another disk, or one that knows no second names
            os.link(source, target)
            return
    shutil.copyfile(source, target)


def _find_other(target: Path, result: Path, output: Path) -> Path | None:
    """Returns what of another training, or of a person, has the target's place or its LoRA's name."""
    if os.path.lexists(target):
        return None if _is_own(target, result, output) else target
    namesake = find_namesake(target.stem, target.parent) if target.suffix == SUFFIX else None
    return None if namesake is None else target.with_name(namesake)


def _is_own(target: Path, result: Path, output: Path) -> bool:
    return target.exists() and (_describe(target) in _read_record(output) or _is_part_of(target, result))


def _is_part_of(target: Path, result: Path) -> bool:
    """Tells whether everything of a file or folder lies in the result as well, as after a copy that was cut off."""
    return all((result / name).is_file() and _begins(result / name, file) for name, file in _list_files(target))


def _begins(whole: Path, file: Path) -> bool:
    size = file.stat().st_size
    return size <= whole.stat().st_size and _read_ends(whole, size) == _read_ends(file, size)


def _describe(place: Path) -> str:
    """Returns a hash of the names, sizes and ends of a file or of a folder's."""
    found = hashlib.sha256()
    for name, file in _list_files(place):
        size = file.stat().st_size
        found.update(f"{name} {size};".encode() + _read_ends(file, size))
    return found.hexdigest()


def _list_files(place: Path) -> Iterator[tuple[str, Path]]:
    """Yields each file with its name in the folder, or "" for one that is no folder."""
    if not place.is_dir():
        yield "", place
        return
    for file in sorted(place.rglob("*")):
        if file.is_file():
            yield file.relative_to(place).as_posix(), file


def _read_ends(file: Path, size: int) -> bytes:
    """Reads the beginning of a file, and what is before `size`, in bytes."""
    with file.open("rb") as stream:
        beginning = stream.read(min(_END_BYTES, size))
        stream.seek(max(size - _END_BYTES, 0))
        return beginning + stream.read(min(_END_BYTES, size))


def _record(output: Path, place: Path) -> None:
    """Notes what this training is about to install, before it does: a kill may come at any time."""
    record = [*_read_record(output), _describe(place)]
    write_whole(output / RECORD, (json.dumps(list(dict.fromkeys(record))) + "\n").encode())


def _read_record(output: Path) -> list[str]:
    try:
        return json.loads((output / RECORD).read_text("utf-8"))
    except (FileNotFoundError, ValueError):  # a damaged one knows of nothing
        return []

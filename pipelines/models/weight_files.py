"""A component's weight files, by their names and headers: which there are, and whether they are whole.

Reads the names that diffusers and transformers write: one safetensors file, or several with an index, each with or
without a variant such as `fp16`. A file whose end is missing is found by its header, without reading weights.
Importable without jax, so that the catalogue can tell a folder whose download is still under way.
Not here: reading tensors (runtime/weights/stored.py), downloading (runtime/weights/hub.py).
"""

import functools
import json
import logging
import re
import stat
from pathlib import Path
from typing import Any

from pipelines.errors import ModelError
from pipelines.messages import say
from pipelines.models.gguf_files import MAGIC, read_gguf_header

STEMS = ("diffusion_pytorch_model", "model")
SUFFIX = ".safetensors"
GGUF = ".gguf"
SUFFIXES = (SUFFIX, GGUF)
"""Endings of single files that can be models."""
MAX_HEADER_BYTES = 100_000_000
# Endings of files that people take for weights, and that are none that can be read.
OTHER_WEIGHTS = (".ckpt", ".pt", ".pth", ".bin", ".sft")
UNFINISHED = (".part", ".partial", ".incomplete", ".crdownload", ".aria2", ".download", ".tmp")
ARCHIVES = (".zip", ".tar", ".gz", ".tgz", ".7z", ".rar")
PREFERRED = ("bf16", "fp16")  # of several variants without a plain one; others come after these, by name

_STEM = rf"(?:{'|'.join(STEMS)})"
_VARIANTS = (re.compile(rf"{_STEM}\.(\w+)\.safetensors"), re.compile(rf"{_STEM}\.safetensors\.index\.(\w+)\.json"))

log = logging.getLogger(__name__)


def find_weight_files(folder: Path, *, variant: str = "") -> list[Path]:
    """Lists one component's safetensors files: those of the variant, else the plain ones, else the only ones there.

    That there are none of the variant is logged. Raises ModelError when there are no files at all, or when one of
    several is missing.
    """
    asked = f".{variant}" if variant else ""
    for suffix in dict.fromkeys((asked, "", *_find_variants(folder))):
        for stem in STEMS:
            single = folder / f"{stem}{suffix}{SUFFIX}"
            index = folder / f"{stem}{SUFFIX}.index{suffix}.json"
            if not single.exists() and not index.exists():
                continue
            if suffix != asked:
                _note_absence(folder, variant, suffix.lstrip("."))
            return [single] if single.exists() else _list_files_of(index)
    others = sorted(file.name for file in folder.glob(f"*{SUFFIX}"))
    if others:
        raise ModelError(
            say(
                "{folder} holds {file}, but no weights under a name that diffusers gives them.",
                folder=folder,
                file=others[0],
            ),
            advice=say(
                "Copy the component's index file (*.safetensors.index.json) too, or name a single file "
                "diffusion_pytorch_model.safetensors, or model.safetensors for a text encoder."
            ),
        )
    raise ModelError(
        say("{folder} holds no safetensors weights.", folder=folder),
        advice=say("Save the model with save_pretrained(..., safe_serialization=True), or download it again."),
    )


def _find_variants(folder: Path) -> list[str]:
    """Lists the variants in the names of the files here, each as `.fp16`, the preferred ones first."""
    matches = (pattern.fullmatch(file.name) for file in folder.glob(f"*{SUFFIX}*") for pattern in _VARIANTS)
    names = {match[1] for match in matches if match is not None}
    ordered = (*(name for name in PREFERRED if name in names), *sorted(names.difference(PREFERRED)))
    if len(ordered) > 1:
        _note_choice(folder, ordered)
    return [f".{name}" for name in ordered]


@functools.cache
def _note_choice(folder: Path, names: tuple[str, ...]) -> None:
    """Logs once which of several variants is taken where a model names none of them and there is no plain file."""
    log.info("%s holds weights as %s; without a plain file, %s is used", folder, ", ".join(names), names[0])


@functools.cache
def _note_absence(folder: Path, asked: str, taken: str) -> None:
    """Logs once that a component has no weights of the variant that was asked for, and which are taken."""
    if asked:
        other = f"those of {taken} are" if taken else "the plain ones are"
        log.warning("%s has no weights of the variant %s; %s used", folder, asked, other)


def _list_files_of(index: Path) -> list[Path]:
    try:
        names = json.loads(index.read_text("utf-8"))["weight_map"].values()
        files = [index.parent / name for name in sorted(set(names))]
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise ModelError(
            say("{index} is not a readable index of weights: {error}.", index=index, error=error),
            advice=say("Delete it and download it again; an interrupted copy is the usual cause."),
        ) from error
    for file in files:
        if file.parent != index.parent or not file.exists():
            raise ModelError(
                say("{index} names {file}, which is not there.", index=index, file=file.name),
                advice=say("Its download or copy is incomplete: start it again."),
            )
    return files


def read_header(file: Path) -> tuple[dict[str, Any], int]:
    """Returns a safetensors or GGUF file's header, as a safetensors file has it, and the position of its data.

    Raises ModelError for a file that is neither or ends before its header says, and OSError.
    """
    status = file.stat()
    if not stat.S_ISREG(status.st_mode):  # opening a pipe would wait for ever
        raise truncated(file)
    size = status.st_size
    with file.open("rb") as stream:
        start = stream.read(8)
        if start.startswith(MAGIC):
            return read_gguf_header(file)
        length = int.from_bytes(start, "little")
        if size < 8 or length > min(size - 8, MAX_HEADER_BYTES):
            raise truncated(file)
        try:
            header = json.loads(stream.read(length))
            end = max((entry["data_offsets"][1] for name, entry in header.items() if name != "__metadata__"), default=0)
            is_whole = 8 + length + end <= size
        except (ValueError, RecursionError, TypeError, KeyError, IndexError, AttributeError) as error:
            raise truncated(file) from error
    if not is_whole:
        raise truncated(file)
    return header, 8 + length


def check_weights(folder: Path, *, variant: str = "") -> None:
    """Raises ModelError unless all weight files of a component are here and none is cut off."""
    for file in find_weight_files(folder, variant=variant):
        try:
            status = file.stat()
            problem = _find_problem(file, status.st_mtime_ns, status.st_size)
        except OSError as error:
            raise ModelError(
                say("{file} cannot be read: {error}.", file=file, error=error.strerror),
                advice=say("Check who may read it, then look again."),
            ) from error
        if problem is not None:
            raise problem


@functools.lru_cache(maxsize=4096)
def _find_problem(file: Path, _mtime_ns: int, _size: int) -> ModelError | None:
    try:
        read_header(file)
    except ModelError as error:
        return error
    return None


def truncated(file: Path) -> ModelError:
    """Returns the error for a file of weights that ends too early, or is none."""
    return ModelError(
        say("{file} is truncated or not a safetensors file.", file=file),
        advice=say("Delete it and download it again; an interrupted copy is the usual cause."),
    )

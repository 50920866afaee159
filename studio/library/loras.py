"""LoRA files that an admin adds or deletes; they are in `loras/` of the data directory under their own names.

An upload is written to a temporary file in the same folder, checked like files that people put there by hand, and only
then renamed. An existing name is never overwritten.
Not here: which LoRAs there are and what they fit (pipelines/loras.py), how bytes arrive (api/routes/loras.py).
"""

import os
import re
import secrets
import time
from collections.abc import Generator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

from pipelines.errors import LumeshError
from pipelines.loras import SUFFIX, LoraFile, find_loras, read_lora
from pipelines.messages import say

MAX_BYTES = 4_000_000_000  # the largest known ones, for Wan 14B at rank 256, with a margin
MAX_NAME_CHARS = 120
TORN_S = 24 * 3600.0  # after this long an upload is certainly dead
_NAME = re.compile(r"\w[\w .,+()&'\[\]-]*")


class LoraError(LumeshError):
    """The file cannot become a LoRA here."""

    title = say("This LoRA cannot be used")
    status = 422


class LoraTooLargeError(LoraError):
    """The file has more bytes than any LoRA."""

    title = say("This LoRA is too large")
    status = 413

    def __init__(self) -> None:
        super().__init__(
            say("It has more than {size} GB.", size=f"{MAX_BYTES / 1e9:g}"),
            advice=say("Put it into the loras folder by hand."),
        )


class LoraNameTakenError(LoraError):
    """A file of this name exists already."""

    title = say("There is such a LoRA already")
    status = 409


def read_name(name: str) -> str:
    """Returns the name that recipes will use; raises LoraError for one that is not a plain file name."""
    ref = name.strip().removesuffix(SUFFIX).strip()
    if len(ref) > MAX_NAME_CHARS or not _NAME.fullmatch(ref):
        raise LoraError(
            say("{name} cannot name a LoRA.", name=repr(name[:MAX_NAME_CHARS])),
            advice=say(
                "Use up to {count} letters, digits, spaces, - and _; it begins with a letter or digit.",
                count=MAX_NAME_CHARS,
            ),
        )
    return ref


@contextmanager
def arrive(folder: Path) -> Generator[BinaryIO]:
    """Opens a temporary file, deleted at the end unless `keep` renamed it; raises LoraError when the disk is full."""
    folder.mkdir(parents=True, exist_ok=True)
    _forget_torn(folder, before_s=time.time() - TORN_S)
    part = folder / f".{secrets.token_hex(8)}.part"
    try:
        with part.open("xb") as file:
            yield file
    except OSError as error:
        raise LoraError(
            say("It cannot be written: {error}.", error=error.strerror),
            advice=say("See how much room the server's disk has."),
        ) from error
    finally:
        part.unlink(missing_ok=True)


def keep(file: BinaryIO, folder: Path, ref: str) -> LoraFile:
    """Renames an uploaded file if it is a LoRA for a family here; raises LoraError otherwise."""
    file.flush()
    part = Path(file.name)
    if read_lora(part) is None:
        raise LoraError(
            say("It is no LoRA of a model family here."),
            advice=say(
                "A LoRA is a {suffix} file for SDXL, FLUX.2 or Wan; checkpoints and other models' LoRAs are not.",
                suffix=SUFFIX,
            ),
        )
    os.fsync(file.fileno())
    target = folder / f"{ref}{SUFFIX}"
    try:
        target.touch(exist_ok=False)  # reserves the name atomically: only one of two simultaneous uploads succeeds
    except FileExistsError as error:
        raise LoraNameTakenError(
            say("{name} is in the loras folder.", name=repr(ref)),
            advice=say("Delete that one first, or give this one another name."),
        ) from error
    part.replace(target)
    lora = read_lora(target)
    assert lora is not None, "the same bytes"
    return lora


def delete(folder: Path, ref: str) -> bool:
    """Deletes a LoRA; returns False when there is none of this name."""
    lora = next((one for one in find_loras(folder) if one.ref == ref), None)
    if lora is not None:
        lora.path.unlink(missing_ok=True)
    return lora is not None


def _forget_torn(folder: Path, *, before_s: float) -> None:
    """Deletes partial uploads of a server that was killed."""
    for part in folder.glob(".*.part"):
        with suppress(OSError):  # another request deleted it first
            if part.stat().st_mtime < before_s:
                part.unlink()

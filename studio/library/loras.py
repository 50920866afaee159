"""LoRA files that an admin brings along or deletes; they lie in `loras/` of the data directory under their own names.

A file arrives beside the others as something that nobody takes for a LoRA, is looked at like those that people put
there by hand, and only then gets its name. A name that is taken stays as it is.
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

MAX_BYTES = 4_000_000_000  # of the largest ones known, for Wan 14B at rank 256, with room above
MAX_NAME_CHARS = 120
TORN_S = 24 * 3600.0  # nobody is still sending it
_NAME = re.compile(r"\w[\w .,+()&'\[\]-]*")


class LoraError(LumeshError):
    """A file that cannot become a LoRA here."""

    title = "This LoRA cannot be used"
    status = 422


class LoraTooLargeError(LoraError):
    """More bytes than a LoRA has."""

    title = "This LoRA is too large"
    status = 413

    def __init__(self) -> None:
        super().__init__(f"It has more than {MAX_BYTES / 1e9:g} GB.", advice="Put it into the loras folder by hand.")


class LoraNameTakenError(LoraError):
    """There is a file of this name already."""

    title = "There is such a LoRA already"
    status = 409


def read_name(name: str) -> str:
    """A file's name as recipes will call it; raises LoraError for one that could mean anything but a file here."""
    ref = name.strip().removesuffix(SUFFIX).strip()
    if len(ref) > MAX_NAME_CHARS or not _NAME.fullmatch(ref):
        raise LoraError(
            f"{name[:MAX_NAME_CHARS]!r} cannot name a LoRA.",
            advice=f"Use up to {MAX_NAME_CHARS} letters, digits, spaces, - and _; it begins with a letter or digit.",
        )
    return ref


@contextmanager
def arrive(folder: Path) -> Generator[BinaryIO]:
    """A file for bytes on their way, gone at the end unless `keep` named it; raises LoraError when the disk is full."""
    folder.mkdir(parents=True, exist_ok=True)
    _forget_torn(folder, before_s=time.time() - TORN_S)
    part = folder / f".{secrets.token_hex(8)}.part"
    try:
        with part.open("xb") as file:
            yield file
    except OSError as error:
        raise LoraError(
            f"It cannot be written: {error.strerror}.", advice="See how much room the server's disk has."
        ) from error
    finally:
        part.unlink(missing_ok=True)


def keep(file: BinaryIO, folder: Path, ref: str) -> LoraFile:
    """Names what has arrived, if it is a LoRA of a family here; raises LoraError."""
    file.flush()
    part = Path(file.name)
    if read_lora(part) is None:
        raise LoraError(
            "It is no LoRA of a model family here.",
            advice=f"A LoRA is a {SUFFIX} file for SDXL, FLUX.2 or Wan; checkpoints and other models' LoRAs are not.",
        )
    os.fsync(file.fileno())
    target = folder / f"{ref}{SUFFIX}"
    try:
        target.touch(exist_ok=False)  # takes the name, or finds it taken: of two who come at once, one
    except FileExistsError as error:
        raise LoraNameTakenError(
            f"{ref!r} is in the loras folder.", advice="Delete that one first, or give this one another name."
        ) from error
    part.replace(target)
    lora = read_lora(target)
    assert lora is not None, "the same bytes"
    return lora


def delete(folder: Path, ref: str) -> bool:
    """Deletes a LoRA; False when there is none of this name."""
    lora = next((one for one in find_loras(folder) if one.ref == ref), None)
    if lora is not None:
        lora.path.unlink(missing_ok=True)
    return lora is not None


def _forget_torn(folder: Path, *, before_s: float) -> None:
    """What a server was still taking in when it was killed."""
    for part in folder.glob(".*.part"):
        with suppress(OSError):  # another request was quicker
            if part.stat().st_mtime < before_s:
                part.unlink()

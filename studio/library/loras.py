"""LoRA files that an admin adds or deletes; they are in `loras/` of the data directory under their own names.

An upload is written to a temporary file in the same folder, checked like files that people put there by hand, and only
then renamed. An existing name is never overwritten.
Not here: which LoRAs there are and what they fit (pipelines/loras/files.py), how bytes arrive (api/routes/loras.py).
"""

import os
import re
from pathlib import Path
from typing import BinaryIO

from pipelines.errors import LumeshError
from pipelines.families import name_families
from pipelines.loras.files import (
    SUFFIX,
    LoraFile,
    find_namesake,
    inspect_lora,
    list_lora_files,
    read_lora,
)
from pipelines.loras.settings import find_adapter_config
from pipelines.messages import say

MAX_BYTES = 4_000_000_000  # the largest known ones, for Wan 14B at rank 256, with a margin
MAX_NAME_CHARS = 120
MAX_NAME_BYTES = 200  # file systems take 255, with the suffix
# What a file name should not have anywhere: folders, drives, and what systems and command lines read as something else.
_UNSAFE = re.compile(r'[/\\:*?"<>|]')


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


def clean_name(name: str) -> str:
    """Returns the name that recipes will use: a plain file name, whatever an upload is called; never a path.

    Raises LoraError for a name of which nothing is left.
    """
    ref = name.strip()
    ref = ref[: -len(SUFFIX) if ref.lower().endswith(SUFFIX) else None]
    ref = "".join(letter if letter.isprintable() else " " for letter in _UNSAFE.sub("_", ref))
    ref = " ".join(ref.split()).lstrip("._-~ ")[:MAX_NAME_CHARS]
    while len(ref.encode()) > MAX_NAME_BYTES:
        ref = ref[:-1]
    ref = ref.rstrip(". ")
    if not ref:
        raise LoraError(
            say("{name} cannot name a LoRA.", name=repr(name[:MAX_NAME_CHARS])),
            advice=say("Give the file a name with a letter or a digit."),
        )
    return ref


def keep(file: BinaryIO, folder: Path, ref: str) -> LoraFile:
    """Renames an uploaded file if it is a LoRA for a family here; raises LoraError otherwise."""
    file.flush()
    part = Path(file.name)
    problem = inspect_lora(part).problem
    if problem is not None:
        families = name_families()
        raise LoraError(
            say("This file cannot be used as a LoRA: {problem}.", problem=problem),
            advice=say(
                "A LoRA is a {suffix} file for {families}; checkpoints and other models' LoRAs are not.",
                suffix=SUFFIX,
                families=families,
            ),
        )
    os.fsync(file.fileno())
    target = folder / f"{ref}{SUFFIX}"
    taken = find_namesake(ref, folder)
    try:
        if taken is not None:
            raise FileExistsError
        target.touch(exist_ok=False)  # reserves the name atomically: only one of two simultaneous uploads succeeds
    except FileExistsError as error:
        raise LoraNameTakenError(
            say("{name} is in the loras folder.", name=repr(taken or ref)),
            advice=say("Delete that one first, or give this one another name."),
        ) from error
    part.replace(target)
    lora = read_lora(target)
    assert lora is not None, "the same bytes"
    return lora


def delete(folder: Path, ref: str) -> bool:
    """Deletes a file of the loras folder, also one of no use; returns False when there is none of this name.

    peft's description goes with it, or it would be taken for that of the next file there.
    """
    lora = next((one for one in list_lora_files(folder) if one.ref == ref), None)
    if lora is None or lora.path.is_dir():
        return False
    config = find_adapter_config(lora.path)
    lora.path.unlink(missing_ok=True)
    if config is not None:
        config.unlink(missing_ok=True)
    return True

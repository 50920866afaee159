"""Models' files as an admin changes them: what `pipelines` refuses becomes an answer that REST can give.

Not here: which models there are (studio/models.py), downloads (services/downloads.py).
"""

from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from pipelines.errors import LumeshError, ModelError
from pipelines.messages import say
from pipelines.models.weight_files import GGUF
from studio.library import loras

MAX_BYTES = 100_000_000_000  # a FLUX.2-dev in bf16 has 64 GB


class ModelFilesError(LumeshError):
    """The files cannot be changed as asked."""

    title = say("This model's files cannot be changed")
    status = 422


class ModelTooLargeError(ModelFilesError):
    """The file has more bytes than any checkpoint in one file."""

    title = say("This model is too large")
    status = 413

    def __init__(self) -> None:
        super().__init__(
            say("It has more than {size} GB.", size=f"{MAX_BYTES / 1e9:g}"),
            advice=say("Put it into the models folder by hand."),
        )


def clean_name(name: str) -> str:
    """Returns the name of the file in models/, without its suffix; raises ModelFilesError where nothing is left."""
    name = name.strip()
    try:
        return loras.clean_name(name[: -len(GGUF)] if name.lower().endswith(GGUF) else name)
    except loras.LoraError as error:
        raise ModelFilesError(say("{name} cannot name a model.", name=repr(name[:100])), advice=error.advice) from error


def part_of(file: BinaryIO) -> Path:
    """Returns the path of a file that has arrived."""
    return Path(file.name)


@contextmanager
def refusing() -> Generator[None]:
    """Raises ModelFilesError in place of ModelError."""
    try:
        yield
    except ModelError as error:
        raise ModelFilesError(error.detail, advice=error.advice) from error

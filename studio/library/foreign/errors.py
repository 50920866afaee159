"""Errors of files whose recipe cannot be read: one for all that is truncated, malformed or malicious, one for size."""

from pipelines.errors import LumeshError
from pipelines.messages import Message, say


class MetadataError(LumeshError):
    """The file is of another kind, or its recipe is damaged."""

    title = say("No recipe can be read from this file")
    status = 422

    def __init__(self, detail: Message, *, advice: Message | None = None) -> None:
        super().__init__(detail, advice=advice or say("Take the file as its program saved it."))


class MetadataTooLargeError(MetadataError):
    """The file, or a recipe in it, has too many bytes."""

    title = say("This file is too large to read a recipe from")
    status = 413

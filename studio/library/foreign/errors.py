"""What is told when a file's recipe cannot be read: one error for everything that is torn, odd or made to do harm."""

from pipelines.errors import LumeshError


class MetadataError(LumeshError):
    """A file of another kind, or one whose recipe is damaged."""

    title = "No recipe can be read from this file"
    status = 422

    def __init__(self, detail: str, *, advice: str = "Take the file as its program saved it.") -> None:
        super().__init__(detail, advice=advice)


class MetadataTooLargeError(MetadataError):
    """A file, or a recipe in it, of too many bytes."""

    title = "This file is too large to read a recipe from"
    status = 413

"""Errors that people read: what happened, why, and what to do next.

Every error that leaves `pipelines` on purpose derives from `LumeshError`; anything else is a bug. The command line
prints an error as one line, the studio as a card with `title`, `detail` and `advice`.
"""

from collections.abc import Mapping

from pipelines.messages import NOTHING, Message, english, join, say


class LumeshError(Exception):
    """An error that its reader can act on.

    `title` is one short line, `detail` names the value at fault, `advice` says what to do next.
    """

    title: Message = say("Something went wrong")

    def __init__(self, detail: Message, *, advice: Message = NOTHING, title: Message | None = None) -> None:
        super().__init__(detail)
        self.detail = detail
        self.advice = advice
        if title is not None:
            self.title = title

    def __str__(self) -> str:
        return str(self.whole)

    @property
    def whole(self) -> Message:
        """Returns detail and advice as one text."""
        return join((self.detail, self.advice))


class RecipeError(LumeshError):
    """A recipe that cannot run; `fields` maps each field at fault to its message."""

    title = say("Please check the settings")

    def __init__(self, fields: dict[str, Message]) -> None:
        super().__init__(join_fields(fields))
        self.fields = fields


def join_fields(fields: Mapping[str, Message]) -> Message:
    """Returns the messages of all fields as one text, each behind its field's name."""
    return join((say("{field}: {text}", field=name, text=text) for name, text in fields.items()), ";")


class ModelError(LumeshError):
    """A model that is unknown, incomplete, gated or of another architecture."""

    title = say("This model cannot be loaded")


class StageFileError(LumeshError):
    """A stage file that is missing, belongs to another model, or has the wrong shapes."""

    title = english("This stage file cannot be used")


class RemoteEncoderError(LumeshError):
    """A text encoder on another machine that does not answer, or answers with something unexpected."""

    title = say("The remote text encoder cannot be used")


class MeshError(LumeshError):
    """A mesh that does not fit the devices."""

    title = english("The mesh does not fit this machine")


class Cancelled(Exception):  # noqa: N818 - not an error: a person requested it
    """Raised by a progress callback to end the work at the next chunk."""

"""Errors that people read: what happened, why, and what to do next.

Every error that leaves `pipelines` on purpose derives from `LumeshError`; anything else is a bug. The command line
prints an error as one line, the studio as a card with `title`, `detail` and `advice`.
"""


class LumeshError(Exception):
    """An error that its reader can act on.

    `title` is one short line, `detail` names the value at fault, `advice` says what to do next.
    """

    title = "Something went wrong"

    def __init__(self, detail: str, *, advice: str = "", title: str | None = None) -> None:
        super().__init__(detail)
        self.detail = detail
        self.advice = advice
        if title is not None:
            self.title = title

    def __str__(self) -> str:
        return f"{self.detail} {self.advice}".strip()


class RecipeError(LumeshError):
    """A recipe that cannot run; `fields` maps each field at fault to its message."""

    title = "Please check the settings"

    def __init__(self, fields: dict[str, str]) -> None:
        super().__init__("; ".join(f"{name}: {message}" for name, message in fields.items()))
        self.fields = fields


class ModelError(LumeshError):
    """A model that is unknown, incomplete, gated or of another architecture."""

    title = "This model cannot be loaded"


class StageFileError(LumeshError):
    """A stage file that is missing, belongs to another model, or has the wrong shapes."""

    title = "This stage file cannot be used"


class RemoteEncoderError(LumeshError):
    """A text encoder on another machine that does not answer, or answers with something unexpected."""

    title = "The remote text encoder cannot be used"


class MeshError(LumeshError):
    """A mesh that does not fit the devices."""

    title = "The mesh does not fit this machine"


class DeviceError(LumeshError):
    """An accelerator that is there, but cannot be used."""

    title = "The accelerator cannot be used"


class Cancelled(Exception):  # noqa: N818 - not an error: a person requested it
    """Raised by a progress callback to end the work at the next chunk."""

"""Models' files as an admin changes them: what `pipelines` refuses becomes an answer that REST can give.

Not here: which models there are (studio/models.py), downloads (services/downloads.py).
"""

from collections.abc import Generator
from contextlib import contextmanager

from pipelines.errors import LumeshError, ModelError
from pipelines.messages import say


class ModelFilesError(LumeshError):
    """The files cannot be changed as asked."""

    title = say("This model's files cannot be changed")
    status = 422


@contextmanager
def refusing() -> Generator[None]:
    """Raises ModelFilesError in place of ModelError."""
    try:
        yield
    except ModelError as error:
        raise ModelFilesError(error.detail, advice=error.advice) from error

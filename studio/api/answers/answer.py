"""The base class of response models, and fields with examples, which describe.py combines for each route."""

from typing import Any

from pydantic import BaseModel, ConfigDict, Field


class Answer(BaseModel):
    """The base of response models. Undeclared fields fail the tests; a server leaves them out."""

    model_config = ConfigDict(extra="ignore")


def eg(example: Any, **options: Any) -> Any:
    """Declares a field with an example of its value."""
    return Field(examples=[example], **options)

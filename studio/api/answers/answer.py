"""The base of every answer, and fields that carry an example: describe.py puts these together for each route."""

from typing import Any

from pydantic import BaseModel, ConfigDict, Field


class Answer(BaseModel):
    """What a route answers with. Tests forbid fields that are not declared; a server leaves them out."""

    model_config = ConfigDict(extra="ignore")


def eg(example: Any, **options: Any) -> Any:
    """A field with an example of its value."""
    return Field(examples=[example], **options)

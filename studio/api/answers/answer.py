"""The base class of response models, and fields with examples, which describe.py combines for each route."""

from typing import Any

from pydantic import BaseModel, ConfigDict, Field


class Answer(BaseModel):
    """The base of response models. Undeclared fields fail the tests; a server leaves them out."""

    model_config = ConfigDict(extra="ignore")


def eg(example: Any, **options: Any) -> Any:
    """Declares a field with an example of its value."""
    return Field(examples=[example], **options)


class Said(Answer):
    """A sentence's code, by which the page translates it: the English sentence with `{name}` in place of values."""

    code: str = eg("loading {model}")
    values: dict[str, Any] = eg({"model": "Stable Diffusion XL 1.0"})


def said() -> Any:
    """Declares the field beside a text that has its code; it is left out where a text has none."""
    return eg(None, default=None, exclude_if=lambda code: code is None)

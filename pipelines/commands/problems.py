"""Collects what is wrong with the options of one command, so that all of it is told at once, and words it."""

import re
from collections.abc import Callable
from typing import TypeVar

from pipelines.errors import RecipeError
from pipelines.field_errors import find_near
from pipelines.messages import Message

Found = TypeVar("Found")
_CHOICE = re.compile(r"'([^']*)' is not one of ('.+')")


def word_usage(text: str) -> str:
    """Returns what typer says of an option, and which of the allowed values is likely meant, as files of settings do.

    Of names of options it says so itself.
    """
    text = text.replace("Value error, ", "")  # pydantic's, by which it reads values
    found = _CHOICE.search(text)
    near = found and find_near(found[1], re.findall(r"'([^']*)'", found[2]))
    return f"{text} Perhaps {near} is meant." if near else text


class Problems:
    """The problems of a command's options, by their names; the first of each name counts."""

    def __init__(self) -> None:
        self._found: dict[str, Message] = {}

    def add(self, name: str, text: Message) -> None:
        self._found.setdefault(name, text)

    def attempt(self, find: Callable[[], Found]) -> Found | None:
        """Returns what is found, None where that is a RecipeError, whose problems are added."""
        try:
            return find()
        except RecipeError as error:
            for name, text in error.fields.items():
                self.add(name, text)
            return None

    def tell(self) -> None:
        """Raises RecipeError if there are any."""
        if self._found:
            raise RecipeError(self._found)

"""Reads untrusted text and JSON within limits: input that is too long, too deep or mistyped raises MetadataError.

Not here: which fields a program writes (one file each), which values a recipe may have (pipelines/recipe.py).
"""

import json
import math
import re
from typing import Any, Never, cast

from pipelines.messages import Message, say
from studio.library.foreign.errors import MetadataError, MetadataTooLargeError

MAX_TEXT_BYTES = 4_000_000  # a ComfyUI workflow of several hundred nodes has about 1 MB
MAX_STRING_CHARS = 50_000  # a prompt with all that programs add to it
MAX_DEPTH = 60
MAX_SHOWN_CHARS = 160

_BRACKETS = re.compile(r'"(?:[^"\\]|\\.)*+"?|[\[{]|[\]}]', re.DOTALL)
_NOT_SHOWN = re.compile(r"[\x00-\x08\x0b-\x1f\x7f]")


def clean(text: str) -> str:
    """Removes control characters and lone surrogates, which forms, databases and JSON reject."""
    whole = text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return _NOT_SHOWN.sub("", whole.replace("\r\n", "\n"))


def shorten(value: object) -> str:
    """Shortens a value to one line of a list."""
    line = " ".join(clean(str(value)[: 2 * MAX_SHOWN_CHARS]).split())
    return line if len(line) <= MAX_SHOWN_CHARS else f"{line[: MAX_SHOWN_CHARS - 1]}…"


def parse_json(text: str, *, has_nan: bool = False) -> Any:
    """Parses JSON; with `has_nan`, NaN and Infinity (which ComfyUI writes) become null instead of an error."""
    if len(text) > MAX_TEXT_BYTES:
        raise MetadataTooLargeError(say("Its recipe has {size} MB.", size=f"{len(text) / 1e6:.1f}"))
    _check_depth(text)
    try:
        return json.loads(text, parse_constant=_pass_constant if has_nan else _refuse_constant)
    except (ValueError, RecursionError) as error:
        raise MetadataError(say("Its recipe is damaged: it is not complete JSON.")) from error


def _pass_constant(_name: str) -> None:
    return None


def _refuse_constant(name: str) -> Never:
    raise MetadataError(say("Its recipe is damaged: {name} is not a number.", name=name))


def _check_depth(text: str) -> None:
    depth = 0
    for match in _BRACKETS.finditer(text):
        depth += {"[": 1, "{": 1, "]": -1, "}": -1}.get(match[0], 0)
        if depth > MAX_DEPTH:
            raise MetadataError(
                say("Its recipe is damaged: it is nested more than {limit} levels deep.", limit=MAX_DEPTH)
            )


def read_object(text: str, *, has_nan: bool = False) -> "Fields | None":
    """Parses the JSON object in `text`; None when the text does not begin like one."""
    if text.lstrip()[:1] != "{":
        return None
    return Fields.of(parse_json(text, has_nan=has_nan), name="recipe")


class Fields:
    """A JSON object read by name and type: absent, null and empty give None, another type raises MetadataError."""

    def __init__(self, values: dict[str, Any]) -> None:
        self.values = values

    @classmethod
    def of(cls, value: object, *, name: str) -> "Fields":
        """Wraps an object; raises MetadataError for any other value."""
        if not isinstance(value, dict):
            raise _wrong(name, value, say("an object"))
        return cls(cast("dict[str, Any]", value))

    def text(self, name: str) -> str | None:
        value = self.values.get(name)
        if value is None or value == "":
            return None
        if not isinstance(value, str):
            raise _wrong(name, value, say("a text"))
        return limit_text(value, name)

    def number(self, name: str) -> float | None:
        """Returns a number; accepts numbers in quotes, because several programs write them."""
        value = self.values.get(name)
        return None if value is None or value == "" else read_number(value, name)

    def whole(self, name: str) -> int | None:
        value = self.values.get(name)
        return None if value is None or value == "" else read_whole(value, name)

    def inner(self, name: str) -> "Fields | None":
        value = self.values.get(name)
        return None if value is None else Fields.of(value, name=name)

    def items(self, name: str) -> list[Any]:
        value = self.values.get(name)
        if value is None:
            return []
        if not isinstance(value, list):
            raise _wrong(name, value, say("a list"))
        return cast("list[Any]", value)

    def rest(self, known: frozenset[str]) -> dict[str, Any]:
        """Returns the fields that are set besides the known ones."""
        blank: tuple[object, ...] = (None, False, "", [], {}, "None", 0)
        return {name: value for name, value in self.values.items() if name not in known and value not in blank}


def limit_text(text: str, name: str) -> str:
    """Returns the text, cleaned; raises MetadataError when it is too long."""
    if len(text) > MAX_STRING_CHARS:
        raise MetadataTooLargeError(say("Its {name} has {count} characters.", name=shorten(name), count=len(text)))
    return clean(text)


def read_number(value: object, name: str) -> float:
    """Reads a finite number, also in quotes; raises MetadataError for anything else."""
    try:
        if isinstance(value, bool) or not isinstance(value, int | float | str):
            raise ValueError
        number = float(value)
    except (ValueError, OverflowError) as error:
        raise _wrong(name, value, say("a number")) from error
    if not math.isfinite(number):
        raise _wrong(name, value, say("a number"))
    return number


def read_whole(value: object, name: str) -> int:
    """Reads a whole number, also in quotes or as 20.0; raises MetadataError for anything else."""
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    if isinstance(value, str) and re.fullmatch(r"\s*-?[0-9]{1,20}\s*", value):
        return int(value)
    number = read_number(value, name)
    if number != int(number):
        raise _wrong(name, value, say("a whole number"))
    return int(number)


def _wrong(name: str, value: object, wanted: Message) -> MetadataError:
    shown = value if isinstance(value, str | int | float) else f"a {type(value).__name__}"
    return MetadataError(
        say(
            "Its recipe is damaged: {name} is {value} where {wanted} belongs.",
            name=shorten(name),
            value=repr(shorten(shown)),
            wanted=wanted,
        )
    )

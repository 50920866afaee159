"""Reads untrusted text and JSON within limits.

A text that is no JSON, too long or too deep raises MetadataError: nothing of it can be read. A field of another type
than its name promises is left out and noted in `odd`, so that one odd field never costs the others.

Not here: which fields a program writes (one file each), what a recipe may have (pipelines/recipes/resolving.py).
"""

import json
import math
import re
from typing import Any, NamedTuple, Never, cast

from pipelines.messages import Message, say
from studio.library.foreign.errors import MetadataError, MetadataTooLargeError

MAX_TEXT_BYTES = 4_000_000  # a ComfyUI workflow of several hundred nodes has about 1 MB
MAX_STRING_CHARS = 100_000  # two of the longest prompts (pipelines/recipes/recipe.py) with all that programs add
MAX_DEPTH = 60
MAX_SHOWN_CHARS = 160

_BRACKETS = re.compile(r'"(?:[^"\\]|\\.)*+"?|[\[{]|[\]}]', re.DOTALL)
_SIZE = re.compile(r"\s*\(?\s*'?(\d{1,6})'?\s*[x×,]\s*'?(\d{1,6})'?\s*\)?\s*")
_NOT_SHOWN = re.compile(r"[\x00-\x08\x0b-\x1f\x7f]")


def clean(text: str) -> str:
    """Removes control characters and lone surrogates, which forms, databases and JSON reject."""
    whole = text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return _NOT_SHOWN.sub("", whole.replace("\r\n", "\n").removeprefix("\ufeff"))


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


class Odd(NamedTuple):
    """A field that cannot be read: what it is, and why."""

    what: Message
    why: Message


class Fields:
    """A JSON object read by name and type: absent, null and empty give None, and so does another type, noted in `odd`.

    Objects within it share its `odd`.
    """

    def __init__(self, values: dict[str, Any], odd: list[Odd] | None = None) -> None:
        self.values = values
        self.odd: list[Odd] = [] if odd is None else odd

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
            return self._leave_out(name, value, say("is no text"))
        if len(value) > MAX_STRING_CHARS:
            return self._leave_out(name, value, say("is longer than {limit} characters", limit=MAX_STRING_CHARS))
        return clean(value)

    def number(self, name: str) -> float | None:
        """Returns a number; accepts numbers in quotes, because several programs write them."""
        return self.to_number(name, self.values.get(name))

    def to_number(self, name: str, value: object) -> float | None:
        """Returns a value as a number; None for one that is none, which is noted."""
        if value is None or value == "":
            return None
        try:
            return read_number(value, name)
        except MetadataError:
            return self._leave_out(name, value, say("is no number"))

    def whole(self, name: str) -> int | None:
        return self.to_whole(name, self.values.get(name))

    def to_whole(self, name: str, value: object) -> int | None:
        """Returns a value as a whole number; None for one that is none, which is noted."""
        if value is None or value == "":
            return None
        try:
            return read_whole(value, name)
        except MetadataError:
            return self._leave_out(name, value, say("is no whole number"))

    def size(self, name: str) -> tuple[int | None, int | None]:
        """Returns width and height: `832x1216`, `(832, 1216)` or a list of two numbers."""
        value = self.values.get(name)
        if value is None or value == "":
            return None, None
        text = " x ".join(map(str, cast("list[Any]", value))) if isinstance(value, list) else str(value)
        match = _SIZE.fullmatch(text[:60])
        if match is None:
            self._leave_out(name, cast("object", value), say("is no width and height"))
            return None, None
        return int(match[1]), int(match[2])

    def inner(self, name: str) -> "Fields | None":
        value = self.values.get(name)
        return None if value is None else self.to_object(name, value)

    def to_object(self, name: str, value: object) -> "Fields | None":
        """Returns a value as an object; None for another one, which is noted."""
        if not isinstance(value, dict):
            return self._leave_out(name, value, say("is no object"))
        return Fields(cast("dict[str, Any]", value), self.odd)

    def objects(self, name: str) -> "list[Fields]":
        """Returns the objects of a list."""
        return [one for value in self.items(name) if (one := self.to_object(name, value)) is not None]

    def items(self, name: str) -> list[Any]:
        """Returns a list's values; those of a text are between its commas, as some programs write lists."""
        value = self.values.get(name)
        if value is None or value == "":
            return []
        if isinstance(value, str) and len(value) <= MAX_STRING_CHARS and value[0] not in "[{":
            return [part.strip() for part in value.split(",") if part.strip()]
        if not isinstance(value, list):
            self._leave_out(name, cast("object", value), say("is no list"))
            return []
        return cast("list[Any]", value)

    def _leave_out(self, name: str, value: object, why: Message) -> None:
        shown = value if isinstance(value, str | int | float) else f"a {type(value).__name__}"
        self.odd.append(Odd(say("{name}: {value}", name=shorten(name), value=shorten(shown)), why))

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

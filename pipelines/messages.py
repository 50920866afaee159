"""Sentences for people: English text that carries its code and values, so that the page can translate it.

The code is the English sentence with `{name}` in place of each value, as in gettext: a sentence is written once, where
it is said, and studio/ui/text/*.json translates it under "server" by that code. In JSON a sentence stands as English
text, and beside it, under the same name with `_said`, its code and values (add_codes); texts of other programs and of
the command line have none (english).
"""

import json
import re
from collections.abc import Iterable, Mapping
from typing import Any, Literal

SUFFIX = "_said"

_NAME = re.compile(r"\{(\w+)\}")

Value = object
"""A sentence's value: a number, a name, or another sentence; all others are shown as str() shows them."""


class Message(str):
    """An English text with the `code` and `values` that it was made of; a text without a code is not translated."""

    code: str
    values: Mapping[str, Value]

    def __new__(cls, text: str, code: str = "", values: Mapping[str, Value] | None = None) -> "Message":
        message = super().__new__(cls, text)
        message.code, message.values = code, values or {}
        return message

    def __reduce__(self) -> tuple[Any, ...]:
        return Message, (str(self), self.code, self.values)

    def to_json(self) -> dict[str, Any]:
        """Returns `{"code", "values"}`; values are numbers, texts, or sentences in this form."""
        return {"code": self.code, "values": {name: _value_to_json(value) for name, value in self.values.items()}}


NOTHING = Message("")


def say(code: str, /, **values: Value) -> Message:
    """Returns the sentence `code` with its values. Only `{name}` is a place for a value; other braces are text.

    Raises KeyError when a value is missing.
    """
    return Message(_NAME.sub(lambda found: str(values[found[1]]), code), code, values)


def say_count(one: str, many: str, /, *, count: int, **values: Value) -> Message:
    """Returns the sentence `one` for a count of 1, and `many` for any other."""
    return say(one if count == 1 else many, count=count, **values)


def english(text: str) -> Message:
    """Returns a text that stays as it is in every language: one for a terminal, or another program's own words."""
    return text if isinstance(text, Message) else Message(text)


def join(parts: Iterable[str], separator: Literal["", ";"] = "") -> Message:
    """Returns several sentences as one, with `separator` and a space between them; empty ones are left out."""
    whole = NOTHING
    for part in filter(None, parts):
        if not whole:
            whole = english(part)
        elif separator == ";":
            whole = say("{first}; {second}", first=whole, second=part)
        else:
            whole = say("{first} {second}", first=whole, second=part)
    return whole


def tell(error: BaseException) -> Message:
    """Returns the sentence that an exception was raised with, or else its text as it is."""
    return english(error.args[0] if error.args and isinstance(error.args[0], Message) else str(error))


def add_codes(record: dict[str, Any]) -> dict[str, Any]:
    """Returns a JSON object with the codes of the sentences in its fields, in lists and in objects of texts."""
    told = {name + SUFFIX: code for name, value in record.items() if (code := _find_codes(value)) is not None}
    return {**record, **told}


def read_codes(record: dict[str, Any]) -> dict[str, Any]:
    """Undoes add_codes: texts that have a code beside them become sentences again, other fields stay as they are."""
    plain = {name: value for name, value in record.items() if not name.endswith(SUFFIX)}
    return {name: _restore(value, record.get(name + SUFFIX)) for name, value in plain.items()}


def write_code(message: str) -> str | None:
    """Returns a text's code and values as JSON, for a column beside the text's own; None where it has none."""
    code = _find_code(message)
    return None if code is None else json.dumps(code)


def read_code(text: str, code: str | None) -> Message:
    """Undoes write_code."""
    return english(_restore(text, json.loads(code) if code else None))


def _find_codes(value: Value) -> Any:
    """Returns a text's code, a list's codes in its order, or an object's by name; None where there is none."""
    if isinstance(value, list | tuple):
        codes = [_find_code(one) for one in value]
        return codes if any(codes) else None
    if isinstance(value, dict):
        return {name: code for name, one in value.items() if (code := _find_code(one))} or None
    return _find_code(value)


def _find_code(value: Value) -> dict[str, Any] | None:
    return value.to_json() if isinstance(value, Message) and value.code else None


def _restore(value: Any, code: Any) -> Any:
    if isinstance(value, str) and isinstance(code, dict):
        return Message(value, code["code"], {name: _value_of_json(one) for name, one in code["values"].items()})
    if isinstance(value, list) and isinstance(code, list):
        return [_restore(one, its) for one, its in zip(value, code, strict=True)]
    if isinstance(value, dict) and isinstance(code, dict):
        return {name: _restore(one, code.get(name)) for name, one in value.items()}
    return value


def _value_to_json(value: Value) -> Any:
    if isinstance(value, Message) and value.code:
        return value.to_json()
    return value if isinstance(value, int | float) and not isinstance(value, bool) else str(value)


def _value_of_json(value: Any) -> Value:
    if not isinstance(value, dict):
        return value
    return say(value["code"], **{name: _value_of_json(one) for name, one in value["values"].items()})

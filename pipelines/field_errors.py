"""pydantic's errors of fields, as sentences for people."""

import re
from collections.abc import Collection, Mapping, Sequence
from difflib import get_close_matches
from typing import Any

from pydantic import BaseModel

from pipelines.messages import Message, say, say_count, tell

MAX_TOLD = 20  # fields at fault in one answer
LIKELY = 0.7  # share of letters in common by which a word is a slip of another; at 0.6 nonsense is noise_offset


def word_first(problems: Sequence[Any], *, whole: str, known: Collection[str] = ()) -> dict[str, Message]:
    """Words the first entries of ValidationError.errors() by field; "..." says how many more there are.

    The `known` names of fields are those that a field which is none may be meant for.
    """
    fields = {name_field(one, whole=whole): word_problem(one, known=known) for one in problems[:MAX_TOLD]}
    return tell_first(fields, more=max(0, len(problems) - MAX_TOLD))


def tell_first(fields: Mapping[str, Message], *, more: int = 0) -> dict[str, Message]:
    """Returns the first fields' messages; "..." says how many others there are, `more` of them not in `fields`."""
    told = dict([*fields.items()][:MAX_TOLD])
    if more := more + len(fields) - len(told):
        told["..."] = say_count("{count} more field is wrong", "{count} more fields are wrong", count=more)
    return told


def name_field(problem: Any, *, whole: str) -> str:
    """Returns the path of the field at fault, such as `loras.0.scale`; `whole` stands for the object itself."""
    return ".".join(str(part) for part in problem["loc"]) or whole


def list_fields(model: type[BaseModel]) -> set[str]:
    """Lists the fields of a type, as they are called in JSON."""
    return {field.alias or name for name, field in model.model_fields.items()}


def find_near(text: object, known: Collection[str]) -> str | None:
    """Returns the one of these words that a text is most likely a slip of, as for flags of a command; else None."""
    return (
        next(iter(get_close_matches(text, known, n=1, cutoff=LIKELY)), None)
        if isinstance(text, str) and len(text) < 100
        else None
    )


def word_problem(problem: Any, *, known: Collection[str] = ()) -> Message:
    """Words one entry of ValidationError.errors(), with the one of the object's `known` fields that may be meant.

    What a validator of ours raised keeps its own sentence. Types that are not listed keep pydantic's words, which
    have no code.
    """
    kind, values = str(problem["type"]), problem.get("ctx", {})
    match kind:
        case "value_error":
            return tell(values["error"])
        case "missing":
            return say("is required")
        case "extra_forbidden":
            near = find_near(problem["loc"][-1], known) if len(problem["loc"]) == 1 else None
            return (
                say("is not a known field; perhaps {name} is meant", name=near) if near else say("is not a known field")
            )
        case "string_unicode":
            return say("holds half of a character")
        case "string_too_short":
            return say_count(
                "string should have at least {count} character",
                "string should have at least {count} characters",
                count=values["min_length"],
            )
        case "string_too_long":
            return say_count(
                "string should have at most {count} character",
                "string should have at most {count} characters",
                count=values["max_length"],
            )
        case "greater_than_equal":
            return say("input should be greater than or equal to {limit}", limit=_shorten(values["ge"]))
        case "less_than_equal":
            return say("input should be less than or equal to {limit}", limit=_shorten(values["le"]))
        case "literal_error" | "enum":
            expected = values["expected"].replace(" or ", ", ")
            near = find_near(problem.get("input"), re.findall(r"'([^']*)'", expected))
            if near:
                return say("input should be one of {values}; perhaps {name} is meant", values=expected, name=near)
            return say("input should be one of {values}", values=expected)
        case "too_long":
            return say_count(
                "may have at most {count} item, not {found}",
                "may have at most {count} items, not {found}",
                count=values["max_length"],
                found=values["actual_length"],
            )
        case "json_invalid":
            return say("is not valid JSON: {reason}", reason=values["error"])
        case "string_pattern_mismatch":
            return say("string should match pattern '{pattern}'", pattern=values["pattern"])
        case _:
            plain = _PLAIN.get(kind)
            return plain if plain is not None else Message(str(problem["msg"]).lower()[:200])


_PLAIN: dict[str, Message] = {
    "string_type": say("input should be a valid string"),
    "int_type": say("input should be a valid integer"),
    "float_type": say("input should be a valid number"),
    **dict.fromkeys(("list_type", "tuple_type", "set_type", "frozen_set_type"), say("input should be a list")),
    "bool_type": say("input should be a valid boolean"),
    "finite_number": say("input should be a finite number"),
    **dict.fromkeys(
        ("dict_type", "model_type", "dataclass_type", "model_attributes_type"),
        say("input should be an object of named fields"),
    ),
    "int_parsing": say("input should be a valid integer, unable to parse string as an integer"),
    "float_parsing": say("input should be a valid number, unable to parse string as a number"),
    "int_from_float": say("input should be a valid integer, got a number with a fractional part"),
}


def _shorten(limit: float) -> float:
    """Returns a whole number without its `.0`, as pydantic shows it."""
    return int(limit) if limit == int(limit) else limit

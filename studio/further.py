"""What else is wrong with what somebody asks for, where some of its fields are not even what is expected.

Fields are read first (types, names, sizes) and then checked against the model and what the visitor has. Without a
second look a slip in the name of one field would hide what is wrong with all others until the next try.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from pydantic import ValidationError

from pipelines.errors import LumeshError, RecipeError
from pipelines.field_errors import tell_first
from pipelines.messages import Message

MORE = "..."
"""The name under which it is told how many more fields are wrong (field_errors.py)."""


def tell_all(
    told: Mapping[str, Message], fields: object, check: Callable[[dict[str, Any]], object]
) -> dict[str, Message]:
    """Returns what was `told` of the fields, and what `check` says of the others, those at fault left out.

    `check` raises RecipeError. Nothing is added where there are no fields, where the others alone cannot be checked,
    and where so much was told that more would not be read.
    """
    if not isinstance(fields, dict) or MORE in told:
        return {**told}
    try:
        check(_leave_out(fields, told))
    except RecipeError as error:
        wrong = {part for name in told for part in name.split(".")}  # a sweep's recipe is told of without its name
        further = {name: text for name, text in error.fields.items() if name.partition(".")[0] not in wrong}
        return tell_first({**told, **further})
    except (LumeshError, ValidationError):
        pass
    return {**told}


def _leave_out(fields: Mapping[str, Any], names: Iterable[str]) -> dict[str, Any]:
    """Returns the fields without those of these names, such as `recipe.steps`; a list with a fault goes whole."""
    left = {**fields}
    for name in names:
        first, _, rest = name.partition(".")
        inner = left.get(first)
        if rest and isinstance(inner, dict):
            left[first] = _leave_out(inner, [rest])
        else:
            left.pop(first, None)
    return left

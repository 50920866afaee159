"""Bounds how many values untrusted JSON may hold, before anything describes what is wrong with each of them.

A megabyte of JSON has room for half a million values. To check them all against a type costs hundreds of bytes each,
and to say of each what is wrong with it costs a hundred times the request. So JSON is counted first, and only a few of
the errors are told (field_errors.word_first).
"""

from typing import Any, cast

from pipelines.messages import Message, say

MAX_VALUES = 5000  # a thousand ids, five times over


def find_excess(value: Any, *, limit: int = MAX_VALUES) -> tuple[str, Message] | None:
    """Returns the name of the field with the most values, and what is wrong, where JSON holds more than `limit`."""
    count, largest, name = 0, 0, ""
    waiting: list[tuple[str, Any]] = [("", value)]
    while waiting:
        path, one = waiting.pop()
        inner: list[tuple[Any, Any]] = []
        if isinstance(one, dict):
            inner = [*cast("dict[str, Any]", one).items()]
        elif isinstance(one, list | tuple):
            inner = [*enumerate(cast("list[Any]", one))]
        if len(inner) > largest:
            largest, name = len(inner), path
        count += len(inner)
        if count > limit:
            return name[:100], say("holds more than {limit} values", limit=limit)
        waiting += [(f"{path}.{key}" if path else str(key)[:100], item) for key, item in inner if _holds(item)]
    return None


def _holds(value: Any) -> bool:
    return isinstance(value, dict | list | tuple)

"""The response model of errors (api/errors.py), and which of them a route declares."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from studio.api.answers.answer import Answer, Said, eg, said


class ErrorText(Answer):
    """What happened, and what to do; `fields` maps each field at fault to what is wrong with it."""

    title: str = eg("Please check the settings")
    detail: str = eg("name: needs a letter or a digit")
    advice: str = eg("")
    fields: dict[str, str] = eg({"name": "needs a letter or a digit"})
    title_said: Said | None = said()
    detail_said: Said | None = said()
    advice_said: Said | None = said()
    fields_said: dict[str, Said | None] | None = said()


class Error(Answer):
    """The one shape of every error."""

    error: ErrorText


_MEANINGS: Mapping[int | str, str] = MappingProxyType(
    {
        403: "Not allowed: not for you, or only for admins",
        404: "There is nothing of this id, or it is somebody else's",
        409: "The state of things does not allow it now",
        413: "The body is too large",
        422: "Something of the request is wrong: `fields` says what",
        429: "Too much of yours waits or is under way: `Retry-After`, or `advice`, says what to do",
        507: "The disk, or its quota, is full",
        "default": "Any other error, such as 401 for who has not logged in",
    }
)


def refuses(*statuses: int | str) -> dict[int | str, dict[str, Any]]:
    """Returns the declaration of errors that a route answers, for its `responses`."""
    return {status: {"model": Error, "description": _MEANINGS[status]} for status in statuses}

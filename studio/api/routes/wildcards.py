"""Wildcards for prompts over REST: everybody reads them, admins change them.

They are text files in `wildcards/` of the data directory, so they can be edited by hand too.
Not here: names, limits and files (library/wildcards.py), what a prompt with wildcards stands for (sweeps.py).
"""

from typing import Annotated, Any

from fastapi import APIRouter, Response
from pydantic import BaseModel, ConfigDict, Field

from pipelines.messages import say
from pipelines.recipes.recipe import MAX_PROMPT_CHARS
from studio.api.answers import jobs as jobs_answers
from studio.api.visitor import Visitor, only_operators
from studio.library import wildcards
from studio.visit import NotFoundError, Visit

router = APIRouter(tags=["wildcards"])
MAX_LINES = 20_000

Line = Annotated[str, Field(max_length=MAX_PROMPT_CHARS)]


class Options(BaseModel):
    """The options of a wildcard, one a line; a line that starts with # is a comment."""

    model_config = ConfigDict(extra="forbid")
    lines: Annotated[list[Line], Field(min_length=1, max_length=MAX_LINES)]


Keeper = Annotated[Visit, only_operators(say("Only admins change wildcards."))]


@router.get("/wildcards", response_model=jobs_answers.Wildcards)
def list_wildcards(visit: Visitor) -> dict[str, list[dict[str, Any]]]:
    """Lists the wildcards that prompts may name as `__name__`: text files in `wildcards/` of the data directory."""
    found = wildcards.list_wildcards(visit.studio.settings.wildcards_dir)
    return {"wildcards": [{"name": name, "count": count} for name, count in found.items()]}


@router.get("/wildcards/{name:path}", response_model=jobs_answers.Wildcard)
def get_wildcard(name: str, visit: Visitor) -> dict[str, Any]:
    """Returns a wildcard: its `lines` as in the file, and how many of them are options (`count`), not comments."""
    lines = wildcards.find_wildcard(visit.studio.settings.wildcards_dir, name)
    if lines is None:
        raise _not_found(name)
    return {"name": name, "count": wildcards.count_options(lines), "lines": lines}


@router.put("/wildcards/{name:path}", response_model=jobs_answers.WildcardCount)
def set_wildcard(name: str, options: Options, visit: Keeper) -> dict[str, Any]:
    """Creates or replaces a wildcard; `count` is the number of its options. For admins."""
    count = wildcards.save_wildcard(visit.studio.settings.wildcards_dir, name, options.lines)
    visit.note("wildcard.changed", name=name)
    return {"name": name, "count": count}


@router.delete("/wildcards/{name:path}", status_code=204)
def delete_wildcard(name: str, visit: Keeper) -> Response:
    """Deletes a wildcard; prompts that name it are refused from then on. For admins."""
    if not wildcards.delete_wildcard(visit.studio.settings.wildcards_dir, name):
        raise _not_found(name)
    visit.note("wildcard.deleted", name=name)
    return Response(status_code=204)


def _not_found(name: str) -> NotFoundError:
    return NotFoundError(
        say("There is no wildcard {name}.", name=repr(name[:80])), advice=say("GET /api/v1/wildcards lists them.")
    )

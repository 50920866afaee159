"""Wildcard lists for prompts over REST: everybody reads them, admins change them.

They are text files in `wildcards/` of the data directory, so they can be edited by hand too.
Not here: names, limits and files (library/wildcards.py), what a prompt with lists stands for (sweeps.py).
"""

from typing import Annotated, Any

from fastapi import APIRouter, Response
from pydantic import BaseModel, ConfigDict, Field

from pipelines.messages import say
from pipelines.recipe import MAX_PROMPT_CHARS
from studio.api.answers import jobs as jobs_answers
from studio.api.visitor import Visitor, only_operators
from studio.library import wildcards
from studio.visit import NotFoundError, Visit

router = APIRouter(tags=["wildcards"])
MAX_LINES = 20_000

Line = Annotated[str, Field(max_length=MAX_PROMPT_CHARS)]


class Words(BaseModel):
    """The options of a list, one a line; a line that starts with # is a comment."""

    model_config = ConfigDict(extra="forbid")
    lines: Annotated[list[Line], Field(min_length=1, max_length=MAX_LINES)]


Keeper = Annotated[Visit, only_operators(say("Only admins change the lists of words."))]


@router.get("/wildcards", response_model=jobs_answers.WordLists)
def list_lists(visit: Visitor) -> dict[str, list[dict[str, Any]]]:
    """Lists the wildcards that prompts may name as `__name__`: text files in `wildcards/` of the data directory."""
    found = wildcards.list_wildcards(visit.studio.settings.wildcards_dir)
    return {"wildcards": [{"name": name, "count": count} for name, count in found.items()]}


@router.get("/wildcards/{name:path}", response_model=jobs_answers.WordList)
def get_list(name: str, visit: Visitor) -> dict[str, Any]:
    """Returns a list: its `lines` as in the file, and how many of them are options (`count`), not comments."""
    lines = wildcards.find_wildcard(visit.studio.settings.wildcards_dir, name)
    if lines is None:
        raise _not_found(name)
    return {"name": name, "count": wildcards.count_options(lines), "lines": lines}


@router.put("/wildcards/{name:path}", response_model=jobs_answers.WordCount)
def set_list(name: str, words: Words, visit: Keeper) -> dict[str, Any]:
    """Creates or replaces a list; `count` is the number of its options. For admins."""
    count = wildcards.save_wildcard(visit.studio.settings.wildcards_dir, name, words.lines)
    visit.note("words.changed", name=name)
    return {"name": name, "count": count}


@router.delete("/wildcards/{name:path}", status_code=204)
def delete_list(name: str, visit: Keeper) -> Response:
    """Deletes a list; prompts that name it are refused from then on. For admins."""
    if not wildcards.delete_wildcard(visit.studio.settings.wildcards_dir, name):
        raise _not_found(name)
    visit.note("words.deleted", name=name)
    return Response(status_code=204)


def _not_found(name: str) -> NotFoundError:
    return NotFoundError(
        say("There is no list {name}.", name=repr(name[:80])), advice=say("GET /api/v1/wildcards lists them.")
    )

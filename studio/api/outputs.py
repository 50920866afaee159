"""The library over REST: finished outputs, newest first."""

from typing import Annotated, Any

from fastapi import APIRouter, Query

from studio.api.access import Visitor
from studio.library.search import find_outputs

router = APIRouter(tags=["outputs"])


@router.get("/outputs")
def list_outputs(
    visit: Visitor,
    q: Annotated[str, Query(max_length=200, description="words of the prompt, in any order")] = "",
    model: Annotated[str | None, Query(description="only outputs of this model")] = None,
    limit: Annotated[int, Query(ge=1, le=200)] = 60,
    offset: Annotated[int, Query(ge=0)] = 0,
) -> dict[str, list[dict[str, Any]]]:
    """Outputs with their recipes and the URLs of file and thumbnail."""
    found = find_outputs(visit.database, owner=visit.owner, words=q, model=model, limit=limit, offset=offset)
    return {"outputs": [output.to_json() for output in found]}

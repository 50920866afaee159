"""The catalogue, with what each shape costs on this machine right now."""

from typing import Any

from fastapi import APIRouter

from studio.api.access import Visitor
from studio.jobs.estimates import describe_models

router = APIRouter(tags=["models"])


@router.get("/models")
def list_models(visit: Visitor) -> dict[str, list[dict[str, Any]]]:
    """Models in the order shown; each shape is `warm`, `disk` or `cold`, with measured seconds (null: never)."""
    return {"models": describe_models(visit.studio.catalog, visit.database)}

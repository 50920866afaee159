"""The catalogue over REST, with the current cost of each shape on this machine."""

from typing import Any

from fastapi import APIRouter

from pipelines.messages import add_codes
from pipelines.runtime.weights.hub import is_here
from studio.api.answers import system as system_answers
from studio.api.visitor import Visitor
from studio.jobs.costs.estimates import describe_models

router = APIRouter(tags=["models"])


@router.get("/models", response_model=system_answers.Models)
def list_models(visit: Visitor) -> dict[str, Any]:
    """Lists models in the order shown; each shape is `warm`, `disk` or `cold`, with measured seconds (null: never).

    A shape's own state is that of one output with the model's default guidance; its `variants` list the other numbers
    of outputs at once, and guidance on or off, whose programs are warm or on disk: what is not there must be compiled.
    `default` is the model that the page of a new visitor opens with.

    The first job of a model that is not `is_here` downloads it, if the hub can be reached. `unusable` lists what else
    is in `models/` of the data directory or in its models.toml, with the reason why it is no model here.
    """
    studio, catalog = visit.studio, visit.studio.catalog
    models = describe_models(catalog, visit.database)
    return {
        "models": [model | {"is_here": studio.settings.fake or is_here(catalog.get(model["id"]))} for model in models],
        "default": studio.opening_model_id,
        "unusable": [add_codes(vars(one)) for one in catalog.unusable],
    }

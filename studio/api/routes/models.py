"""The catalogue over REST, with the current cost of each shape on this machine, and the pictures of its examples."""

from typing import Any

from fastapi import APIRouter
from fastapi.responses import FileResponse, Response

from pipelines.messages import add_codes, say
from pipelines.models.catalog import Model
from pipelines.models.fingerprints import list_components
from pipelines.runtime.weights import hub
from studio.api.answers import system as system_answers
from studio.api.routes.media import CHECKED, IfNoneMatch, send_file
from studio.api.visitor import Visitor
from studio.jobs.costs.offers import describe_models
from studio.library.examples import has_picture, picture_of
from studio.storage import count_free
from studio.visit import NotFoundError, Visit

router = APIRouter(tags=["models"])


@router.get("/models", response_model=system_answers.Models)
def list_models(visit: Visitor) -> dict[str, Any]:
    """Lists models in the order shown; each shape is `warm`, `disk` or `cold`, with measured seconds (null: never).

    A shape's own state is that of one output with the model's default guidance; its `variants` list the other numbers
    of outputs at once, and guidance on or off, whose programs are warm or on disk: what is not there must be compiled.
    `default` is the model that the page of a new visitor opens with.

    The first job of a model that is not `is_here` downloads it, if the hub can be reached. `unusable` lists what else
    is in `models/` of the data directory or in its models.toml, with the reason why it is no model here.
    The `examples` with a `picture_url` make exactly that picture, by their seed and the model's defaults.
    """
    studio, catalog = visit.studio, visit.studio.catalog
    return {
        "models": [
            {
                **described,
                "examples": _describe_examples(model),
                "is_here": studio.settings.fake or hub.is_here(model),
            }
            for described, model in zip(describe_models(catalog, visit.database), catalog.models, strict=True)
        ],
        "default": studio.opening_model_id,
        "unusable": [add_codes(vars(one)) for one in catalog.unusable],
    }


@router.get("/models/{model_id}/download", response_model=system_answers.Download)
def measure_download(model_id: str, visit: Visitor) -> dict[str, int | None]:
    """Tells how much the first job of a model would download, and how much room there is for it.

    `bytes` is null where the hub cannot be asked, or does not tell without a token.
    """
    model = _find(visit, model_id)
    return {
        "bytes": 0 if visit.studio.settings.fake else hub.measure_download(model, components=list_components(model)),
        "free_bytes": count_free(hub.find_cache()),
    }


@router.get("/models/{model_id}/examples/{place}/picture", response_class=FileResponse)
def get_example_picture(model_id: str, place: int, visit: Visitor, if_none_match: IfNoneMatch = None) -> Response:
    """Returns the picture of an example, a WebP of at most 384 px; 404 when it has none. `place` counts from 0."""
    model = _find(visit, model_id)
    examples = model.examples
    if not 0 <= place < len(examples) or not has_picture(model, examples[place]):
        raise NotFoundError(say("Example {place} of {model} has no picture.", place=place, model=repr(model_id)))
    # Revalidated, because the pictures are redrawn when a model's weights change.
    return send_file(picture_of(model, examples[place]), if_none_match=if_none_match, headers=CHECKED)


def _find(visit: Visit, model_id: str) -> Model:
    found = next((model for model in visit.studio.catalog.models if model.id == model_id), None)
    if found is None:
        raise NotFoundError(say("There is no model {model}.", model=repr(model_id)))
    return found


def _describe_examples(model: Model) -> list[dict[str, Any]]:
    return [
        {
            "prompt": example.prompt,
            "seed": example.seed,
            "picture_url": f"/api/v1/models/{model.id}/examples/{place}/picture"
            if has_picture(model, example)
            else None,
        }
        for place, example in enumerate(model.examples)
    ]

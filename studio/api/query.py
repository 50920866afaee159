"""Query parameters that a route does not have are refused, as in a body: a misspelt filter must not mean "all"."""

import inspect

from fastapi import Request
from fastapi.dependencies.models import Dependant
from fastapi.routing import APIRoute
from pydantic import BaseModel

from pipelines.errors import RecipeError
from pipelines.messages import say

MAX_NAMED = 10
MAX_NAME_CHARS = 40


def refuse_unknown_query(request: Request) -> None:
    """Raises RecipeError with a message for each parameter that the route does not have."""
    if not request.query_params:
        return
    route = request.scope["route"]
    assert isinstance(route, APIRoute)
    known = list_parameters(route)
    unknown = [name for name in dict.fromkeys(request.query_params) if name not in known][:MAX_NAMED]
    if unknown:
        allowed = ", ".join(sorted(known)) or "none"
        problem = say("is not a parameter here; allowed: {names}", names=allowed)
        raise RecipeError({name[:MAX_NAME_CHARS]: problem for name in unknown})


def list_parameters(route: APIRoute) -> frozenset[str]:
    """Lists the names of a route's query parameters, those of its dependencies among them."""
    return frozenset(_list_names(route.dependant))


def _list_names(dependant: Dependant) -> set[str]:
    names: set[str] = set()
    for field in dependant.query_params:
        annotation = field.field_info.annotation
        if inspect.isclass(annotation) and issubclass(annotation, BaseModel):
            names |= set(annotation.model_fields)
        else:
            names.add(field.alias)
    for dependency in dependant.dependencies:
        names |= _list_names(dependency)
    return names

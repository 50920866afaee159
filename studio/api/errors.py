"""One error shape for every route: `{"error": {"title", "detail", "advice", "fields"}}`.

`fields` maps each field at fault to its message and is empty when no field is. Beside each text stands its code and
values, under its name with `_said` (pipelines/messages.py). The class of an expected error carries
its HTTP status (`status`), and other advice for operators (`operator_advice`) where only they can follow it; an error
without a status is a mistake of the server. Below /v1 the shape is OpenAI's instead
(adapters/openai_errors.py).
"""

import functools
import logging
import math
import sqlite3
from collections.abc import Mapping
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, Response
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.routing import Match, Mount

from pipelines.errors import LumeshError, RecipeError
from pipelines.field_errors import MAX_TOLD, word_first
from pipelines.messages import NOTHING, Message, add_codes, english, join, say
from studio.access.limits import RateError
from studio.access.people import PERSON, Person
from studio.api.adapters.openai_errors import PREFIX, make_openai_error
from studio.api.bodies import find_body
from studio.further import tell_all
from studio.storage import explain
from studio.visit import NotFoundError, Visit

MISTAKE = 500
METHODS = ("GET", "POST", "PUT", "PATCH", "DELETE")
UNREADABLE = "There was an error parsing the body"  # FastAPI's, of what its parser raises

log = logging.getLogger(__name__)


def install(app: FastAPI) -> None:
    """Makes every error of the application's own routes take the one shape, including that of an unknown /api path."""
    app.add_exception_handler(LumeshError, _answer_expected)
    app.add_exception_handler(RequestValidationError, _answer_invalid)
    app.add_exception_handler(HTTPException, _answer_http)
    app.add_exception_handler(ClientDisconnect, _answer_nobody)
    app.add_exception_handler(UnicodeEncodeError, _answer_half_character)
    app.add_exception_handler(OSError, _answer_storage)
    app.add_exception_handler(sqlite3.Error, _answer_storage)
    app.add_exception_handler(Exception, _answer_mistake)
    for prefix in ("/api/", PREFIX):
        app.add_api_route(f"{prefix}{{path:path}}", _answer_unknown, methods=[*METHODS], include_in_schema=False)


def find_status(error: LumeshError) -> int:
    """Returns the error class's `status`; errors of recipes come from `pipelines`, which does not know HTTP."""
    return 422 if isinstance(error, RecipeError) else getattr(error, "status", MISTAKE)


def make_error(
    status: int,
    *,
    title: Message,
    detail: Message,
    advice: Message = NOTHING,
    fields: dict[str, Message] | None = None,
    path: str = "",
) -> JSONResponse:
    """Returns an error in the one shape, or in OpenAI's where the request's `path` is below /v1."""
    if path.startswith(PREFIX):
        return make_openai_error(status, title=title, message=join((detail, advice)), fields=fields)
    error = {"title": title, "detail": detail, "advice": advice, "fields": fields or {}}
    return JSONResponse({"error": add_codes(error)}, status_code=status)


def answer_error(error: LumeshError, *, path: str, person: Person | None = None) -> JSONResponse:
    """Returns the answer for an expected error, with its own status and the advice for whoever asks."""
    status, fields = find_status(error), getattr(error, "fields", None)
    is_operator = person is not None and person.is_operator
    advice = getattr(error, "operator_advice", error.advice) if is_operator else error.advice
    answer = make_error(status, title=error.title, detail=error.detail, advice=advice, fields=fields, path=path)
    if isinstance(error, RateError):
        answer.headers["Retry-After"] = str(math.ceil(error.wait_s))
    return answer


def _answer_expected(request: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, LumeshError)
    return answer_error(error, path=request.url.path, person=request.scope.get(PERSON))


def _answer_invalid(request: Request, problem: Exception) -> JSONResponse:
    assert isinstance(problem, RequestValidationError)
    found = problem.errors()
    shown = [{**one, "loc": _name_place(one)} for one in found[:MAX_TOLD]]
    body = find_body(request.scope.get("endpoint"))
    told = word_first([*shown, *found[MAX_TOLD:]], whole="body", known=body.names if body is not None else ())
    person = request.scope.get(PERSON)
    if body is not None and body.check is not None and person is not None:
        visit = Visit(person=person, studio=request.app.state.studio)
        told = tell_all(told, problem.body, functools.partial(body.check, visit))
    return _answer_fields(request, told)


def _name_place(problem: Mapping[str, Any]) -> tuple[int | str, ...]:
    """Returns the path of the field at fault, without the part of the request; none where the body is no JSON."""
    return () if problem["type"] == "json_invalid" else problem["loc"][1:]


def _answer_fields(request: Request, fields: dict[str, Message]) -> JSONResponse:
    error = RecipeError(fields)
    return make_error(422, title=error.title, detail=error.detail, fields=fields, path=request.url.path)


def _answer_http(request: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, HTTPException)
    path = request.url.path
    if error.detail == UNREADABLE and isinstance(error.__cause__, RecursionError):
        return _answer_fields(request, {"body": say("is nested too deeply")})
    if error.detail == UNREADABLE and isinstance(error.__cause__, UnicodeDecodeError):
        return _answer_fields(request, {"body": say("is no text in UTF-8, as JSON is")})
    return make_error(
        error.status_code,
        title=english(error.detail),
        detail=english(f"{request.method} {path}"),
        path=path,
    )


def _answer_nobody(request: Request, error: Exception) -> Response:  # noqa: ARG001
    """Answers a client that left while it sent its body, which is no mistake of ours."""
    return Response(status_code=400)


def _answer_storage(request: Request, error: Exception) -> JSONResponse:
    """Answers 507 on a full disk, 503 for a locked or read-only database; another such error is our own mistake."""
    told = explain(error)
    if told is None:
        raise error
    log.warning("%s %s: %s", request.method, request.url.path, error)
    return _answer_expected(request, told)


def _answer_half_character(request: Request, error: Exception) -> JSONResponse:  # noqa: ARG001
    return make_error(
        422,
        title=RecipeError.title,
        detail=say("A text holds half of a character, which cannot be stored."),
        advice=say("Take out what looks broken, often a cut emoji."),
        path=request.url.path,
    )


def _answer_mistake(request: Request, error: Exception) -> JSONResponse:
    return make_error(
        MISTAKE,
        title=say("Something went wrong"),
        detail=say("The server made a mistake ({error}).", error=type(error).__name__),
        advice=say("Try again; the terminal that runs the server shows the details."),
        path=request.url.path,
    )


def _answer_unknown(request: Request) -> JSONResponse:
    """Answers 405 for a path that takes other methods, 404 for one that is not there."""
    path = request.url.path
    if allowed := ", ".join(_list_methods(request)):
        answer = make_error(
            405,
            title=say("Not allowed here"),
            detail=say("{path} takes no {method}.", path=path, method=request.method),
            advice=say("It takes {methods}; /api/docs says what each does.", methods=allowed),
            path=path,
        )
        answer.headers["Allow"] = allowed
        return answer
    return make_error(
        404,
        title=NotFoundError.title,
        detail=say("There is no {path}.", path=path),
        advice=say("/api/docs lists the routes."),
        path=path,
    )


def _list_methods(request: Request) -> list[str]:
    """Lists the methods that a route of this path takes."""
    routes = [
        route
        for route in request.app.router.routes
        if not isinstance(route, Mount) and getattr(route, "endpoint", None) is not _answer_unknown
    ]
    asked = [(method, {**request.scope, "method": method}) for method in METHODS]
    return [method for method, scope in asked if any(route.matches(scope)[0] is Match.FULL for route in routes)]

"""One error shape for every route: `{"error": {"title", "detail", "advice", "fields"}}`.

`fields` maps each field at fault to its message and is empty when no field is. Below /v1 it is OpenAI's shape instead
(openai_errors.py).
"""

import math

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException

from pipelines.errors import LumeshError, RecipeError
from pipelines.recipe import PLAIN_MESSAGES
from studio.access.hooks import PromptRefusedError
from studio.access.limits import RateError
from studio.api.adapters.openai import JobCancelledError, JobFailedError, StoppingError
from studio.api.adapters.openai_errors import PREFIX, make_openai_error
from studio.api.routes.system import CompilingError, LoadingError
from studio.api.routes.webhook import WebhookError
from studio.jobs.queue import DiskFullError, JobStateError, QueueQuotaError
from studio.library.foreign.errors import MetadataError, MetadataTooLargeError
from studio.library.loras import LoraError, LoraNameTakenError, LoraTooLargeError
from studio.library.presets.hub import HubError, HubTokenError
from studio.library.presets.preset import PresetError
from studio.library.uploads import UploadError, UploadQuotaError, UploadTooLargeError
from studio.library.wildcards import WildcardError
from studio.services.plans import PlanBusyError
from studio.visit import NotAllowedError, NotFoundError

STATUS_OF_ERROR: dict[type[LumeshError], int] = {
    RecipeError: 422,
    PresetError: 422,
    HubError: 502,
    HubTokenError: 401,
    UploadError: 422,
    UploadTooLargeError: 413,
    UploadQuotaError: 429,
    LoraError: 422,
    LoraNameTakenError: 409,
    LoraTooLargeError: 413,
    MetadataError: 422,
    MetadataTooLargeError: 413,
    NotFoundError: 404,
    NotAllowedError: 403,
    PromptRefusedError: 422,
    RateError: 429,
    JobStateError: 409,
    QueueQuotaError: 429,
    DiskFullError: 507,
    WebhookError: 422,
    WildcardError: 422,
    JobFailedError: 500,
    JobCancelledError: 409,
    StoppingError: 503,
    PlanBusyError: 409,
    CompilingError: 409,
    LoadingError: 409,
}


def install(app: FastAPI) -> None:
    """Every error of the application's own routes takes the one shape; an unknown /api path is one of them."""
    app.add_exception_handler(LumeshError, _answer_expected)
    app.add_exception_handler(RequestValidationError, _answer_invalid)
    app.add_exception_handler(HTTPException, _answer_http)
    app.add_exception_handler(UnicodeEncodeError, _answer_half_character)
    app.add_exception_handler(Exception, _answer_mistake)
    for prefix in ("/api/", PREFIX):
        methods = ["GET", "POST", "PATCH", "DELETE"]
        app.add_api_route(f"{prefix}{{path:path}}", _answer_unknown, methods=methods, include_in_schema=False)


def make_error(
    status: int, *, title: str, detail: str, advice: str = "", fields: dict[str, str] | None = None, path: str = ""
) -> JSONResponse:
    """An answer in the one shape, or in the other one where the request's `path` asks for it."""
    if path.startswith(PREFIX):
        return make_openai_error(status, title=title, message=f"{detail} {advice}".strip(), fields=fields)
    error = {"title": title, "detail": detail, "advice": advice, "fields": fields or {}}
    return JSONResponse({"error": error}, status_code=status)


def _answer_expected(request: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, LumeshError)
    fields = error.fields if isinstance(error, RecipeError | PresetError) else None
    status = STATUS_OF_ERROR.get(type(error), 500)
    path = request.url.path
    answer = make_error(status, title=error.title, detail=error.detail, advice=error.advice, fields=fields, path=path)
    if isinstance(error, RateError):
        answer.headers["Retry-After"] = str(math.ceil(error.wait_s))
    return answer


def _answer_invalid(request: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, RequestValidationError)
    fields: dict[str, str] = {}
    for problem in error.errors():
        name = ".".join(str(part) for part in problem["loc"][1:]) or "body"
        fields[name] = PLAIN_MESSAGES.get(problem["type"]) or problem["msg"].lower()
    detail = "; ".join(f"{name}: {message}" for name, message in fields.items())
    return make_error(422, title=RecipeError.title, detail=detail, fields=fields, path=request.url.path)


def _answer_http(request: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, HTTPException)
    path = request.url.path
    return make_error(error.status_code, title=error.detail, detail=f"{request.method} {path}", path=path)


def _answer_half_character(request: Request, error: Exception) -> JSONResponse:  # noqa: ARG001
    return make_error(
        422,
        title=RecipeError.title,
        detail="A text holds half of a character, which cannot be stored.",
        advice="Take out what looks broken, often a cut emoji.",
        path=request.url.path,
    )


def _answer_mistake(request: Request, error: Exception) -> JSONResponse:
    return make_error(
        500,
        title="Something went wrong",
        detail=f"The server made a mistake ({type(error).__name__}).",
        advice="Try again; the terminal that runs the server shows the details.",
        path=request.url.path,
    )


def _answer_unknown(request: Request) -> JSONResponse:
    path = request.url.path
    return make_error(
        404, title=NotFoundError.title, detail=f"There is no {path}.", advice="/api/docs lists the routes.", path=path
    )

"""One error shape for every route: `{"error": {"title", "detail", "advice", "fields"}}`.

`fields` maps each field at fault to its message and is empty when no field is.
"""

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException

from pipelines.errors import LumeshError, RecipeError
from studio.api.access import NotFoundError
from studio.jobs.queue import JobStateError
from studio.library.uploads import UploadError, UploadTooLargeError

STATUS_OF_ERROR: dict[type[LumeshError], int] = {
    RecipeError: 422,
    UploadError: 422,
    UploadTooLargeError: 413,
    NotFoundError: 404,
    JobStateError: 409,
}
PLAIN_MESSAGES = {"missing": "is required", "extra_forbidden": "is not a field of a recipe"}


def install(app: FastAPI) -> None:
    """Every error of the application's own routes takes the one shape; an unknown /api path is one of them."""
    app.add_exception_handler(LumeshError, _answer_expected)
    app.add_exception_handler(RequestValidationError, _answer_invalid)
    app.add_exception_handler(HTTPException, _answer_http)
    app.add_exception_handler(Exception, _answer_mistake)
    app.add_api_route("/api/{path:path}", _answer_unknown, methods=["GET", "POST", "DELETE"], include_in_schema=False)


def make_error(
    status: int, *, title: str, detail: str, advice: str = "", fields: dict[str, str] | None = None
) -> JSONResponse:
    """An answer in the one shape."""
    error = {"title": title, "detail": detail, "advice": advice, "fields": fields or {}}
    return JSONResponse({"error": error}, status_code=status)


def _answer_expected(_request: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, LumeshError)
    fields = error.fields if isinstance(error, RecipeError) else None
    status = STATUS_OF_ERROR.get(type(error), 500)
    return make_error(status, title=error.title, detail=error.detail, advice=error.advice, fields=fields)


def _answer_invalid(_request: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, RequestValidationError)
    fields: dict[str, str] = {}
    for problem in error.errors():
        name = ".".join(str(part) for part in problem["loc"][1:]) or "body"
        fields[name] = PLAIN_MESSAGES.get(problem["type"]) or problem["msg"].lower()
    detail = "; ".join(f"{name}: {message}" for name, message in fields.items())
    return make_error(422, title=RecipeError.title, detail=detail, fields=fields)


def _answer_http(request: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, HTTPException)
    return make_error(error.status_code, title=error.detail, detail=f"{request.method} {request.url.path}")


def _answer_mistake(_request: Request, error: Exception) -> JSONResponse:
    return make_error(
        500,
        title="Something went wrong",
        detail=f"The server made a mistake ({type(error).__name__}).",
        advice="Try again; the terminal that runs the server shows the details.",
    )


def _answer_unknown(path: str) -> JSONResponse:
    return make_error(
        404, title=NotFoundError.title, detail=f"There is no /api/{path}.", advice="/api/docs lists the routes."
    )

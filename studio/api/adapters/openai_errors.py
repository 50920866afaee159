"""Errors as programs written for OpenAI's API expect them: `{"error": {"message", "type", "param", "code"}}`.

Every path below /v1 answers in this form; errors.py chooses the status and the message.
"""

from collections.abc import Mapping

from fastapi.responses import JSONResponse

PREFIX = "/v1/"
CODES = {
    400: "invalid_value",
    401: "invalid_api_key",
    403: "forbidden",
    404: "not_found",
    409: "job_cancelled",
    413: "too_large",
    422: "invalid_value",
    429: "rate_limit_exceeded",
    500: "server_error",
    503: "server_stopping",
}
# Recipe fields that have another name in OpenAI's requests.
PARAM_OF_FIELD = {"shape": "size", "batch_size": "n"}
# OpenAI's clients retry after these statuses, and the same recipe would fail the same way, or be made twice.
FINAL_STATUSES = frozenset({409, 500})


def make_openai_error(
    status: int, *, title: str, message: str, fields: Mapping[str, str] | None = None
) -> JSONResponse:
    """Makes an error of OpenAI's form; `param` is the first field at fault; invalid requests get 400, not 422."""
    field = next(iter(fields or {}), None)
    error = {
        "message": message or title,
        "type": "server_error" if status >= 500 else "rate_limit_error" if status == 429 else "invalid_request_error",
        "param": PARAM_OF_FIELD.get(field, field) if field else None,
        "code": CODES.get(status),
    }
    headers = {"x-should-retry": "false"} if status in FINAL_STATUSES else None
    return JSONResponse({"error": error}, status_code=400 if status == 422 else status, headers=headers)

"""The OpenAPI document: FastAPI's own, with a summary and a worked example for every route.

Examples of requests are in examples/; examples of answers come from the fields of the response models (answers/). Each
description ends with the curl command of its example, which /api/docs shows.
"""

import re
from typing import Any

from fastapi import FastAPI

from studio.api.answers import events
from studio.api.examples import EXAMPLES
from studio.api.examples.example import Example

Operation = dict[str, Any]
Schema = dict[str, Any]


def install(app: FastAPI) -> None:
    """Installs the document, which is made once, at its first request."""
    make_document = app.openapi

    def describe() -> dict[str, Any]:
        if app.openapi_schema is None:
            document = make_document()
            schemas: dict[str, Schema] = document["components"]["schemas"]
            schemas |= events.make_schemas(f"{REFS}{{model}}")
            for example in EXAMPLES:
                operation = document["paths"].get(example.path, {}).get(example.method.lower())
                if operation is not None:
                    _add(operation, example, schemas)
        return make_document()

    app.openapi = describe


REFS = "#/components/schemas/"


def make_example(schema: Schema, schemas: dict[str, Schema]) -> Any:
    """Makes an example for a schema: its own, or one of its parts, without optional ones whose example is null."""
    if "examples" in schema:
        return schema["examples"][0]
    if "$ref" in schema:
        return make_example(schemas[schema["$ref"].removeprefix(REFS)], schemas)
    if "items" in schema:
        return [make_example(schema["items"], schemas)]
    shown = {
        name: part
        for name, part in schema.get("properties", {}).items()
        if name in schema.get("required", ()) or part.get("examples") != [None]
    }
    return {name: make_example(part, schemas) for name, part in shown.items()}


def _add(operation: Operation, example: Example, schemas: dict[str, Schema]) -> None:
    operation["summary"] = example.summary
    operation["description"] = f"{operation.get('description', '')}\n\n```bash\n{example.curl}\n```"
    _add_parameters(operation, example)
    for media_type, media in operation.get("requestBody", {}).get("content", {}).items():
        sent = example.form or example.body
        if sent is not None and media_type in ("application/json", "application/x-www-form-urlencoded"):
            media["example"] = sent
    for status, response in operation["responses"].items():
        content = response.get("content", {}).get("application/json", {})
        if status.startswith("2") and content.get("schema"):
            content["example"] = make_example(content["schema"], schemas)
        if status.startswith("2") and example.lines is not None:
            response["content"]["text/event-stream"]["example"] = example.lines


def _add_parameters(operation: Operation, example: Example) -> None:
    url, _, query = example.url.partition("?")
    filled = re.fullmatch(re.sub(r"\{(\w+)\}", r"(?P<\1>[^/]+)", example.path), url)
    assert filled is not None, f"{example.url} is no address of {example.path}"
    values = filled.groupdict() | dict(part.split("=", 1) for part in query.split("&") if part)
    for parameter in operation.get("parameters", []):
        if parameter["name"] in values:
            parameter["example"] = values[parameter["name"]]

"""A text encoder over HTTP, as a FastAPI application; encoder_server.py starts it.

`POST /encode` takes a model, a prompt and a negative prompt, and answers with the embeddings as safetensors;
`GET /health` says which model is served. Prompts are encoded one at a time.
"""

import secrets
import threading
from dataclasses import replace
from typing import Annotated, Any

from fastapi import Depends, FastAPI, HTTPException, Response
from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer
from pydantic import BaseModel
from safetensors.numpy import save

from pipelines.commands import asked
from pipelines.errors import RecipeError
from pipelines.families.remote_encoder import ENCODE_PATH
from pipelines.models.catalog import Catalog
from pipelines.stages import Family


class Question(BaseModel):
    """A request: the prompts to encode; `model` guards against asking the wrong server."""

    model: str
    prompt: str
    negative_prompt: str | None = None


def build_app(family: Family, catalog: Catalog, *, token: str | None) -> FastAPI:
    """Builds the server around a loaded and warm text encoder."""
    app = FastAPI(title="Lumesh text encoder", docs_url=None, redoc_url=None, openapi_url=None)
    turn = threading.Lock()
    # This server needs no pictures, even for models that start from one: the client encodes those.
    of_words = replace(catalog, models=tuple(replace(model, min_images=0) for model in catalog.models))

    def check_token(
        sent: Annotated[HTTPAuthorizationCredentials | None, Depends(HTTPBearer(auto_error=False))],
    ) -> None:
        if token and not (sent and secrets.compare_digest(sent.credentials.encode(), token.encode())):
            raise HTTPException(401, "the bearer token is missing or wrong")

    @app.get("/health")
    def tell_health() -> dict[str, Any]:
        return {"status": "ok", "model": family.model.id}

    @app.post(ENCODE_PATH, dependencies=[Depends(check_token)])
    def encode(question: Question) -> Response:
        if question.model != family.model.id:
            raise HTTPException(409, f"this server encodes for {family.model.id}, not for {question.model}")
        try:
            recipe = asked.make_recipe(of_words, {**question.model_dump(), "seed": 0})
        except RecipeError as error:
            raise HTTPException(422, str(error)) from error
        with turn:
            embeddings = family.encode(recipe)
        content = save(dict(embeddings), metadata={"model_id": family.model.id})
        return Response(content, media_type="application/octet-stream")

    return app

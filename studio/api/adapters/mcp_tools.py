"""The five tools of `/mcp`: list_models, submit, status, result, cancel.

None of them waits for a picture: clients give up on long calls. Not here: how a message arrives (mcp.py).
"""

import asyncio
import base64
import io
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mcp.server.lowlevel import Server
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from mcp.types import ContentBlock, ImageContent, TextContent, Tool, ToolAnnotations
from PIL import Image
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from pipelines.errors import LumeshError
from pipelines.loras.fit import find_misfit
from pipelines.messages import NOTHING, english
from studio import asking
from studio.api.routes.media import find_output_file
from studio.jobs.costs.offers import describe_models
from studio.jobs.job import Job
from studio.jobs.states import JobState
from studio.library.files import poster_of
from studio.library.records import Output
from studio.visit import Visit

INSTRUCTIONS = "submit answers with a job's id at once; ask status until its state is done, then fetch the result."
MAX_IMAGE_BYTES = 700_000  # for all pictures of a result: clients drop answers above 1 MB, and base64 adds a third
TOLD_OF_JOB = ("id", "state", "position", "reason", "phase", "step", "steps", "eta_s", "error", "notes")
TOLD_OF_MODEL = ("id", "title", "description", "knows", "licence", "is_resident", "defaults", "limits")

Result = dict[str, Any] | Sequence[ContentBlock]


@dataclass(frozen=True, kw_only=True)
class _Call:
    """One call of a tool: the visitor, the arguments, and the address under which the client reached us."""

    visit: Visit
    arguments: dict[str, Any]
    base_url: str

    def find_job(self) -> Job:
        return self.visit.get_job(self.arguments["job_id"])


class NotDoneError(LumeshError):
    """The job has no result: it has not ended yet, or it failed."""

    title = english("There is no result")


class McpResponse(Response):
    """The ASGI response in which the protocol's server answers the current request."""

    def __init__(self, server: Server) -> None:
        super().__init__()
        self._server = server

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Runs the server for this one message."""
        manager = StreamableHTTPSessionManager(app=self._server, json_response=True, stateless=True)
        async with manager.run():
            await manager.handle_request(scope, receive, send)


def make_server(visit: Visit, *, base_url: str) -> Server:
    """Makes a server whose tools act for this visitor."""
    server = Server("Lumesh", instructions=INSTRUCTIONS)

    async def list_tools() -> list[Tool]:
        return list(TOOLS)

    async def call_tool(name: str, arguments: dict[str, Any]) -> Result:
        if name not in _RUN:
            raise LumeshError(
                english(f"There is no tool {name!r}."), advice=english(f"Known tools: {', '.join(_RUN)}.")
            )
        call = _Call(visit=visit, arguments=arguments, base_url=base_url)
        return await asyncio.to_thread(_RUN[name], call)

    server.list_tools()(list_tools)
    server.call_tool()(call_tool)
    return server


def _list_models(call: _Call) -> dict[str, Any]:
    catalog = call.visit.studio.catalog
    loras = catalog.find_loras()
    fitting = {model.id: [lora.ref for lora in loras if not find_misfit(lora, model)] for model in catalog.models}
    return {
        "models": [
            {name: model[name] for name in TOLD_OF_MODEL}
            | {"shapes": [shape["shape"] for shape in model["shapes"]], "loras": fitting[model["id"]]}
            for model in describe_models(catalog, call.visit.database)
        ]
    }


def _submit(call: _Call) -> dict[str, Any]:
    fields = {"model": call.visit.studio.default_model.id, **call.arguments}
    [job] = asking.submit(call.visit, [asking.prepare_fields(call.visit, fields)])
    return _tell(call.visit.get_job(job.id))


def _status(call: _Call) -> dict[str, Any]:
    return _tell(call.find_job())


def _cancel(call: _Call) -> dict[str, Any]:
    return _tell(asking.cancel(call.visit, call.arguments["job_id"]))


def _result(call: _Call) -> Sequence[ContentBlock]:
    """Returns each picture, or a video's poster, then the URLs of the files and the recipe that reproduces them."""
    job = call.find_job()
    if job.error is not None:
        raise NotDoneError(english(f"{job.error['title']}: {job.error['detail']}"), advice=english(job.error["advice"]))
    if job.state is not JobState.DONE:
        advice = NOTHING if job.state.is_final else english("Ask status until its state is done.")
        raise NotDoneError(english(f"Job {job.id} is {job.state}: it {job.state.meaning}."), advice=advice)
    outputs = [call.visit.get_output(link["id"]) for link in job.outputs]
    pictures = [_show(call.visit, output, max_bytes=MAX_IMAGE_BYTES // len(outputs)) for output in outputs]
    links = [{**link, "url": f"{call.base_url}{link['url']}"} for link in job.outputs]
    told = {"job_id": job.id, "outputs": links, "recipe": job.recipe.to_json(), "notes": list(job.notes)}
    return [*pictures, TextContent(type="text", text=json.dumps(told, indent=2))]


def _tell(job: Job) -> dict[str, Any]:
    fields = job.to_json()
    return {name: fields[name] for name in TOLD_OF_JOB}


def _show(visit: Visit, output: Output, *, max_bytes: int) -> ImageContent:
    file = find_output_file(visit, output, poster_of(output.file) if output.kind == "video" else output.file)
    thumb = find_output_file(visit, output, output.thumb)
    content, kind = choose_image(file, thumb, max_bytes=max_bytes)
    return ImageContent(type="image", data=base64.b64encode(content).decode(), mimeType=kind)


def choose_image(file: Path, thumb: Path, *, max_bytes: int) -> tuple[bytes, str]:
    """Returns the file if it is small enough, else a JPEG of it, else its thumbnail; and the media type."""
    content = file.read_bytes()
    if len(content) <= max_bytes:
        return content, f"image/{file.suffix.removeprefix('.')}"
    content = _encode_jpeg(file)
    return (content, "image/jpeg") if len(content) <= max_bytes else (thumb.read_bytes(), "image/webp")


def _encode_jpeg(file: Path) -> bytes:
    encoded = io.BytesIO()
    with Image.open(file) as picture:
        picture.convert("RGB").save(encoded, "JPEG", quality=88)
    return encoded.getvalue()


def _describe_input(required: Sequence[str], **properties: tuple[str, str]) -> dict[str, Any]:
    """Makes the JSON Schema of a tool's arguments from their types and descriptions."""
    return {
        "type": "object",
        "properties": {name: {"type": kind, "description": text} for name, (kind, text) in properties.items()},
        "required": list(required),
        "additionalProperties": False,
    }


_JOB_INPUT = _describe_input(["job_id"], job_id=("string", "what submit answered"))
_RECIPE_INPUT = _describe_input(
    ["prompt"],
    prompt=("string", "what the picture or video shows"),
    model=("string", "an id from list_models; left out: the default model"),
    negative_prompt=("string", "what it should not show"),
    shape=("string", "one of the model's shapes, such as 1024x1024"),
    seed=("integer", "the same seed gives the same picture; left out: a random one"),
    steps=("integer", "denoising steps; left out: the model's default"),
    guidance_scale=("number", "how closely to follow the prompt; left out: the model's default"),
    batch_size=("integer", "pictures at once, from seed on"),
    scheduler=("string", "one of the model's schedulers"),
    flow_shift=("number", "of models of video"),
    step_cache=("string", "of models that have one: mild, strong or taylor reuse earlier steps, which is faster"),
    fps=("integer", "frames a second, of models of video"),
    strength=("number", "with images, for models that have it: near 0 keeps the picture, 1 makes nearly all anew"),
)
_RECIPE_INPUT["properties"]["sigmas"] = {
    "type": "array",
    "items": {"type": "number"},
    "description": "the steps' noise levels, falling, in place of steps; for schedulers that take them",
}
_RECIPE_INPUT["properties"]["images"] = {
    "type": "array",
    "items": {"type": "string"},
    "description": "ids of outputs or uploads to start from, for models that take some",
}
_RECIPE_INPUT["properties"]["loras"] = {
    "type": "array",
    "items": _describe_input(
        ["ref"],
        ref=("string", "its name; a wrong one answers with those there are"),
        scale=("number", "1 if left out"),
        expert=("string", "high, low or both: of a model with two experts the one that it changes, if not as it says"),
    ),
    "description": "LoRAs to apply",
}

_READS = ToolAnnotations(readOnlyHint=True)
TOOLS = (
    Tool(
        name="list_models",
        description="The models of this studio, the default one first, each with its shapes, defaults, limits and the "
        "LoRAs that fit it.",
        inputSchema=_describe_input([]),
        annotations=_READS,
    ),
    Tool(
        name="submit",
        description="Queues a picture or video and answers at once with the job's id and its place in line.",
        inputSchema=_RECIPE_INPUT,
        annotations=ToolAnnotations(readOnlyHint=False, destructiveHint=False),
    ),
    Tool(
        name="status",
        description="How far a job is: queued (position, eta_s), running (phase, step), done, failed (error), "
        "cancelled or interrupted.",
        inputSchema=_JOB_INPUT,
        annotations=_READS,
    ),
    Tool(
        name="result",
        description="The pictures of a job that is done, of a video one frame, with the files' URLs and the recipe.",
        inputSchema=_JOB_INPUT,
        annotations=_READS,
    ),
    Tool(
        name="cancel",
        description="Cancels a job: a waiting one at once, a running one after its current step.",
        inputSchema=_JOB_INPUT,
        annotations=ToolAnnotations(readOnlyHint=False, destructiveHint=True, idempotentHint=True),
    ),
)
_RUN: dict[str, Callable[[_Call], Result]] = {
    "list_models": _list_models,
    "submit": _submit,
    "status": _status,
    "result": _result,
    "cancel": _cancel,
}

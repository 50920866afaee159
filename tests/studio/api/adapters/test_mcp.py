"""The real MCP client against a studio that runs: five tools, from the list of models to the picture."""

import asyncio
import base64
import io
import json
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient
from mcp import ClientSession
from mcp.client.streamable_http import streamable_http_client
from mcp.types import CallToolResult
from PIL import Image

from studio.api.adapters.mcp_tools import choose_image
from studio.worker.loop import Worker

Studio = Any  # conftest.RunningStudio
TOOLS = {"list_models", "submit", "status", "result", "cancel"}


@pytest.fixture(scope="module")
def studio(shared_studio: Studio) -> Studio:
    return shared_studio


@pytest.fixture
def use(studio: Studio) -> Callable[[Callable[[ClientSession], Awaitable[Any]]], Any]:
    """Runs what a client does in a session of its own."""

    def use(talk: Callable[[ClientSession], Awaitable[Any]]) -> Any:
        async def run() -> Any:
            async with (
                streamable_http_client(f"{studio.client.base_url}/mcp") as (read, write, _),
                ClientSession(read, write) as session,
            ):
                await session.initialize()
                return await talk(session)

        return asyncio.run(run())

    return use


def read_text(result: CallToolResult) -> str:
    return "".join(block.text for block in result.content if block.type == "text")


def test_only_the_five_tools_are_offered(use: Callable[..., Any]) -> None:
    listed = use(lambda session: session.list_tools())
    assert {tool.name for tool in listed.tools} == TOOLS
    assert all(tool.description for tool in listed.tools)


def test_gradios_own_server_stays_off(studio: Studio) -> None:
    message = {"jsonrpc": "2.0", "id": 1, "method": "tools/list"}
    headers = {"Accept": "application/json, text/event-stream"}
    assert not studio.client.post("/gradio_api/mcp/", json=message, headers=headers).is_success


def test_models_name_the_loras_that_fit_them(
    use: Callable[..., Any], studio: Studio, encode_lora: Callable[..., bytes]
) -> None:
    path = "/api/v1/loras"
    studio.client.post(path, params={"name": "pixel.safetensors"}, content=encode_lora("sdxl")).raise_for_status()
    listed = use(lambda session: session.call_tool("list_models", {})).structuredContent["models"]
    loras = {model["id"]: model["loras"] for model in listed}
    assert (loras["demo-sdxl"], loras["demo-flux2"]) == (["pixel"], [])
    studio.client.delete(f"{path}/pixel").raise_for_status()


NOTES = ["Words do not change midway here: [cat:dog:0.5] is read as it is written."]


def test_from_the_models_to_the_picture(use: Callable[..., Any], studio: Studio) -> None:
    async def talk(session: ClientSession) -> CallToolResult:
        models = (await session.call_tool("list_models", {})).structuredContent["models"]
        recipe = {"model": models[0]["id"], "prompt": "A red [sail|boat]", "shape": models[0]["shapes"][1], "seed": 4}
        submitted = await session.call_tool("submit", {**recipe, "steps": 2, "batch_size": 2})
        job_id = submitted.structuredContent["id"]
        assert submitted.structuredContent["notes"] == NOTES
        await asyncio.to_thread(studio.wait_for_state, job_id, "done")
        assert (await session.call_tool("status", {"job_id": job_id})).structuredContent["state"] == "done"
        return await session.call_tool("result", {"job_id": job_id})

    result = use(talk)
    assert not result.isError
    *pictures, text = result.content
    told = json.loads(text.text)
    assert told["notes"] == NOTES
    assert (told["recipe"]["seed"], [output["seed"] for output in told["outputs"]]) == (4, [4, 5])
    for picture, output in zip(pictures, told["outputs"], strict=True):
        content = base64.b64decode(picture.data)
        assert (picture.type, picture.mimeType) == ("image", "image/png")
        assert content == studio.client.get(output["url"]).content
        assert Image.open(io.BytesIO(content)).size == (320, 192)


def test_a_job_is_cancelled_and_then_has_no_result(use: Callable[..., Any], studio: Studio) -> None:
    async def talk(session: ClientSession) -> tuple[CallToolResult, CallToolResult]:
        submitted = await session.call_tool("submit", {"prompt": "A long one", "steps": 100})
        job_id = submitted.structuredContent["id"]
        early = await session.call_tool("result", {"job_id": job_id})
        await session.call_tool("cancel", {"job_id": job_id})
        await asyncio.to_thread(studio.wait_for_state, job_id, "cancelled")
        return early, await session.call_tool("result", {"job_id": job_id})

    early, late = use(talk)
    assert early.isError
    assert "Ask status" in read_text(early)
    assert late.isError
    assert "is cancelled: it ended because somebody asked for it" in read_text(late)


@pytest.mark.parametrize(
    ("name", "arguments", "message"),
    [
        ("submit", {"prompt": "A boat", "steps": 1000}, "steps: 1000 is out of range"),
        ("submit", {"prompt": "A boat", "model": "nope"}, "Known models"),
        ("submit", {"prompt": "A boat", "colour": "red"}, "'colour' was unexpected"),
        ("status", {"job_id": "nope"}, "There is no job 'nope'"),
        ("status", {}, "'job_id' is a required property"),
        ("purge", {}, "Known tools: list_models"),
    ],
)
def test_what_cannot_be_is_said(use: Callable[..., Any], name: str, arguments: dict[str, Any], message: str) -> None:
    result = use(lambda session: session.call_tool(name, arguments))
    assert result.isError
    assert message in read_text(result)


def test_another_sites_page_uses_no_tool(studio: Studio) -> None:
    assert studio.client.post("/mcp", json={}, headers={"Sec-Fetch-Site": "cross-site"}).status_code == 403
    assert studio.client.get("/mcp").status_code == 405


@pytest.mark.parametrize(("max_bytes", "kind"), [(10**6, "image/png"), (220_000, "image/jpeg"), (10_000, "image/webp")])
def test_a_picture_is_made_small_enough_for_clients(tmp_path: Path, max_bytes: int, kind: str) -> None:
    file, thumb = tmp_path / "noise.png", tmp_path / "noise.webp"
    noise = Image.effect_noise((512, 512), 100)
    noise.save(file)
    noise.resize((64, 64)).save(thumb, quality=50)
    content, found = choose_image(file, thumb, max_bytes=max_bytes)
    assert found == kind == Image.MIME[Image.open(io.BytesIO(content)).format]
    assert len(content) <= max_bytes


def test_of_a_video_one_frame_is_shown(client: TestClient, worker: Worker) -> None:
    job_id = call(client, "submit", {"prompt": "A boat", "model": "clips"})["id"]
    worker.run_next()
    picture, text = call(client, "result", {"job_id": job_id})
    assert Image.open(io.BytesIO(base64.b64decode(picture["data"]))).size == (96, 64)
    assert json.loads(text["text"])["outputs"][0]["kind"] == "video"


def call(client: TestClient, name: str, arguments: dict[str, Any]) -> Any:
    """A tool called by one message alone, as the protocol allows."""
    message = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": name, "arguments": arguments}}
    answer = client.post("/mcp", json=message, headers={"Accept": "application/json, text/event-stream"})
    result = answer.json()["result"]
    assert not result["isError"], result
    return result.get("structuredContent") or result["content"]

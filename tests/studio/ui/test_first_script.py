"""A page gets its first script on its way out; nothing else is touched."""

import re
from pathlib import Path

import pytest
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import FileResponse, HTMLResponse, JSONResponse, StreamingResponse
from starlette.routing import Route
from starlette.testclient import TestClient

from studio.ui import first_paint
from studio.ui.first_script import ADDRESS_SCRIPT, EARLY_SCRIPT, THEME_SCRIPT, FirstScript

PAGE = "<!doctype html><html><head><script>later()</script></head><body>ä <head></body></html>"


@pytest.fixture
def client(tmp_path: Path) -> TestClient:
    async def page(_request: Request) -> HTMLResponse:
        return HTMLResponse(PAGE)

    async def text(_request: Request) -> JSONResponse:
        return JSONResponse({"text": "<head>"})

    async def events(_request: Request) -> StreamingResponse:
        return StreamingResponse(iter(["data: <head>\n\n", "data: 2\n\n"]), media_type="text/event-stream")

    async def file(_request: Request) -> FileResponse:
        return FileResponse(tmp_path / "page.html")

    (tmp_path / "page.html").write_text(PAGE + "." * 2**17, "utf-8")
    routes = [Route("/", page), Route("/text", text), Route("/events", events), Route("/file", file)]
    return TestClient(Starlette(routes=routes, middleware=[Middleware(FirstScript)]))


def test_it_comes_before_every_other_script_and_once(client: TestClient) -> None:
    answer = client.get("/")
    scripts = f"<script>{THEME_SCRIPT}{ADDRESS_SCRIPT}{EARLY_SCRIPT}</script>"
    assert answer.text == PAGE.replace("<head>", f"<head>{scripts}", 1)
    assert answer.headers["content-length"] == str(len(answer.content))


def test_the_first_paint_stands_before_gradios_element_and_needs_no_file() -> None:
    late = '<script>window.gradio_config = {}</script><link rel="stylesheet" href="a.css">'
    body = PAGE.replace("<head></body>", "<gradio-app></gradio-app></body>").replace("</head>", f"{late}</head>")
    routes = [Route("/", lambda _request: HTMLResponse(body))]
    sent = TestClient(Starlette(routes=routes, middleware=[Middleware(FirstScript)])).get("/").text
    assert sent.endswith(f"</head><body>ä {first_paint.HTML}{late}<gradio-app></gradio-app></body></html>")
    assert "src=" not in first_paint.HTML
    assert "url(" not in first_paint.HTML


def test_the_first_paint_has_the_colours_of_the_page_that_follows() -> None:
    tokens = (Path(first_paint.__file__).parent / "static" / "css" / "tokens.css").read_text("utf-8")
    found = re.findall(r"(--[a-z]+): ([^;]+);", first_paint.HTML)
    assert len(found) == 8
    for name, value in found:
        assert f"{name}: {value};" in tokens


def test_what_is_not_the_page_stays_as_it_is(client: TestClient) -> None:
    assert client.get("/text").json() == {"text": "<head>"}
    assert client.get("/events").text == "data: <head>\n\ndata: 2\n\n"
    file = client.get("/file")
    assert file.text == PAGE + "." * 2**17
    assert file.headers["content-length"] == str(len(file.content))

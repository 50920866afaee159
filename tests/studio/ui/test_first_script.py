"""A page gets its first script on its way out; nothing else is touched."""

from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, StreamingResponse
from starlette.routing import Route
from starlette.testclient import TestClient

from studio.ui.first_script import FRAMES_SCRIPT, THEME_SCRIPT, FirstScript

PAGE = "<!doctype html><html><head><script>later()</script></head><body>ä <head></body></html>"


def _client() -> TestClient:
    async def page(_request: Request) -> HTMLResponse:
        return HTMLResponse(PAGE)

    async def text(_request: Request) -> JSONResponse:
        return JSONResponse({"text": "<head>"})

    async def events(_request: Request) -> StreamingResponse:
        return StreamingResponse(iter(["data: <head>\n\n", "data: 2\n\n"]), media_type="text/event-stream")

    routes = [Route("/", page), Route("/text", text), Route("/events", events)]
    return TestClient(Starlette(routes=routes, middleware=[Middleware(FirstScript)]))


def test_it_comes_before_every_other_script_and_once() -> None:
    answer = _client().get("/")
    scripts = f"<script>{THEME_SCRIPT}{FRAMES_SCRIPT}</script>"
    assert answer.text == PAGE.replace("<head>", f"<head>{scripts}", 1)
    assert answer.headers["content-length"] == str(len(answer.content))


def test_what_is_no_page_stays_as_it_is() -> None:
    assert _client().get("/text").json() == {"text": "<head>"}
    assert _client().get("/events").text == "data: <head>\n\ndata: 2\n\n"

"""Only those of Gradio's routes exist that the page and its clients use; a new one is closed."""

import pytest
from fastapi import FastAPI
from fastapi.testclient import TestClient
from starlette.middleware import Middleware
from starlette.websockets import WebSocketDisconnect

from studio.api.middleware.gradio import NeededRoutesOnly, is_allowed

USED = (
    ("GET", "/"),
    ("HEAD", "/"),
    ("GET", "/config"),
    ("GET", "/theme.css"),
    ("GET", "/favicon.ico"),
    ("GET", "/assets/index-1a2b.js"),
    ("GET", "/static/fonts/a/b.woff2"),
    ("GET", "/gradio_api/info"),
    ("POST", "/gradio_api/queue/join"),
    ("GET", "/gradio_api/queue/data"),
    ("POST", "/gradio_api/cancel"),
    ("POST", "/gradio_api/reset"),
    ("POST", "/gradio_api/run/submit"),
    ("POST", "/gradio_api/call/generate"),
    ("GET", "/gradio_api/call/generate/1a2b"),
    ("GET", "/gradio_api/heartbeat/1a2b"),
)
CLOSED = (
    ("GET", "/brand_new"),
    ("GET", "/gradio_api/brand_new"),
    ("POST", "/gradio_api/upload"),
    ("GET", "/gradio_api/file=/etc/passwd"),
    ("GET", "/gradio_api/file/etc/passwd"),
    ("GET", "/gradio_api/proxy=https://a"),
    ("POST", "/gradio_api/component_server"),
    ("POST", "/gradio_api/vibe-code"),
    ("GET", "/monitoring"),
    ("GET", "/token"),
    ("GET", "/openapi.json"),
    ("POST", "/login/"),
    ("PUT", "/config"),
)


@pytest.mark.parametrize(("method", "path"), USED)
def test_what_the_page_and_its_clients_use_is_open(method: str, path: str) -> None:
    assert is_allowed(method, path)


@pytest.mark.parametrize(("method", "path"), CLOSED)
def test_everything_else_is_closed_also_what_nobody_knows_yet(method: str, path: str) -> None:
    assert not is_allowed(method, path)


def test_a_made_up_route_answers_as_if_it_were_not_there() -> None:
    app = FastAPI(middleware=[Middleware(NeededRoutesOnly)])
    app.add_api_route("/brand_new", lambda: "open", methods=["GET"])
    app.add_api_route("/config", lambda: "open", methods=["GET"])
    client = TestClient(app)
    assert client.get("/config").status_code == 200
    refused = client.get("/brand_new")
    assert (refused.status_code, refused.json()["error"]["title"]) == (404, "Not found")
    with pytest.raises(WebSocketDisconnect), client.websocket_connect("/brand_new"):
        pass

"""Only those of Gradio's routes exist that the page and its clients use, and each session and event has its owner."""

import json
import logging
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from fastapi import FastAPI
from fastapi.testclient import TestClient
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.types import Receive, Scope, Send
from starlette.websockets import WebSocketDisconnect

from studio.access.people import PERSON, Person
from studio.api.middleware import gradio
from studio.api.middleware.gradio import NeededRoutesOnly, Owners, is_allowed

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
    app = FastAPI(middleware=[Middleware(NeededRoutesOnly, count_inputs={})])
    app.add_api_route("/brand_new", lambda: "open", methods=["GET"])
    app.add_api_route("/config", lambda: "open", methods=["GET"])
    client = TestClient(app)
    assert client.get("/config").status_code == 200
    refused = client.get("/brand_new")
    assert (refused.status_code, refused.json()["error"]["title"]) == (404, "Not found")
    with pytest.raises(WebSocketDisconnect), client.websocket_connect("/brand_new"):
        pass


class Behind:
    """In the place of Gradio: answers what it was asked, and each call with the event that its data names."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = Request(scope, receive)
        self.asked.append(scope["path"])
        call = json.loads(await request.body() or b"{}")
        if call.get("data") == ["fail"]:
            raise KeyError("named_endpoints")
        answer: Response = JSONResponse({"event_id": call["data"][0]}) if call.get("data") else Response("followed")
        await answer(scope, receive, send)


@pytest.fixture
def behind() -> Behind:
    return Behind()


@pytest.fixture
def ask(behind: Behind) -> Iterator[Callable[..., int]]:
    """`ask("ada", "GET", path)` is what Ada gets."""
    guarded = NeededRoutesOnly(behind, count_inputs={"generate": 3, "submit": 1, "status": 1, "0": 1})

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        name = dict(scope["headers"]).get(b"x-name", b"").decode()
        await guarded({**scope, PERSON: Person(owner=name, name=name, address="1.2.3.4")}, receive, send)

    client = TestClient(app)

    def ask(name: str, method: str, path: str, **call: Any) -> int:
        headers = {"X-Name": name}
        body = {"json": call} if method == "POST" else {}
        return client.request(method, path, headers=headers, **body).status_code

    yield ask
    client.close()


SESSION = "/gradio_api/queue/data?session_hash=hers"


def test_a_session_is_followed_and_cancelled_by_whoever_began_it(ask: Callable[..., int]) -> None:
    join = {"fn_index": 0, "session_hash": "hers", "data": ["event-1"]}
    assert ask("ada", "POST", "/gradio_api/queue/join", **join) == 200
    for name, status in (("eve", 404), ("ada", 200)):
        assert ask(name, "GET", SESSION) == status
        assert ask(name, "GET", "/gradio_api/heartbeat/hers") == status
        assert ask(name, "POST", "/gradio_api/cancel", session_hash="hers", fn_index=0, event_id="x") == status
        assert ask(name, "POST", "/gradio_api/cancel", session_hash=name, fn_index=0, event_id="event-1") == status
        assert ask(name, "POST", "/gradio_api/reset", event_id="event-1") == status
        assert ask(name, "POST", "/gradio_api/queue/join", **join) == status


def test_a_page_owns_its_session_from_its_first_sign_of_life_on(ask: Callable[..., int]) -> None:
    assert ask("ada", "GET", "/gradio_api/heartbeat/hers") == 200
    assert ask("eve", "GET", SESSION) == 404


def test_a_call_is_followed_by_whoever_made_it(ask: Callable[..., int]) -> None:
    assert ask("ada", "POST", "/gradio_api/call/submit", data=["event-2"]) == 200
    assert ask("eve", "GET", "/gradio_api/call/submit/event-2") == 404
    assert ask("eve", "GET", "/gradio_api/call/status/event-2") == 404
    assert ask("ada", "GET", "/gradio_api/call/submit/event-2") == 200


def test_a_long_name_has_an_owner_too(ask: Callable[..., int]) -> None:
    name = "s" * 5000
    assert ask("ada", "POST", "/gradio_api/queue/join", session_hash=name, data=["event-3"]) == 200
    assert ask("eve", "GET", f"/gradio_api/queue/data?session_hash={name}") == 404


def test_nobodys_sessions_push_out_those_of_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gradio, "MAX_OWNED", 3)
    owners = Owners()
    assert owners.claim("hers", "ada")
    for number in range(9):
        assert owners.claim(f"event {number}", "eve")
    assert not owners.claim("hers", "eve")
    assert not owners.claim("event 8", "ada")
    assert owners.claim("event 0", "ada"), "forgotten, as the oldest of hers"


FILE = {"path": "http://8.8.8.8/x.png", "meta": {"_type": "gradio.FileData"}}


@pytest.mark.parametrize(
    "call",
    [
        {"data": [FILE]},
        {"data": [[{"a": [FILE]}]]},
        {"data": ["a"], "event_data": FILE, "fn_index": 0},
        {"data": [{"url": "http://8.8.8.8/x.png", "meta": {"_type": "gradio.FileData"}}]},
        {"data": [{"path": "/etc/passwd"}]},
        {"data": []},
        {"data": "fail"},
        {"data": {"0": "a"}},
        {"loras": [1]},
        {},
    ],
)
@pytest.mark.parametrize("path", ["call/submit", "run/status", "run/status/"])
def test_a_file_that_gradio_would_fetch_and_what_is_no_call_never_reach_it(
    ask: Callable[..., int], behind: Behind, call: dict[str, Any], path: str
) -> None:
    assert ask("ada", "POST", f"/gradio_api/{path}", **call) == 422
    assert behind.asked == []


def test_too_few_values_never_reach_it(ask: Callable[..., int], behind: Behind) -> None:
    assert ask("ada", "POST", "/gradio_api/call/generate", data=["A boat"]) == 422
    assert ask("ada", "POST", "/gradio_api/queue/join", fn_index=0, session_hash="hers", data=[]) == 422
    assert behind.asked == []
    assert ask("ada", "POST", "/gradio_api/call/generate", data=["event-4", "demo-sdxl", {}]) == 200


def test_what_gradio_stumbles_over_is_an_answer_and_one_line_in_the_log(
    ask: Callable[..., int], caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING):
        assert ask("ada", "POST", "/gradio_api/call/submit", data=["fail"]) == 422
    (record,) = caplog.records
    assert record.getMessage() == "POST /gradio_api/call/submit: KeyError: 'named_endpoints'"
    assert record.exc_info is None

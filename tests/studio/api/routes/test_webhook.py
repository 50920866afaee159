"""The webhook over REST and its messages, received by a real server on this machine."""

import asyncio
import base64
import hashlib
import hmac
import http.server
import json
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
from fastapi import FastAPI
from fastapi.testclient import TestClient

from pipelines.messages import read_codes
from pipelines.models.catalog import Catalog
from studio.api.application import create_api
from studio.api.routes import webhook
from studio.database import Database
from studio.jobs import queue, webhooks
from studio.jobs.job import Job
from studio.services import webhook_sender
from studio.services.webhook_sender import send_due, start_due
from studio.settings import Settings


@dataclass
class Receiver:
    """Takes messages at `url` and answers them with `status`."""

    url: str = ""
    status: int = 204
    location: str = ""
    messages: list[tuple[dict[str, str], bytes]] = field(default_factory=list)


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    receiver = Receiver()

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            receiver.messages.append(({name.lower(): value for name, value in self.headers.items()}, body))
            self.send_response(receiver.status)
            if receiver.location:
                self.send_header("Location", receiver.location)
            self.end_headers()

        def log_message(self, *_args: Any) -> None:
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        receiver.url = f"http://127.0.0.1:{server.server_port}/told"
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield receiver
        server.shutdown()
        thread.join()


@pytest.fixture
def app(settings: Settings, database: Database, catalog: Catalog) -> FastAPI:
    """An application that may reach this machine."""
    return create_api(replace(settings, allow_private_webhooks=True), database, catalog)


def test_an_end_is_told_and_signed(
    app: FastAPI, database: Database, submit: Callable[..., Job], receiver: Receiver
) -> None:
    answer = TestClient(app).put("/api/v1/webhook", json={"url": receiver.url}).json()
    job = submit("A boat")
    queue.cancel(database, job.id)
    asyncio.run(send_due(database, allows_private=True))
    asyncio.run(send_due(database, allows_private=True))
    ((headers, body),) = receiver.messages
    message = json.loads(body)
    assert (message["type"], message["data"]["job"]["id"]) == ("job.cancelled", job.id)
    key = base64.b64decode(answer["secret"].removeprefix("whsec_"))
    signed = f"{headers['webhook-id']}.{headers['webhook-timestamp']}.".encode() + body
    digest = base64.b64encode(hmac.new(key, signed, hashlib.sha256).digest()).decode()
    assert headers["webhook-signature"] == f"v1,{digest}"
    assert TestClient(app).get("/api/v1/webhook").json()["webhook"]["told"] == "it took the message"


def test_a_refusal_is_kept_for_the_next_attempt_and_a_redirect_is_one(
    app: FastAPI, database: Database, submit: Callable[..., Job], receiver: Receiver
) -> None:
    webhooks.set_webhook(database, owner="local", url=receiver.url)
    queue.cancel(database, submit().id)
    receiver.status, receiver.location = 302, receiver.url
    asyncio.run(send_due(database, allows_private=True))
    asyncio.run(send_due(database, allows_private=True))
    assert len(receiver.messages) == 1
    found = webhooks.read_webhook(database, owner="local")
    assert (found.told, found.attempts) == ("it answered 302", 1)


def test_private_addresses_are_told_nothing_unless_allowed(
    client: TestClient, app: FastAPI, receiver: Receiver
) -> None:
    refused = client.put("/api/v1/webhook", json={"url": receiver.url})
    assert (refused.status_code, "is not on the public internet" in refused.text) == (422, True)
    TestClient(app).put("/api/v1/webhook", json={"url": receiver.url})  # where it is allowed
    told = client.post("/api/v1/webhook/ping").json()
    assert read_codes(told) == {"is_taken": False, "told": "127.0.0.1 is not on the public internet"}
    assert receiver.messages == []
    assert TestClient(app).post("/api/v1/webhook/ping").json()["is_taken"]
    assert json.loads(receiver.messages[0][1])["type"] == "ping"


def test_a_webhook_is_set_once_looked_at_without_its_secret_and_removed(client: TestClient) -> None:
    assert client.get("/api/v1/webhook").json() == {"webhook": None}
    assert client.post("/api/v1/webhook/ping").status_code == 404
    set_ = client.put("/api/v1/webhook", json={"url": "https://example.com/told"}).json()
    assert set_["secret"].startswith("whsec_")
    assert set_["secret"] not in client.get("/api/v1/webhook").text
    assert client.delete("/api/v1/webhook").json() == {"webhook": None}
    refused = client.put("/api/v1/webhook", json={"url": "ftp://example.com"})
    assert refused.status_code == 422
    assert "write https://host/path" in refused.json()["error"]["detail"]


def test_test_messages_are_few(client: TestClient, monkeypatch: pytest.MonkeyPatch) -> None:
    async def send(*_: object, **__: object) -> str:
        return ""

    monkeypatch.setattr(webhook, "send_ping", send)
    client.put("/api/v1/webhook", json={"url": "https://example.com/told"})
    answers = [client.post("/api/v1/webhook/ping").status_code for _ in range(8)]
    assert answers == [200] * 6 + [429] * 2


def test_a_receiver_that_hangs_delays_only_its_own_messages(
    database: Database, submit: Callable[..., Job], monkeypatch: pytest.MonkeyPatch
) -> None:
    for owner in ("ann", "bob"):
        webhooks.set_webhook(database, owner=owner, url=f"https://example.com/{owner}")
        for _ in range(2):
            queue.cancel(database, submit(owner=owner).id)
    told: list[str] = []

    async def post(url: str, *_: object, **__: object) -> str:
        told.append(url)
        if url.endswith("ann"):
            await asyncio.Event().wait()
        return ""

    async def run() -> None:
        under_way: dict[str, asyncio.Task[None]] = {}
        for _ in range(3):
            await start_due(database, under_way, allows_private=False)
            if "bob" in under_way:
                await under_way["bob"]
        for task in under_way.values():
            task.cancel()

    monkeypatch.setattr(webhook_sender, "post", post)
    asyncio.run(run())
    assert told == ["https://example.com/ann", "https://example.com/bob", "https://example.com/bob"]

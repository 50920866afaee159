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

from pipelines.catalog import Catalog
from pipelines.messages import read_codes
from studio.api.application import create_api
from studio.database import Database
from studio.jobs import queue, webhooks
from studio.jobs.job import Job
from studio.services.webhook_sender import send_due
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
    client.put("/api/v1/webhook", json={"url": receiver.url})
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

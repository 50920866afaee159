"""Presets on a hub of our own: the answers of the real API, given by a small HTTP server on this machine."""

import base64
import json
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from hashlib import sha1
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import unquote

import pytest
from fastapi.testclient import TestClient

from studio.access.few import FewAtOnce
from studio.library.presets.shipped import read_shipped

REPO = "ada/presets"
URL = f"/api/v1/hub/{REPO}"
COMMIT = "0123456789abcdef0123456789abcdef01234567"
TOKEN = {"X-Hub-Token": "hf_ada"}
SHIPPED = "sailboat-at-sunset"
DOCUMENT = {"schema": 1, "title": "Hers", "recipe": {"model": "demo-sdxl", "prompt": "A boat"}}


@dataclass(kw_only=True)
class StubHub:
    """What the stub holds, and what it was asked with."""

    url: str = ""
    files: dict[str, bytes] = field(default_factory=dict)
    is_there: bool = True
    asked: list[tuple[str, str]] = field(default_factory=list)
    tokens: set[str | None] = field(default_factory=set)


def _make_handler(hub: StubHub) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        """The routes that listing, downloading and committing ask for."""

        def do_HEAD(self) -> None:
            self._answer()

        def do_GET(self) -> None:
            self._answer()

        def do_POST(self) -> None:
            self._answer()

        def log_message(self, *_arguments: Any) -> None:
            """Keeps the test run quiet."""

        def _answer(self) -> None:
            path = unquote(self.path.partition("?")[0])
            body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            if path == "/":  # whether anybody is there
                self._send(200, {})
                return
            hub.asked.append((self.command, path))
            hub.tokens.add(self.headers.get("Authorization"))
            api = f"/api/datasets/{REPO}"
            if path == "/api/validate-yaml":
                self._send(200, {"errors": [], "warnings": []})
            elif path == "/api/repos/create":
                hub.is_there = True
                self._send(200, {"url": f"{hub.url}/datasets/{REPO}"})
            elif not hub.is_there or REPO not in path:
                # the real hub answers 401 for what does not exist, so that private names do not leak
                self._send(401, {}, {"X-Error-Code": "RepoNotFound"})
            elif path == f"{api}/tree/main":
                self._send(200, [_list_file(name, content) for name, content in hub.files.items()])
            elif path.startswith(f"{api}/revision/") or path == api:
                self._send(200, {"id": REPO, "sha": COMMIT, "siblings": []})
            elif path == f"{api}/preupload/main":
                names = [file["path"] for file in json.loads(body)["files"]]
                modes = [{"path": name, "uploadMode": "regular", "shouldIgnore": False} for name in names]
                self._send(200, {"files": modes})
            elif path == f"{api}/commit/main":
                self._commit(body)
            else:
                self._send_file(path.partition("/resolve/")[2].partition("/")[2])

        def _commit(self, body: bytes) -> None:
            if self.headers.get("Authorization") != "Bearer hf_ada":
                self._send(403, {"error": "no"})
                return
            for line in map(json.loads, body.splitlines()):
                if line["key"] == "file":
                    hub.files[line["value"]["path"]] = base64.b64decode(line["value"]["content"])
            self._send(
                200, {"success": True, "commitOid": COMMIT, "commitUrl": f"{hub.url}/datasets/{REPO}/commit/{COMMIT}"}
            )

        def _send_file(self, name: str) -> None:
            content = hub.files.get(name)
            if content is None:
                self._send(404, {}, {"X-Error-Code": "EntryNotFound"})
            else:
                self._send(200, content, {"ETag": f'"{sha1(content).hexdigest()}"', "X-Repo-Commit": COMMIT})

        def _send(self, status: int, content: Any, headers: dict[str, str] | None = None) -> None:
            content = content if isinstance(content, bytes) else json.dumps(content).encode()
            self.send_response(status)
            for name, value in {"Content-Type": "application/json", **(headers or {})}.items():
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(content)

    return Handler


def _list_file(name: str, content: bytes) -> dict[str, Any]:
    return {"type": "file", "path": name, "size": len(content), "oid": sha1(content).hexdigest()}


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch, client: TestClient) -> Iterator[StubHub]:
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    hub = StubHub()
    server = ThreadingHTTPServer(("127.0.0.1", 0), _make_handler(hub))
    server.daemon_threads = True
    hub.url = f"http://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    state = client.app.state
    state.studio = replace(state.studio, hub_endpoint=hub.url)
    yield hub
    server.shutdown()
    thread.join()
    server.server_close()


def test_presets_are_pushed_and_come_back_with_their_origin(client: TestClient, hub: StubHub) -> None:
    hub.is_there = False
    answer = client.post(f"{URL}/push", json={"ids": [SHIPPED, "cactus-at-noon"]}, headers=TOKEN)
    assert (answer.status_code, answer.json()) == (201, {"url": f"{hub.url}/datasets/{REPO}"})
    assert "lumesh-presets" in hub.files["README.md"].decode()
    assert hub.tokens == {"Bearer hf_ada"}
    names = client.get(URL).json()["names"]
    assert len(names) == 2
    assert all(name.endswith(".lumesh.json") for name in names)
    pulled = client.post(f"{URL}/pull", json={"names": names, "known": "copy"}).json()
    titles = {f"{title} (2)" for title in (read_shipped()[SHIPPED].title, "Green cactus at noon")}
    assert {preset["title"] for preset in pulled["presets"]} == titles
    assert pulled["presets"][0]["origin"] == {"kind": "hub", "name": REPO}
    assert client.get(pulled["presets"][0]["thumb_url"]).headers["content-type"] == "image/webp"


def test_pushing_the_same_preset_again_keeps_one_file(client: TestClient, hub: StubHub) -> None:
    for _ in range(2):
        assert client.post(f"{URL}/push", json={"ids": [SHIPPED]}, headers=TOKEN).status_code == 201
    assert len(hub.files) == 2  # with the repository's card


def test_what_is_pulled_goes_through_the_same_door_as_any_file(client: TestClient, hub: StubHub) -> None:
    hub.files = {
        "presets/good.json": json.dumps(DOCUMENT).encode(),
        "presets/bad.json": json.dumps({**DOCUMENT, "code": "import os"}).encode(),
        "presets/huge.json": bytes(1_000_001),
        "presets/notes.txt": b"hello",
        "elsewhere.json": json.dumps(DOCUMENT).encode(),
    }
    assert client.get(URL).json()["names"] == ["bad.json", "good.json"]
    names = ["good.json", "bad.json", "huge.json", "../elsewhere.json", "../../../jobs.db"]
    answer = client.post(f"{URL}/pull", json={"names": names}).json()
    assert [preset["title"] for preset in answer["presets"]] == ["Hers"]
    assert [one["name"] for one in answer["refused"]] == names[1:]
    assert client.post(f"{URL}/pull", json={"names": ["bad.json"]}).status_code == 422


def test_refusals_of_the_hub_say_what_to_do(client: TestClient, hub: StubHub) -> None:
    push = {"ids": [SHIPPED]}
    without = client.post(f"{URL}/push", json=push)
    assert (without.status_code, without.json()["error"]["detail"]) == (401, "Pushing needs a token that may write.")
    assert hub.asked == []
    wrong = client.post(f"{URL}/push", json=push, headers={"X-Hub-Token": "hf_wrong"}).json()["error"]
    assert wrong["detail"] == f"The hub answered 403 for {REPO}."
    hub.is_there = False
    gone = client.get(URL).json()["error"]
    assert gone["detail"] == f"There is no dataset repository {REPO}, or it is private."
    hub.url = ""


@pytest.mark.parametrize("repo", ["..%2F..%2Fx/y", "-flag/x", "ada/", "ada/a b"])
def test_what_is_no_repository_is_refused_before_anything_is_asked(client: TestClient, hub: StubHub, repo: str) -> None:
    assert client.get(f"/api/v1/hub/{repo}").status_code in (404, 422)
    assert hub.asked == []


def test_a_hub_that_does_not_answer_is_told_as_such(client: TestClient, hub: StubHub) -> None:
    state = client.app.state
    state.studio = replace(state.studio, hub_endpoint="http://127.0.0.1:9")
    assert client.get(URL).json()["error"]["detail"] == "The hub cannot be reached."


def test_those_who_wait_for_a_hub_are_few_and_others_go_on(client: TestClient) -> None:
    studio = client.app.state.studio
    client.app.state.studio = replace(studio, hub_turns=FewAtOnce("hub", threads=1, waiting=-1))  # all taken
    calls = (("GET", "", None), ("POST", "/pull", {"names": ["a"]}), ("POST", "/push", {"ids": ["a"]}))
    for method, action, body in calls:
        refused = client.request(method, f"{URL}{action}", json=body, headers=TOKEN)
        assert (refused.status_code, "Retry-After" in refused.headers) == (429, True)
    assert client.get("/api/v1/jobs").status_code == 200

"""How long a body may be and take, whatever its headers promise, and how many of them a client has under way."""

import asyncio
import json
from collections.abc import Iterator
from typing import Any

import pytest
from fastapi.testclient import TestClient

from studio.api.middleware import limits
from studio.api.middleware.limits import MAX_BYTES, MAX_FILE_BYTES
from tests.studio.scopes import make_scope


def test_a_body_that_says_it_is_too_long_is_not_read(client: TestClient) -> None:
    for path, limit in (("/api/v1/jobs", MAX_BYTES), ("/api/v1/uploads", MAX_FILE_BYTES)):
        headers = {"Content-Length": str(limit + 1), "Content-Type": "application/json"}
        answer = client.post(path, content=b"{}", headers=headers)
        assert answer.status_code == 413
        assert answer.json()["error"]["title"] == "This is too large"


def test_a_training_has_room_for_all_pictures_and_captions_that_it_may_have(client: TestClient) -> None:
    pictures = [{"id": f"upload-{number:016x}", "caption": "水" * 2000} for number in range(500)]
    asked = {"model": "demo-sdxl", "name": "water", "pictures": pictures, "prior_prompts": ["水" * 2000] * 500}
    answer = client.post("/api/v1/trainings", content=json.dumps(asked), headers={"Content-Type": "application/json"})
    assert answer.status_code == 422
    assert answer.json()["error"]["fields"]["pictures.0.id"].startswith("there is no picture")
    too_long = {"Content-Length": str(limits.MAX_TRAINING_BYTES + 1)}
    assert "may have 13 MB" in client.post("/api/v1/trainings", headers=too_long).json()["error"]["detail"]


def test_what_is_larger_than_a_picture_reaches_its_route_while_it_still_comes() -> None:
    async def count_until_seen(path: str) -> int:
        came = 0

        async def receive() -> dict[str, Any]:
            nonlocal came
            came += 1
            return {"type": "http.request", "body": b"x" * 1000, "more_body": came < 5}

        async def send(_: object) -> None:
            raise AssertionError("nothing is wrong with it")

        async def app(_scope: Any, receive: Any, _send: Any) -> None:
            await receive()

        scope = {"type": "http", "path": path, "method": "POST", "headers": [(b"content-length", b"5000")]}
        await limits.LimitedSize(app)(scope, receive, send)
        return came

    large = [path for path, body in limits.BODIES.items() if body.limit > MAX_FILE_BYTES]
    assert "/api/v1/clips" in large
    assert {path: asyncio.run(count_until_seen(path)) for path in large} == dict.fromkeys(large, 1)
    assert asyncio.run(count_until_seen("/api/v1/jobs")) == 5


def test_paths_of_large_bodies_are_routes(client: TestClient) -> None:
    for path in limits.BODIES:
        assert client.post(path, content=b"").status_code not in (404, 405), path


@pytest.mark.parametrize("path", ["/api/v1/jobs", "/api/v1/outputs/zip"])
def test_a_body_that_does_not_say_so_is_cut_off(client: TestClient, path: str) -> None:
    sent = 0

    def flow() -> Iterator[bytes]:
        nonlocal sent
        for _ in range(40):
            sent += 1
            yield b" " * 100_000

    kind = "application/json" if path.endswith("jobs") else "application/x-www-form-urlencoded"
    answer = client.post(path, content=flow(), headers={"Content-Type": kind})
    assert answer.status_code == 413
    error = answer.json()["error"]
    assert (error["detail"], error["advice"]) == (
        f"A request to {path} may have 1 MB.",
        "Make it smaller, and send it again.",
    )
    assert answer.json()["error"]["title"] == "This is too large"


MANY = "[" + ",".join("1" for _ in range(200_000)) + "]"
ROUTES = (
    *("jobs", "jobs/many", "estimate", "expand", "grids", "grids/expand", "presets", "outputs/trash"),
    *("presets/import", "presets/check"),
)


@pytest.mark.parametrize("path", [*(f"/api/v1/{route}" for route in ROUTES), "/v1/images/generations", "/mcp"])
@pytest.mark.parametrize(
    "body",
    [
        f'{{"model": "m", "prompt": "p", "recipe": {{"loras": {MANY}}}, "loras": {MANY}}}',
        "{" + ",".join(f'"a{number}":1' for number in range(80_000)) + "}",
        '{"loras":[' + ",".join('{"ref":"r","a":1,"b":2,"c":3,"d":4}' for _ in range(20_000)) + "]}",
        '{"x":' + "[" * 100_000 + "]" * 100_000 + "}",
    ],
    ids=["list", "keys", "both", "depth"],
)
def test_a_megabyte_of_mistakes_is_told_in_a_few_lines(client: TestClient, path: str, body: str) -> None:
    answer = client.post(path, content=body, headers={"Content-Type": "application/json"})
    assert 400 <= answer.status_code < 500
    assert len(answer.content) < 5000


def test_of_many_fields_at_fault_the_first_are_told_and_the_others_counted(client: TestClient) -> None:
    fields = {f"field{number}": 1 for number in range(500)}
    error = client.post("/api/v1/jobs", json={"model": "demo-sdxl", "prompt": "A boat", **fields}).json()["error"]
    assert error["fields"]["field0"] == "is not a known field"
    assert error["fields"]["..."] == "480 more fields are wrong"
    assert len(error["fields"]) == 21


def test_a_list_of_words_may_be_as_long_as_it_could_before(client: TestClient) -> None:
    lines = [f"animal {number}" for number in range(20_000)]
    assert client.put("/api/v1/wildcards/animals", json={"lines": lines}).json()["count"] == 20_000


class Bodies:
    """Requests with large bodies, whose last part comes when it is told to, and whose answers wait as long."""

    def __init__(self) -> None:
        self.seen: list[str] = []
        self.arrived: list[str] = []
        self.refused: list[str] = []
        self.rest, self.answer = asyncio.Event(), asyncio.Event()
        self._limited = limits.LimitedSize(self._app)
        self._tasks: list[asyncio.Task[None]] = []

    async def send(self, path: str, client: str, *, count: int) -> None:
        self._tasks += [asyncio.create_task(self._send(path, client)) for _ in range(count)]
        await self.settle()

    async def settle(self) -> None:
        for _ in range(20):
            await asyncio.sleep(0)

    async def end(self) -> None:
        self.rest.set()
        self.answer.set()
        await asyncio.gather(*self._tasks)

    async def _send(self, path: str, client: str) -> None:
        parts = iter([True, False])

        async def receive() -> dict[str, Any]:
            more = next(parts)
            if not more:
                await self.rest.wait()
            return {"type": "http.request", "body": b" ", "more_body": more}

        async def send(message: dict[str, Any]) -> None:
            if message.get("status") == 429:
                self.refused.append(client)

        headers = [(b"content-length", b"900000")]
        scope = {"type": "http", "path": path, "method": "POST", "headers": headers, "client": (client, 5)}
        await self._limited(scope, receive, send)

    async def _app(self, scope: Any, receive: Any, _send: Any) -> None:
        self.seen.append(scope["path"])
        while (await receive()).get("more_body"):
            pass
        self.arrived.append(scope["path"])
        await self.answer.wait()


PICTURE, CLIP = "/api/v1/uploads", "/api/v1/clips"
ADDRESSES = [f"192.0.2.{number}" for number in range(1, 20)]


def test_a_client_has_a_few_large_bodies_under_way() -> None:
    async def check() -> None:
        bodies = Bodies()
        await bodies.send(PICTURE, ADDRESSES[0], count=limits.LARGE_EACH + 2)
        assert len(bodies.seen) == limits.LARGE_EACH
        await bodies.end()
        assert len(bodies.seen) == limits.LARGE_EACH + 2

    asyncio.run(check())


def test_pictures_do_not_wait_for_files_on_their_way_to_the_disk() -> None:
    async def check() -> None:
        bodies = Bodies()
        for address in ADDRESSES[:5]:
            await bodies.send(CLIP, address, count=limits.LARGE_EACH)
        assert len(bodies.seen) == limits.LARGE_ALL
        await bodies.send(PICTURE, ADDRESSES[0], count=1)
        assert bodies.seen[-1] == PICTURE
        await bodies.end()

    asyncio.run(check())


def test_a_file_that_has_arrived_on_the_disk_keeps_nobody_waiting_and_a_picture_in_memory_does() -> None:
    async def check() -> None:
        bodies = Bodies()
        await bodies.send(CLIP, ADDRESSES[0], count=limits.LARGE_EACH + 1)
        await bodies.send(PICTURE, ADDRESSES[0], count=limits.LARGE_EACH + 1)
        bodies.rest.set()
        await bodies.settle()
        assert bodies.arrived.count(CLIP) == limits.LARGE_EACH + 1, "though none was read"
        assert bodies.arrived.count(PICTURE) == limits.LARGE_EACH
        await bodies.end()

    asyncio.run(check())


def test_a_body_that_stops_arriving_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "SILENT_S", 0.05)
    sent: list[dict[str, Any]] = []

    async def run(path: str) -> None:
        parts = iter([{"type": "http.request", "body": b'{"a"', "more_body": True}])

        async def receive() -> dict[str, Any]:
            if (part := next(parts, None)) is not None:
                return part
            await asyncio.Event().wait()
            raise AssertionError

        async def send(message: dict[str, Any]) -> None:
            sent.append(message)

        async def app(*_: object) -> None:
            raise AssertionError("nothing has arrived for it")

        scope = {"type": "http", "path": path, "method": "POST", "headers": [(b"content-length", b"900000")]}
        await limits.LimitedSize(app)(scope, receive, send)

    asyncio.run(run("/api/v1/jobs"))
    assert sent[0]["status"] == 408


@pytest.mark.parametrize("path", ["/api/v1/uploads", "/api/v1/presets/check", "/v1/images/edits", "/api/v1/jobs"])
def test_a_client_that_leaves_while_it_sends_is_no_mistake_of_ours(
    client: TestClient, caplog: pytest.LogCaptureFixture, path: str
) -> None:
    async def run() -> None:
        parts = iter([{"type": "http.request", "body": b'{"a"', "more_body": True}])

        async def receive() -> dict[str, Any]:
            return next(parts, {"type": "http.disconnect"})

        async def send(_message: dict[str, Any]) -> None:
            pass

        kind = b"multipart/form-data; boundary=x" if "images" in path else b"image/png"
        headers = [(b"content-length", b"900000"), (b"content-type", kind)]
        await client.app(make_scope(path, headers), receive, send)

    asyncio.run(run())
    assert "Traceback" not in caplog.text


class Clock:
    """In the place of `time`: each look is `tick_s` after the last."""

    def __init__(self, tick_s: float) -> None:
        self.now_s, self.tick_s = 0.0, tick_s

    def monotonic(self) -> float:
        self.now_s += self.tick_s
        return self.now_s


@pytest.mark.parametrize(("tick_s", "status"), [(1.0, 408), (0.001, 200)])
def test_a_body_that_creeps_is_given_up(monkeypatch: pytest.MonkeyPatch, tick_s: float, status: int) -> None:
    monkeypatch.setattr(limits, "time", Clock(tick_s))
    sent: list[dict[str, Any]] = []

    async def run() -> None:
        parts = iter([{"type": "http.request", "body": b" ", "more_body": number < 99} for number in range(100)])

        async def receive() -> dict[str, Any]:
            return next(parts)

        async def send(message: dict[str, Any]) -> None:
            sent.append(message)

        async def app(_scope: object, receive: Any, send: Any) -> None:
            while (await receive()).get("more_body"):
                pass
            await send({"type": "http.response.start", "status": 200, "headers": []})

        scope = {"type": "http", "path": "/api/v1/jobs", "method": "POST", "headers": [(b"content-length", b"100")]}
        await limits.LimitedSize(app)(scope, receive, send)

    asyncio.run(run())
    assert sent[0]["status"] == status


def test_a_client_whose_large_bodies_are_too_many_is_told_when_to_come_again(
    client: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "LARGE_EACH", 0)
    monkeypatch.setattr(limits, "LARGE_WAITING", 0)
    crowded = TestClient(limits.LimitedSize(client.app))
    body = b'{"prompt": "' + b"a" * (limits.LARGE_BYTES + 1) + b'"}'
    refused = crowded.post("/api/v1/jobs", content=body, headers={"Content-Type": "application/json"})
    assert (refused.status_code, refused.headers["Retry-After"]) == (429, "10")
    small = crowded.post("/api/v1/jobs", json={"model": "demo-sdxl", "prompt": "A boat"})
    assert small.status_code == 201

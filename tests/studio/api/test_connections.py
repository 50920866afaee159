"""A connection that never becomes a request is closed, one that works is not."""

import asyncio
from typing import Any

import pytest
import uvicorn
from uvicorn.config import Config
from uvicorn.server import ServerState

from studio.api import connections
from studio.api.connections import Connection


class Transport(asyncio.Transport):
    """Remembers whether it was closed."""

    is_closed = False

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return {"peername": ("1.2.3.4", 5), "sockname": ("5.6.7.8", 80)}.get(name, default)

    def is_closing(self) -> bool:
        return self.is_closed

    def close(self) -> None:
        self.is_closed = True

    def write(self, data: bytes) -> None:
        pass

    def pause_reading(self) -> None:
        pass

    def resume_reading(self) -> None:
        pass


async def answer_never(_scope: Any, receive: Any, _send: Any) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


def connect(config: Config) -> tuple[Connection, Transport]:
    connection, transport = Connection(config, ServerState(), {}), Transport()
    connection.connection_made(transport)
    return connection, transport


@pytest.mark.parametrize("sent", [b"", b"GET / HT", b"GET / HTTP/1.1\r\nhost: x\r\n"])
def test_half_a_request_is_closed_in_time(monkeypatch: pytest.MonkeyPatch, sent: bytes) -> None:
    monkeypatch.setattr(connections, "HEADER_S", 0.02)

    async def run() -> None:
        config = uvicorn.Config(answer_never, log_level="error")
        config.load()
        half, transport = connect(config)
        whole, other = connect(config)
        if sent:
            half.data_received(sent)
        whole.data_received(b"GET / HTTP/1.1\r\nhost: x\r\n\r\n")
        await asyncio.sleep(0.06)
        assert transport.is_closed
        assert not other.is_closed
        for connection in (half, whole):
            connection.connection_lost(None)
        await asyncio.sleep(0)
        assert not connections._idle

    asyncio.run(run())


def test_one_address_has_only_so_many_half_requests(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "IDLE_EACH", 3)

    async def run() -> list[bool]:
        config = uvicorn.Config(answer_never, log_level="error")
        config.load()
        opened = [connect(config) for _ in range(5)]
        closed = [transport.is_closed for _, transport in opened]
        for connection, _ in opened:
            connection.connection_lost(None)
        return closed

    assert asyncio.run(run()) == [False, False, False, True, True]
    assert not connections._idle

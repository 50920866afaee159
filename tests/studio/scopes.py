"""Requests as a server hands them to an ASGI app, for what a test client cannot do: to leave in the middle of one."""

from typing import Any


def make_scope(path: str, headers: list[tuple[bytes, bytes]]) -> dict[str, Any]:
    """Returns the scope of a POST with these headers, of the host that tests are served at."""
    return {
        "type": "http",
        "path": path,
        "raw_path": path.encode(),
        "method": "POST",
        "headers": [*headers, (b"host", b"testserver")],
        "query_string": b"",
        "client": ("1.2.3.4", 5),
        "server": ("testserver", 80),
        "scheme": "http",
        "root_path": "",
        "http_version": "1.1",
    }

"""Links lead where the client came in."""

import pytest
from starlette.requests import Request

from studio.address import name_server


@pytest.mark.parametrize(
    ("headers", "address"),
    [
        ({"host": "localhost:7860"}, "http://localhost:7860"),
        ({"host": "inside:80", "x-forwarded-proto": "https", "x-forwarded-host": "a.example"}, "https://a.example"),
        ({"host": "a.example", "x-forwarded-proto": "https,http"}, "https://a.example"),
        ({"host": "a.example", "x-forwarded-proto": "javascript"}, "http://a.example"),
        ({}, "http://127.0.0.1:7860"),
    ],
)
def test_the_address_is_the_one_that_the_client_used(headers: dict[str, str], address: str) -> None:
    scope = {
        "type": "http",
        "scheme": "http",
        "path": "/mcp",
        "query_string": b"",
        "server": ("127.0.0.1", 7860),
        "headers": [(name.encode(), value.encode()) for name, value in headers.items()],
    }
    assert name_server(Request(scope)) == address

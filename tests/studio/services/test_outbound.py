"""Webhooks go to public addresses only, whatever they are wrapped in or called."""

import asyncio

import pytest

from studio.services.outbound import post


def test_a_name_that_cannot_be_is_told() -> None:
    for host in ("x" * 64 + ".example", "a..b"):
        assert asyncio.run(post(f"http://{host}/", b"{}", {}, allows_private=False)) == "its name is not known"


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "[::1]", "[::ffff:127.0.0.1]", "0x7f000001", "2130706433"])
def test_no_spelling_of_this_machine_is_reached(host: str) -> None:
    problem = asyncio.run(post(f"http://{host}:9/", b"{}", {}, allows_private=False))
    assert "is not on the public internet" in problem or "name is not known" in problem

"""Names of this machine, and names that only lead to it."""

import pytest

from studio.api.middleware.hosts import is_own_name


@pytest.mark.parametrize(
    "host", ["localhost", "localhost:7860", "127.0.0.1:7860", "[::1]:7860", "[::1]", "192.168.1.2", "a.localhost:1"]
)
def test_addresses_and_localhost_are_this_machine(host: str) -> None:
    assert is_own_name(host)


@pytest.mark.parametrize(
    "host", ["", "evil.example", "evil.example:7860", "localhost.evil.example", "127.0.0.1.evil.example:7860", "[::1"]
)
def test_other_names_are_not(host: str) -> None:
    assert not is_own_name(host)

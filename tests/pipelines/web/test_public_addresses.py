"""Addresses that people give us: only public ones are reached, whatever they are wrapped in or called."""

import pytest

from pipelines.web.public_addresses import find_url_problem, is_public


@pytest.mark.parametrize(
    "address",
    [
        *("127.0.0.1", "10.0.0.1", "172.16.0.1", "192.168.1.1", "169.254.169.254", "100.64.0.1", "0.0.0.0"),
        *("::1", "::", "fe80::1%eth0", "fc00::1", "ff02::1", "224.0.0.1"),
        *("::ffff:127.0.0.1", "::ffff:10.0.0.1", "64:ff9b::7f00:1", "64:ff9b::a9fe:a9fe", "2002:7f00:1::"),
        *("::127.0.0.1", "::ffff:0:127.0.0.1", "::ffff:0:a00:1", "fec0::1", "192.88.99.1", "168.63.129.16"),
    ],
)
def test_these_are_not_public(address: str) -> None:
    assert not is_public(address)


@pytest.mark.parametrize("address", ["8.8.8.8", "2606:4700:4700::1111", "64:ff9b::808:808", "::ffff:8.8.8.8"])
def test_these_are_public(address: str) -> None:
    assert is_public(address)


@pytest.mark.parametrize(
    "url",
    [
        *(
            "",
            "example.com",
            "ftp://example.com",
            "file:///etc/passwd",
            "https://",
            "https://host:99999/",
            "https://[::1",
        ),
        *("https://user:pass@example.com/", "https://exa mple.com/", "https://example.com/\r\nX: y"),
    ],
)
def test_these_are_no_addresses(url: str) -> None:
    assert find_url_problem(url)
    assert not find_url_problem("https://example.com:8443/hook?x=1")


@pytest.mark.parametrize(
    "host",
    [
        *("127.0.0.1", "0x7f.1", "2130706433", "0177.0.0.1", "[::1]", "[::ffff:10.0.0.1]", "192.168.1.1"),
        *("localhost", "printer.local", "db.internal", "nas", "a.localhost."),
    ],
)
def test_an_address_that_can_never_be_told_is_refused_at_the_door(host: str) -> None:
    assert find_url_problem(f"https://{host}/hook") == "is not on the public internet"
    assert not find_url_problem(f"https://{host}/hook", allows_private=True)

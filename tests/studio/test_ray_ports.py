"""A range of ports is divided among Ray, the workers, and the hosts of a slice; what is no range is refused."""

import re

import pytest

from studio.flags import read_settings
from studio.ray_ports import ANY_MEETING, LABEL, LEAST, MEETINGS, OWN, Ports, choose_meeting


def test_every_port_has_one_use() -> None:
    ports = Ports.parse("20000-20199")
    flags = ports.list_flags()
    given = dict(zip(flags[::2], map(int, flags[1::2]), strict=True))
    workers = range(given.pop("--min-worker-port"), given.pop("--max-worker-port") + 1)
    meetings = {choose_meeting({LABEL: str(ports)}) for _ in range(1000)}
    assert given.keys() == {*OWN}
    assert len({*given.values()} | {*workers} | meetings) == len(given) + len(workers) + MEETINGS == 200
    assert all(port in ports for port in (*given.values(), *workers, *meetings))
    assert choose_meeting({}) in ANY_MEETING


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("20000", "no range"),
        ("20000-x", "no range"),
        ("80-300", "not between 1024"),
        ("20100-20000", "not between 1024"),
        ("65000-65600", "not between 1024"),
        (f"20000-{20000 + LEAST - 2}", "too short"),
    ],
)
def test_what_is_no_range_is_refused_with_the_reason(text: str, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        Ports.parse(text)


def test_the_head_s_own_port_and_the_page_s_are_no_part_of_the_range(capsys: pytest.CaptureFixture[str]) -> None:
    for flag in ("--ray-port", "--port"):
        with pytest.raises(SystemExit):
            read_settings(["--ray-ports", "20000-20199", flag, "20007"], {})
        assert re.search(r"--ray-ports 20000-20199 must not hold --ray-port \d+ or --port \d+", capsys.readouterr().err)


def test_the_dispatcher_gets_the_range() -> None:
    settings = read_settings([], {"LUMESH_RAY_PORTS": "20000-20199", "LUMESH_ENGINE": "ray"})
    assert read_settings(settings.cluster_flags(), {}).ray_ports == Ports(first=20000, last=20199)

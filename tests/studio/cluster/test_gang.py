"""A slice is asked at its first host, has files on all, and is gone as soon as any of its hosts is."""

import asyncio
from typing import Any

import pytest

from studio.cluster.gang import GangHandle
from studio.cluster.join import JoinError, find_slice
from studio.cluster.joined import SliceHost
from studio.cluster.link import WorkerGoneError
from studio.cluster.protocol import Attachment

SHA = "0" * 64


class Host:
    """A process of a slice; `missing` are the files that it lacks."""

    def __init__(self, *missing: Attachment) -> None:
        self.missing = missing
        self.ended = asyncio.Event()
        self.asked: list[str] = []
        self.was_ended = False

    async def call(self, method: str, *_arguments: Any) -> Any:
        self.asked.append(method)
        if method == "wait_for_end":
            await self.ended.wait()
            raise WorkerGoneError("killed")
        if method == "pull":
            await asyncio.sleep(30.0)
        return {"list_missing": [*self.missing], "store": None}.get(method, method)

    def kill(self) -> None:
        self.was_ended = True


def test_files_go_to_every_host_and_all_else_to_the_first() -> None:
    file = Attachment(sha=SHA, name="boat.png", size=3)

    async def ask() -> None:
        hosts = [Host(), Host(file), Host(file)]
        gang = GangHandle(hosts)
        assert await gang.call("list_missing", [file]) == [file]
        await gang.call("store", file, b"abc")
        assert await gang.call("describe") == "describe"
        assert [[one for one in host.asked if one != "wait_for_end"] for host in hosts] == [
            ["list_missing", "store", "describe"],
            ["list_missing", "store"],
            ["list_missing", "store"],
        ]
        gang.kill()
        assert all(host.was_ended for host in hosts)

    asyncio.run(ask())


def test_a_lost_host_ends_the_wait_for_the_first() -> None:
    async def ask() -> None:
        hosts = [Host(), Host(), Host()]
        gang = GangHandle(hosts)
        pulling = asyncio.ensure_future(gang.call("pull", 0, 30.0))
        await asyncio.sleep(0)
        hosts[2].ended.set()
        with pytest.raises(WorkerGoneError, match="host of the slice"):
            await asyncio.wait_for(pulling, 5.0)
        gang.kill()

    asyncio.run(ask())


def test_labels_say_which_host_of_which_slice_a_node_is() -> None:
    part = SliceHost(name="big", hosts=4, host=3)
    labels = dict(pair.split("=") for pair in part.write_labels().split(","))
    assert SliceHost.read_labels(labels) == part
    assert SliceHost.read_labels({"ray.io/node-id": "1"}) is None


@pytest.mark.parametrize("given", [("big", None, None), ("big", 2, None), (None, 2, 0), ("big", 2, 2)])
def test_a_host_of_a_slice_is_told_all_of_it_or_nothing(given: tuple[str | None, int | None, int | None]) -> None:
    with pytest.raises(JoinError, match="--processes N"):
        find_slice(*given)


def test_a_machine_that_is_alone_is_no_slice() -> None:
    assert find_slice(None, None, None) is None
    assert find_slice("my slice", 2, 1) == SliceHost(name="my-slice", hosts=2, host=1)

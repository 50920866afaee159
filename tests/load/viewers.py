"""Many open pages in one process: each follows the event stream, and notes every id and how late it came.

`python -m tests.load.viewers` takes its orders as JSON on standard input (`Orders`), says `ready` once every stream is
open, and after a second line with the last id that must arrive it answers with what was seen, as JSON.
"""

import asyncio
import itertools
import json
import math
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import httpx
import orjson

ENDING_S = 30.0  # how long the last events may take to arrive
REFRESH_S = 0.15  # a page waits so long before it reads its queue anew (ui/static/js/core/stream.js)
LOOK_S = 0.05
TENTHS = 10


@dataclass(frozen=True, kw_only=True)
class Orders:
    """`count` viewers of the studio at `url`, from the event after `after`.

    One in ten hangs up after every `hang_up_after` events and comes back; 0 is never. The first `pages` of them also
    read the queue after events of jobs, as the page does.
    """

    url: str
    after: int
    count: int
    hang_up_after: int = 0
    pages: int = 0


@dataclass(kw_only=True)
class Seen:
    """What one viewer got: ids in order of arrival, and seconds from an event's making to its arrival."""

    after: int
    ids: list[int] = field(default_factory=list[int])
    delays_s: list[float] = field(default_factory=list[float])
    reads_s: list[float] = field(default_factory=list[float])

    @property
    def last_id(self) -> int:
        return self.ids[-1] if self.ids else self.after

    def list_mistakes(self, until: int) -> list[int]:
        """Ids that are missing, came twice or in the wrong order, up to `until`."""
        ids = [one for one in self.ids if one <= until]
        wanted = range(self.after + 1, until + 1)
        missing = set(wanted).difference(ids)
        disordered = [later for earlier, later in itertools.pairwise(ids) if later <= earlier]
        return sorted(missing | set(disordered))


class Crowd:
    """The viewers; `start` returns when all streams are open."""

    def __init__(self, orders: Orders) -> None:
        self._orders = orders
        self.seen = [Seen(after=orders.after) for _ in range(orders.count)]
        self._open = [asyncio.Event() for _ in self.seen]
        self._tasks: list[asyncio.Task[None]] = []

    async def start(self) -> None:
        """Opens every stream."""
        for number in range(self._orders.count):
            self._tasks.append(asyncio.create_task(self._watch(number)))
        opened = asyncio.create_task(self._wait_until_open())
        await asyncio.wait([opened, *self._tasks], return_when=asyncio.FIRST_COMPLETED)
        for task in self._tasks:
            if task.done():
                task.result()

    async def finish(self, until: int) -> None:
        """Waits until everybody has seen the event `until`, or for so long, and closes the streams."""
        deadline = time.monotonic() + ENDING_S
        while min(seen.last_id for seen in self.seen) < until and time.monotonic() < deadline:
            await asyncio.sleep(LOOK_S)
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _wait_until_open(self) -> None:
        for event in self._open:
            await event.wait()

    async def _watch(self, number: int) -> None:
        orders, seen = self._orders, self.seen[number]
        patience = orders.hang_up_after if number % TENTHS == TENTHS - 1 else 0
        # A client of its own, as every browser is one: its streams and its reads do not wait for those of others.
        browser = httpx.AsyncClient(base_url=orders.url, timeout=None, trust_env=False)
        async with browser as client, asyncio.TaskGroup() as group:
            page = Page(client, seen)
            if number < orders.pages:
                group.create_task(page.keep_fresh())
            while True:
                headers = {"Last-Event-ID": str(seen.last_id)}
                async with client.stream("GET", "/api/v1/events", headers=headers) as answer:
                    answer.raise_for_status()
                    self._open[number].set()
                    await _read_events(answer, seen, page, most=patience)


async def _read_events(answer: httpx.Response, seen: Seen, page: "Page", *, most: int) -> None:
    """Until `most` events came (0 is endless), or the server ends the stream."""
    left = most or math.inf
    rest = b""
    async for chunk in answer.aiter_raw():
        now = time.time()
        *messages, rest = (rest + chunk).split(b"\n\n")
        for message in messages:
            data = message.partition(b"data: ")[2]
            if not data:
                continue
            event = orjson.loads(data)
            seen.ids.append(event["id"])
            seen.delays_s.append(now - event["at"])
            if "job" in event:
                page.is_stale.set()
            left -= 1
        if left <= 0:
            return


class Page:
    """The part of the page that reads its queue anew after events."""

    def __init__(self, client: httpx.AsyncClient, seen: Seen) -> None:
        self._client = client
        self._seen = seen
        self.is_stale = asyncio.Event()

    async def keep_fresh(self) -> None:
        """Reads the waiting jobs soon after each event of a job."""
        while True:
            await self.is_stale.wait()
            await asyncio.sleep(REFRESH_S)
            self.is_stale.clear()
            clock = time.perf_counter()
            (await self._client.get("/api/v1/jobs", params={"state": "queued"})).raise_for_status()
            self._seen.reads_s.append(time.perf_counter() - clock)


def describe(crowd: Sequence[Seen], until: int) -> dict[str, Any]:
    """Everything that was seen, in figures."""
    delays_s = sorted(delay_s for seen in crowd for delay_s in seen.delays_s)
    mistakes = {number: found for number, seen in enumerate(crowd) if (found := seen.list_mistakes(until))}
    return {
        "arrivals": len(delays_s),
        "mistakes": mistakes,
        "delay_ms": {name: 1000 * quantile(delays_s, share) for name, share in QUANTILES.items()},
        "read_ms": {
            name: 1000 * quantile(sorted(read_s for seen in crowd for read_s in seen.reads_s), share)
            for name, share in QUANTILES.items()
        },
    }


QUANTILES = {"p50": 0.5, "p95": 0.95, "p99": 0.99, "max": 1.0}


def quantile(ordered: Sequence[float], share: float) -> float:
    """The value below which this share of them lies; NaN of nothing."""
    return ordered[min(int(share * len(ordered)), len(ordered) - 1)] if ordered else math.nan


async def _obey() -> None:
    lines = iter(sys.stdin.readline, "")
    orders = Orders(**json.loads(await asyncio.to_thread(next, lines)))
    crowd = Crowd(orders)
    await crowd.start()
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    until = int(await asyncio.to_thread(next, lines))
    await crowd.finish(until)
    sys.stdout.write(json.dumps(describe(crowd.seen, until)) + "\n")


if __name__ == "__main__":
    asyncio.run(_obey())

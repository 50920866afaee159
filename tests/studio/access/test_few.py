"""Work that strangers ask for never takes more than its own few threads."""

import asyncio
import threading

import pytest

from studio.access.few import FewAtOnce
from studio.access.limits import RateError


def test_a_few_run_a_few_wait_and_the_rest_is_refused_at_once() -> None:
    release = threading.Event()
    few = FewAtOnce("test", threads=1, waiting=2)

    async def run() -> list[object]:
        asked = [asyncio.create_task(few.run(release.wait)) for _ in range(5)]
        await asyncio.wait(asked, timeout=0.05)
        release.set()
        answers = await asyncio.gather(*asked, return_exceptions=True)
        await few.run(lambda: None)
        return answers

    answers = asyncio.run(run())
    assert answers[:3] == [True] * 3
    assert all(isinstance(answer, RateError) for answer in answers[3:])


def test_what_a_caller_gave_up_keeps_its_place_until_it_ends() -> None:
    release = threading.Event()
    few = FewAtOnce("test", threads=1, waiting=0)

    async def run() -> None:
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(few.run(release.wait), 0.02)
        with pytest.raises(RateError):
            await few.run(release.wait)
        release.set()
        while few._count:
            await asyncio.sleep(0)
        await few.run(lambda: None)

    asyncio.run(run())

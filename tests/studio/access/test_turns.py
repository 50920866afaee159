"""Whose turn is next at what only a few may do at once: fair, whatever one client asks for."""

import asyncio
from collections.abc import Coroutine
from typing import Any

import pytest

from pipelines.messages import say
from studio.access.limits import RateError
from studio.access.turns import Turns

REFUSAL = say("Too many test messages.")


class Crowd:
    """Clients that take turns; each turn lasts until `end` is called."""

    def __init__(self, **how: Any) -> None:
        self.turns = Turns(**{"each": 1, "all_": 1, "waiting": 10, "refusal": REFUSAL, **how})
        self.began: list[str] = []
        self.refused: list[str] = []
        self.running: list[asyncio.Event] = []
        self.tasks: list[asyncio.Task[None]] = []

    async def ask(self, *clients: str) -> None:
        self.tasks += [asyncio.create_task(self._hold(client)) for client in clients]
        await _settle()

    async def end(self, count: int = 1) -> None:
        for _ in range(count):
            self.running.pop(0).set()
            await _settle()

    async def _hold(self, client: str) -> None:
        done = asyncio.Event()
        try:
            async with self.turns.take(client):
                self.began.append(client)
                self.running.append(done)
                await done.wait()
        except RateError:
            self.refused.append(client)


async def _settle() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


def run(work: Coroutine[Any, Any, None]) -> None:
    asyncio.run(work)


def test_a_client_has_a_few_turns_and_others_have_theirs() -> None:
    async def check() -> None:
        crowd = Crowd(each=2, all_=3)
        await crowd.ask("ann", "ann", "ann", "bob", "eve")
        assert crowd.began == ["ann", "ann", "bob"]
        await crowd.end()
        assert crowd.began[3:] == ["eve"], "who has none comes before whoever has one"
        await crowd.end(2)
        assert crowd.began[4:] == ["ann"]
        await crowd.end(2)

    run(check())


def test_clients_go_round_however_many_turns_one_waits_for() -> None:
    async def check() -> None:
        crowd = Crowd()
        await crowd.ask("ann", "ann", "ann", "ann", "bob", "eve", "bob")
        await crowd.end(6)
        assert crowd.began == ["ann", "ann", "bob", "eve", "ann", "bob", "ann"]
        await crowd.end()
        await asyncio.gather(*crowd.tasks)

    run(check())


def test_who_waits_too_long_or_among_too_many_is_refused_and_leaves_no_trace() -> None:
    async def check() -> None:
        crowd = Crowd(waiting=1, wait_s=0.02)
        await crowd.ask("ann", "ann", "ann", "bob")
        assert crowd.refused == ["ann"], "one more than may wait"
        await asyncio.wait(crowd.tasks[1:], timeout=5)
        assert sorted(crowd.refused) == ["ann", "ann", "bob"]
        await crowd.end()
        await crowd.ask("bob")
        assert crowd.began == ["ann", "bob"]
        await crowd.end()

    run(check())


@pytest.mark.parametrize("is_given", [False, True])
def test_one_that_gives_up_takes_no_turn_from_others(*, is_given: bool) -> None:
    async def check() -> None:
        crowd = Crowd()
        await crowd.ask("ann", "bob", "eve")
        if is_given:  # in the moment in which it is given up, it is its turn
            crowd.running.pop(0).set()
            await asyncio.sleep(0)
        crowd.tasks[1].cancel()
        await _settle()
        if not is_given:
            await crowd.end()
        assert crowd.began[-1] == "eve"
        await crowd.end()
        await crowd.ask("ann")
        assert crowd.began[-1] == "ann"
        await crowd.end()

    run(check())


def test_a_turn_may_be_given_back_before_its_end() -> None:
    async def check() -> None:
        turns = Turns(each=1, all_=1, waiting=0, refusal=REFUSAL)
        async with turns.take("ann") as give_back:
            with pytest.raises(RateError):
                async with turns.take("bob"):
                    pass
            give_back()
            give_back()
            async with turns.take("bob"):
                with pytest.raises(RateError):
                    async with turns.take("eve"):
                        pass
        async with turns.take("eve"):
            pass

    run(check())

"""The one trade: fewer model switches, bounded waiting."""

import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

import pytest

from studio.jobs.line.order import MIN_PATIENCE_S, Fleet, Line, Taker, Waiting, choose

NOW = 1000.0


def jobs(models: str, owner: str = "", *, first: int = 0, waited_s: float = 0.0) -> list[Waiting]:
    """One waiting job for each letter, in order of arrival."""
    return [
        Waiting(
            id=f"{owner}{model}{place}",
            model=model,
            owner=owner,
            place=(place, 0),
            queued_at=NOW - waited_s + place / 1e3,
        )
        for place, model in enumerate(models, start=first)
    ]


def line(models: str) -> Line:
    return Line(jobs(models))


def take(line: Line, taker: Taker, fleet: Fleet | None = None, *, now: float = NOW + 1) -> str | None:
    found = choose(line, taker, fleet or Fleet(holders={taker.model: 1}), now=now)
    return found.id if found else None


def test_the_oldest_job_runs_first_without_a_model() -> None:
    assert take(line("ab"), Taker()) == "a0"


def test_nobody_waits() -> None:
    assert take(line(""), Taker(model="a")) is None


def test_a_job_of_the_workers_model_runs_first() -> None:
    assert take(line("bba"), Taker(model="a")) == "a2"


def test_who_waited_too_long_runs_whatever_is_in_memory() -> None:
    waiting = Line([*jobs("b", waited_s=MIN_PATIENCE_S + 10), *jobs("aa", first=1)])
    assert take(waiting, Taker(model="a")) == "b0"
    assert take(waiting, Taker(model="a", swap_s=90.0)) == "a1", "a dear switch is worth more waiting"
    assert take(waiting, Taker(model="a", swap_s=90.0), now=NOW + 180.0) == "b0"


def test_a_long_line_is_no_reason_to_switch_after_every_job() -> None:
    waiting = Line([*jobs("ab" * 50, waited_s=9000.0)])
    just_loaded = Taker(model="a", held_from=NOW - 10.0)
    assert take(waiting, just_loaded) == "a0"
    assert take(waiting, just_loaded, now=NOW + MIN_PATIENCE_S) == "b1"


def test_an_idle_worker_changes_to_what_nobody_holds() -> None:
    assert take(line("b"), Taker(model="a", swap_s=90.0)) == "b0"


def test_what_another_worker_holds_is_left_to_it_unless_waiting_pays() -> None:
    taker = Taker(model="a", swap_s=90.0)
    fleet = Fleet(holders={"a": 1, "b": 1}, job_s={"b": 10.0})
    assert take(line("b" * 4), taker, fleet) is None
    assert take(line("b" * 5), taker, fleet) == "b0"
    assert take(line("b" * 5), taker, replace(fleet, holders={"a": 1, "b": 2})) is None


def test_an_idle_worker_takes_what_has_waited_too_long_for_another() -> None:
    fleet = Fleet(holders={"a": 1, "b": 1}, job_s={"b": 1.0})
    waiting, idle = Line(jobs("b")), Taker(model="a", swap_s=90.0)
    assert take(waiting, idle, fleet) is None
    assert take(waiting, idle, fleet, now=NOW + 181.0) == "b0"


def test_work_that_was_never_measured_is_begun_by_whoever_is_free() -> None:
    assert take(line("b"), Taker(model="a"), Fleet(holders={"a": 1, "b": 1})) == "b0"


def test_a_model_with_a_line_keeps_its_last_worker() -> None:
    waiting = Line([*jobs("a"), *jobs("b" * 99, first=1)])
    fleet = Fleet(holders={"a": 1, "b": 1}, job_s={"a": 1.0, "b": 10.0})
    assert take(waiting, Taker(model="a", swap_s=5.0), fleet) == "a0"
    assert take(waiting, Taker(model="a", swap_s=5.0), replace(fleet, holders={"a": 2, "b": 1})) == "b1"


def test_one_of_several_holders_loads_what_nobody_holds() -> None:
    waiting = Line([*jobs("a"), *jobs("b", first=1)])
    assert take(waiting, Taker(model="a"), Fleet(holders={"a": 2}, job_s={"a": 1.0})) == "b1"


def test_a_pinned_worker_keeps_its_model_whatever_waits() -> None:
    waiting = Line(jobs("b", waited_s=9999.0))
    assert take(waiting, Taker(model="a", is_pinned=True)) is None
    assert take(Line([*jobs("b", waited_s=9999.0), *jobs("a", first=1)]), Taker(model="a", is_pinned=True)) == "a1"


def test_what_was_placed_by_hand_stays_there_whatever_is_in_memory() -> None:
    first = [replace(jobs("b")[0], is_placed=True), *jobs("aa", first=1)]
    assert take(Line(first), Taker(model="a")) == "b0"
    a0, b1, a2 = jobs("aba")
    waiting = Line([a0, b1, replace(a2, is_placed=True)])
    assert take(waiting, Taker(model="a")) == "a0"
    waiting.remove("a0")
    assert take(waiting, Taker(model="a")) == "b1"


def test_one_owners_placing_does_not_bind_another_owner() -> None:
    waiting = Line([replace(jobs("b", "her")[0], is_placed=True), *jobs("a", "his", first=1)])
    assert take(waiting, Taker(model="a")) == "hisa1"


def test_owners_take_turns_whoever_arrived_first_with_many() -> None:
    waiting = Line([*jobs("aaa", "her"), *jobs("aa", "his", first=3)], served={"her": NOW + 0.5})
    ran: list[str] = []
    while found := choose(waiting, Taker(model="a"), now=NOW):
        ran.append(found.id)
        waiting.remove(found.id)
        waiting.serve(found.owner, NOW + len(ran))
    assert ran == ["hisa3", "hera0", "hisa4", "hera1", "hera2"]
    assert [job.id for job in Line([*jobs("aaa", "her"), *jobs("aa", "his", first=3)]).take_turns("a")] == [
        *("hera0", "hisa3", "hera1", "hisa4", "hera2")
    ]


def test_a_paused_owners_jobs_wait_until_they_go_on() -> None:
    waiting = Line([*jobs("aa", "her"), *jobs("a", "his", first=2)], paused=["her"])
    assert (len(waiting), [job.id for job in waiting.list_paused()]) == (1, ["hera0", "hera1"])
    assert take(waiting, Taker(model="a")) == "hisa2"
    waiting.pause("his")
    waiting.resume("her")
    assert take(waiting, Taker(model="a")) == "hera0"


@pytest.mark.parametrize("seed", range(30))
def test_a_line_that_changed_is_the_line_that_was_read_anew(seed: int) -> None:
    """Whatever comes, goes, moves and pauses, a line kept up to date chooses as one made of what is left."""
    draw = random.Random(seed)
    kept, there, paused = Line(), dict[str, Waiting](), set[str]()
    for number in range(120):
        owner = draw.choice("xyz")
        match draw.choice(["add", "add", "add", "remove", "move", "pause"]):
            case "add":
                there[str(number)] = Waiting(
                    id=str(number),
                    model=draw.choice("abc"),
                    owner=owner,
                    place=(number, 0),
                    queued_at=NOW + draw.random() * 100,
                    is_placed=draw.random() < 0.2,
                )
                kept.add(there[str(number)])
            case "remove" if there:
                kept.remove(gone := draw.choice([*there]))
                del there[gone]
            case "move" if there:
                moved = draw.choice([*there])
                there[moved] = replace(there[moved], place=(draw.randint(0, 200), number), is_placed=True)
                kept.add(there[moved])
            case "pause":
                (kept.resume if owner in paused else kept.pause)(owner)
                paused ^= {owner}
            case _:
                continue
        anew = Line(there.values(), paused=paused)
        assert len(kept) == len(anew)
        for model in "abc":
            assert kept.count(model) == anew.count(model)
            assert kept.find_oldest_at(model) == anew.find_oldest_at(model)
            assert Counter(kept.take_turns(model)) == Counter(anew.take_turns(model))
            for owner in "xyz":
                assert (
                    _first_of(kept, owner, model) == _first_of(anew, owner, model) == _look(there, paused, owner, model)
                )


def _first_of(line: Line, owner: str, model: str) -> Waiting | None:
    own = line._owners.get(model, {}).get(owner)
    return own.find_first(model) if own else None


def _look(there: dict[str, Waiting], paused: set[str], owner: str, model: str) -> Waiting | None:
    """The rule of one owner, as a search through all of the owner's jobs."""
    own: Sequence[Waiting] = sorted((job for job in there.values() if job.owner == owner), key=lambda job: job.place)
    if owner in paused:
        return None
    for number, job in enumerate(own):
        if job.model == model:
            barred = any(one.is_placed for one in own[:number]) or (job.is_placed and number > 0)
            return None if barred else job
    return None

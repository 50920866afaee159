"""The one trade: fewer model switches, bounded waiting."""

import random
from dataclasses import replace

import pytest

from studio.jobs.line.order import MAX_OVERTAKES, PAUSED, Line, Waiting, choose_next, plan_turns, take_turns


def jobs(models: str, owner: str = "") -> list[Waiting]:
    """One waiting job for each letter, in order of arrival."""
    return [Waiting(id=f"{owner}{model}{number}", model=model, owner=owner) for number, model in enumerate(models)]


def line(models: str) -> Line:
    return Line(jobs=jobs(models))


def names(line: Line, resident: str | None = None) -> list[str]:
    return [turn.job_id for turn in plan_turns(line, resident)]


def test_the_oldest_job_runs_first_without_a_resident_model() -> None:
    assert choose_next(line("ab"), None).id == "a0"


def test_nobody_waits() -> None:
    assert choose_next(line(""), "a") is None
    assert plan_turns(line(""), "a") == []


def test_a_job_of_the_resident_model_overtakes() -> None:
    assert choose_next(line("bba"), "a").id == "a2"


def test_a_job_is_overtaken_only_so_often() -> None:
    waiting = [Waiting(id="patient", model="b", overtaken=MAX_OVERTAKES), *jobs("aa")]
    assert choose_next(Line(jobs=waiting), "a").id == "patient"


def test_no_job_waits_for_more_than_the_allowed_overtakes() -> None:
    assert names(line("b" + "a" * 20), "a").index("b0") == MAX_OVERTAKES


def test_everybody_gets_exactly_one_turn() -> None:
    waiting = line("abcabcaabbcc")
    assert sorted(names(waiting, "b")) == sorted(job.id for job in waiting.jobs)


def test_whoever_waits_longer_is_told_why() -> None:
    turns = {turn.job_id: turn.reason for turn in plan_turns(line("baa"), "a", switch_s=95.2)}
    assert turns == {"a1": "", "a2": "", "b0": "2 a jobs first: saves a 95 s switch"}
    assert plan_turns(line("ba"), "a")[1].reason == "1 a job first: saves a model switch"


def test_what_was_placed_by_hand_stays_there_whatever_is_resident() -> None:
    first = [replace(jobs("b")[0], is_placed=True), *jobs("aa")]
    assert names(Line(jobs=first), "a") == ["b0", "a0", "a1"]
    a0, b1, a2 = jobs("aba")
    assert names(Line(jobs=[a0, b1, replace(a2, is_placed=True)]), "a") == ["a0", "b1", "a2"]


def test_one_owners_placing_does_not_bind_another_owner() -> None:
    hers = replace(jobs("b", "her")[0], is_placed=True)
    waiting = Line(jobs=[hers, *jobs("a", "his")], owners=["her", "his"])
    assert names(waiting, "a") == ["hisa0", "herb0"]


def test_owners_take_turns_whoever_arrived_first_with_many() -> None:
    waiting = Line(jobs=[*jobs("aaa", "her"), *jobs("aa", "his")], owners=["his", "her"])
    assert names(waiting) == ["hisa0", "hera0", "hisa1", "hera1", "hera2"]


def test_whoever_lets_others_go_first_is_told_why() -> None:
    waiting = Line(jobs=[*jobs("aaa", "her"), *jobs("a", "his")], owners=["her", "his"])
    reasons = {turn.job_id: turn.reason for turn in plan_turns(waiting, "a")}
    assert reasons["hera0"] == reasons["hisa0"] == ""
    assert reasons["hera1"] == "everybody takes turns: 1 job by someone else first"


def test_a_paused_owners_jobs_stay_and_say_so() -> None:
    waiting = Line(jobs=[*jobs("aa", "her"), *jobs("a", "his")], owners=["his"])
    assert choose_next(waiting, "a").owner == "his"
    assert [(turn.job_id, turn.reason) for turn in plan_turns(waiting, "a")] == [
        ("hisa0", ""),
        ("hera0", PAUSED),
        ("hera1", PAUSED),
    ]


def test_taking_turns_does_not_swap_models_every_time() -> None:
    waiting = Line(jobs=[*jobs("aaa", "her"), *jobs("bbb", "his")], owners=["her", "his"])
    assert names(waiting, "a") == ["hera0", "hera1", "hera2", "hisb0", "hisb1", "hisb2"]


@pytest.mark.parametrize("seed", range(60))
def test_the_plan_is_what_claiming_one_after_the_other_gives(seed: int) -> None:
    draw = random.Random(seed)
    owners = [f"owner{number}" for number in range(draw.randint(1, 4))]
    left = [
        Waiting(
            id=str(number),
            model=draw.choice("abc"),
            owner=draw.choice(owners),
            overtaken=draw.choice([0, 0, 1, MAX_OVERTAKES]),
            is_placed=draw.random() < 0.2,
        )
        for number in range(draw.randint(0, 30))
    ]
    turns = plan_turns(Line(jobs=left, owners=owners), "a")
    claimed: list[str] = []
    overtaken: dict[str, str] = {}
    resident = "a"
    while (chosen := choose_next(now := Line(jobs=left, owners=owners), resident)) is not None:
        order = take_turns(now)
        passed = {job.id for job in order[: order.index(chosen)]}
        overtaken |= {job_id: chosen.model for job_id in passed if job_id not in overtaken}
        left = [replace(job, overtaken=job.overtaken + (job.id in passed)) for job in left if job is not chosen]
        owners = [*(owner for owner in owners if owner != chosen.owner), chosen.owner]
        resident = chosen.model
        claimed.append(chosen.id)
    assert [turn.job_id for turn in turns] == claimed
    assert {turn.job_id for turn in turns if "saves a model switch" in turn.reason} == set(overtaken)


def test_only_others_that_came_later_and_ran_before_are_counted() -> None:
    waiting = Line(jobs=[*jobs("aaaa", "her"), *jobs("aa", "his"), *jobs("a", "its")], owners=["its", "his", "her"])
    reasons = {turn.job_id: turn.reason for turn in plan_turns(waiting, "a")}
    assert reasons["hera0"] == "everybody takes turns: 2 jobs by others first"
    assert reasons["hera3"] == "everybody takes turns: 3 jobs by others first"
    assert reasons["hisa1"] == "everybody takes turns: 1 job by someone else first"
    assert reasons["itsa0"] == ""

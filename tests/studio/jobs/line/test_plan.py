"""What one worker would run in which order, and what is said to who waits longer for it."""

import pytest

from studio.jobs.line.order import Fleet, Line, Taker, Waiting
from studio.jobs.line.plan import PAUSED, PlaceInLine, Plan
from tests.studio.jobs.line.test_order import NOW, jobs


def plan_turns(line: Line, model: str = "", switch_s: float | None = None, job_s: float = 1.0) -> list[PlaceInLine]:
    """The turns of one worker whose jobs take a second."""
    plan, planned, now, held_from = Plan(line), list[PlaceInLine](), NOW + 0.1, 0.0
    while served := plan.serve(
        Taker(model=model, held_from=held_from), Fleet(holders={model: 1}), now=now, switch_s=switch_s
    ):
        held_from = held_from if model == served[0].model else now
        planned, model, now = planned + served, served[0].model, now + job_s
    return planned + plan.list_paused()


def names(line: Line, model: str = "", job_s: float = 1.0) -> list[str]:
    return [turn.job_id for turn in plan_turns(line, model, job_s=job_s)]


@pytest.mark.parametrize(("job_s", "place"), [(1.0, 60), (10.0, 6), (100.0, 1)])
def test_a_job_lets_others_pass_for_a_time_and_not_for_a_number_of_them(job_s: float, place: int) -> None:
    assert names(Line(jobs("b" + "a" * 90)), "a", job_s).index("b0") == place


def test_everybody_gets_exactly_one_turn() -> None:
    waiting = jobs("abcabcaabbcc")
    assert sorted(names(Line(waiting), "b")) == sorted(job.id for job in waiting)


def test_whoever_waits_longer_is_told_why() -> None:
    turns = {turn.job_id: turn.reason for turn in plan_turns(Line(jobs("baa")), "a", switch_s=95.2)}
    assert turns == {"a1": "", "a2": "", "b0": "2 a jobs first: saves a 95 s switch"}
    assert plan_turns(Line(jobs("ba")), "a")[1].reason == "1 a job first: saves a model switch"


def test_whoever_lets_others_go_first_is_told_why() -> None:
    waiting = Line([*jobs("aaa", "her"), *jobs("a", "his", first=3)])
    reasons = {turn.job_id: turn.reason for turn in plan_turns(waiting, "a")}
    assert reasons["hera0"] == reasons["hisa3"] == ""
    assert reasons["hera1"] == "everybody takes turns: 1 job by someone else first"


def test_a_paused_owners_jobs_stay_and_say_so() -> None:
    waiting = Line([*jobs("aa", "her"), *jobs("a", "his", first=2)], paused=["her"])
    assert [(turn.job_id, turn.reason) for turn in plan_turns(waiting, "a")] == [
        ("hisa2", ""),
        ("hera0", PAUSED),
        ("hera1", PAUSED),
    ]


def test_taking_turns_does_not_swap_models_every_time() -> None:
    waiting = Line([*jobs("aaa", "her"), *jobs("bbb", "his", first=3)])
    assert names(waiting, "a") == ["hera0", "hera1", "hera2", "hisb3", "hisb4", "hisb5"]


def test_only_others_that_came_later_and_ran_before_are_counted() -> None:
    served = {"its": NOW + 0.1, "his": NOW + 0.2, "her": NOW + 0.3}
    waiting = [*jobs("aaaa", "her"), *jobs("aa", "his", first=4), *jobs("a", "its", first=6)]
    reasons = {turn.job_id: turn.reason for turn in plan_turns(Line(waiting, served=served), "a")}
    assert reasons["hera0"] == "everybody takes turns: 2 jobs by others first"
    assert reasons["hera3"] == "everybody takes turns: 3 jobs by others first"
    assert reasons["hisa5"] == "everybody takes turns: 1 job by someone else first"
    assert reasons["itsa6"] == ""


def test_what_joins_a_batch_leaves_the_line_with_it() -> None:
    plan = Plan(Line(jobs("abaa")))

    def join_all(_first: Waiting, others: object) -> list[Waiting]:
        return [*others]

    served = plan.serve(Taker(model="a"), Fleet(holders={"a": 1}), now=NOW, join=join_all)
    assert [(turn.job_id, turn.together_with) for turn in served] == [("a0", None), ("a2", "a0"), ("a3", "a0")]
    assert [turn.job_id for turn in plan.serve(Taker(model="a"), Fleet(holders={"a": 1}), now=NOW)] == ["b1"]

"""The one trade: fewer model switches, bounded waiting."""

from studio.jobs.order import MAX_OVERTAKES, Waiting, choose_next, plan_turns


def line(models: str) -> list[Waiting]:
    """One waiting job for each letter, in order of arrival."""
    return [Waiting(id=f"{model}{number}", model=model) for number, model in enumerate(models)]


def test_the_oldest_job_runs_first_without_a_resident_model() -> None:
    assert choose_next(line("ab"), None).id == "a0"


def test_nobody_waits() -> None:
    assert choose_next([], "a") is None
    assert plan_turns([], "a") == []


def test_a_job_of_the_resident_model_overtakes() -> None:
    assert choose_next(line("bba"), "a").id == "a2"


def test_a_job_is_overtaken_only_so_often() -> None:
    waiting = [Waiting(id="patient", model="b", overtaken=MAX_OVERTAKES), *line("aa")]
    assert choose_next(waiting, "a").id == "patient"


def test_no_job_waits_for_more_than_the_allowed_overtakes() -> None:
    turns = plan_turns(line("b" + "a" * 20), "a")
    assert [turn.job_id for turn in turns].index("b0") == MAX_OVERTAKES


def test_everybody_gets_exactly_one_turn() -> None:
    waiting = line("abcabcaabbcc")
    assert sorted(turn.job_id for turn in plan_turns(waiting, "b")) == sorted(job.id for job in waiting)


def test_whoever_waits_longer_is_told_why() -> None:
    turns = {turn.job_id: turn.reason for turn in plan_turns(line("baa"), "a", switch_s=95.2)}
    assert turns == {"a1": "", "a2": "", "b0": "2 a jobs first: saves a 95 s switch"}
    assert plan_turns(line("ba"), "a")[1].reason == "1 a job first: saves a model switch"

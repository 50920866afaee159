"""The choice at scale: few switches, short waits, and nobody starves; `python -m tests.load.choices` tells more."""

import pytest

from tests.studio.jobs.line.simulation import Case, find_p95, simulate


def test_hundreds_of_workers_hardly_ever_switch_and_nobody_waits_long() -> None:
    case = Case(workers=500, models=20, load=0.95, jobs=6_000)
    outcome = simulate(case)
    waits_s = outcome.all_waits_s
    assert len(waits_s) == case.jobs
    assert outcome.swaps < case.jobs / 100
    assert find_p95(waits_s) <= 60.0
    assert find_p95(outcome.light_waits_s) < 5.0
    assert max(waits_s) < 3 * case.swap_s + 2 * case.job_s, "patience, a switch, and a job"


@pytest.mark.parametrize(("workers", "models"), [(1, 3), (4, 6), (8, 3)])
def test_few_workers_leave_nobody_waiting_for_ever(workers: int, models: int) -> None:
    """With fewer workers than models they switch; every model comes round."""
    case = Case(workers=workers, models=models, load=0.5, jobs=400, swap_s=30.0)
    outcome = simulate(case)
    assert len(outcome.all_waits_s) == case.jobs
    assert outcome.swaps < case.jobs / 2
    assert max(outcome.all_waits_s) < models * 10 * (2 * case.swap_s + case.job_s)

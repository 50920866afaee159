"""Where seconds go: every one to the phase it belongs to, none twice."""

import pytest

from pipelines.stages import PhaseWatch, Progress, SwapCost, Timings


class Clock:
    """Stands still until it is told to go on."""

    def __init__(self) -> None:
        self.now_s = 100.0

    def __call__(self) -> float:
        return self.now_s

    def pass_by(self, seconds: float) -> None:
        self.now_s += seconds


def test_every_second_goes_to_the_phase_that_was_told_last() -> None:
    clock = Clock()
    told: list[str] = []
    watch = PhaseWatch(lambda progress: told.append(progress.phase), clock=clock)
    clock.pass_by(1)
    for phase, seconds in (("loading", 2), ("sharding", 4), ("loading", 8), ("sharding", 16)):
        watch(Progress(phase=phase))
        clock.pass_by(seconds)
    watch.enter("quiet")
    clock.pass_by(32)
    assert dict(watch.stop()) == {"": 1, "loading": 10, "sharding": 20, "quiet": 32}
    assert told == ["loading", "sharding", "loading", "sharding"]


def test_a_swap_costs_the_sum_of_its_parts() -> None:
    cost = SwapCost(unload_s=1, find_s=2, load_s=4, shard_s=8, compile_s=16, cache_s=32)
    assert cost.total_s == 63
    assert cost.to_json() == {**vars(cost), "total_s": 63}


def test_timings_tell_a_swap_only_where_there_was_one() -> None:
    plain = Timings(load_s=1.23456).to_json()
    assert plain["load_s"] == pytest.approx(1.2346)
    assert plain.keys() == {"load_s", "compile_s", "encode_s", "denoise_s", "step_ms", "decode_s", "total_s"}
    swapped = Timings(swap=SwapCost(unload_s=0.5)).to_json()
    assert swapped.keys() == {*plain, "swap"}
    assert swapped["swap"]["unload_s"] == 0.5

"""What is said of a training's plan: hours and dollars by hand, and what to take in place of what does not fit."""

from dataclasses import replace
from typing import Any

import pytest

from pipelines.plan.estimate import Cost, Estimate, find_estimator
from pipelines.plan.topologies import find_topology
from pipelines.plan.training import Described, TrainingAnswer, TrainingQuestion, ask
from pipelines.plan.training_report import count_dollars, count_hours, describe, list_roomier, show_hours, to_json
from pipelines.plan.verdicts import Answer, read_versions

V6E = find_topology("v6e-8")
QUESTION = TrainingQuestion(model="m", kind="full", topology="v6e-8", shape="1024x1024", batch_size=8, rank=0)


def answer(**changes: Any) -> TrainingAnswer:
    usual: dict[str, Any] = {
        "question": QUESTION,
        "remat": "layers",
        "mesh": "dp=8",
        "learnt": 10**9,
        "weights_bytes": 2 * 10**9,
        "program": "abc",
        "answer": Answer(compile_s=60.0, arguments_bytes=2 * 10**9, temp_bytes=10**9, code_bytes=10**8),
        "estimate": Estimate(run=Cost(compute_s=0.5), once=Cost()),
        "day": "2026-11-28",
        "versions": read_versions(),
        "estimator": find_estimator(V6E.chip),
    }
    return TrainingAnswer(**(usual | changes))


def test_hours_and_dollars_are_those_of_all_steps_on_all_chips() -> None:
    assert count_hours(answer(), 7200) == 1.0
    assert count_dollars(answer(), V6E, steps=7200, chip_price=2.5) == 8 * 2.5
    assert count_dollars(answer(), V6E, steps=7200, chip_price=None) is None


def test_two_experts_learn_one_after_the_other_and_cost_twice_as_much() -> None:
    both = answer(rounds=2)
    assert count_hours(both, 7200) == 2.0
    said = " ".join(describe(both, V6E, steps=7200, chip_price=2.5))
    assert "7200 steps of each of 2 experts in 2 h, 40.00 US dollars" in said


@pytest.mark.parametrize(
    ("hours", "text"), [(0.001, "3.6 s"), (0.057, "3.4 min"), (1.26, "1.3 h"), (104.7, "105 h"), (12_345.0, "12,345 h")]
)
def test_hours_are_written_as_people_do(hours: float, text: str) -> None:
    assert show_hours(hours) == text


def test_weights_that_are_more_than_a_chip_holds_are_told_without_compiling() -> None:
    """As FLUX.2-dev's, with 48 GB a chip."""

    def build(_remat: str, _accumulate: int) -> Any:
        raise AssertionError("nothing is built")

    step = Described(
        build=build, ways=[("layers", 1), ("full", 1)], mesh="dp=8", learnt=32_223_300_000, weights_bytes=48_334_950_000
    )
    nothing: Any = None
    found = ask(QUESTION, step, topology=V6E, compiler=nothing, made_of="", on_compile=print)
    assert not found.fits(V6E)
    assert list_roomier(found, V6E) == ["v7x-8", "v5p-16", "v6e-32"]
    said = describe(found, V6E, steps=100, chip_price=2.7)
    assert any(
        "does not fit: weights and optimizer alone are 48.3 GB a chip, which holds 33.6. Take a LoRA (--lora)" in line
        for line in said
    )
    assert not any("fewer pictures" in line or "s a step" in line for line in said)


def test_what_does_not_fit_says_which_machines_would() -> None:
    refused = Answer(compile_s=9.0, arguments_bytes=0, temp_bytes=40 * 10**9, code_bytes=0, refusal="no room")
    found = answer(weights_bytes=21 * 10**9, answer=refused, estimate=None)
    (said,) = (line for line in describe(found, V6E, steps=1, chip_price=None) if "does not fit" in line)
    assert "a LoRA (--lora), a smaller size (--shape), or more memory" in said
    assert "v6e-16" in said and "v5p-8" in said  # 21 / 2 + 19 and 2 * 21 + 19 GB
    assert "fewer pictures" not in said  # each chip has one
    more = replace(found, question=replace(QUESTION, batch_size=16, kind="lora", remat="full"))
    (said,) = (line for line in describe(more, V6E, steps=1, chip_price=None) if "does not fit" in line)
    assert "--remat auto, fewer pictures a step (--batch)" in said and "--lora" not in said


def test_an_answer_of_another_compiler_says_so() -> None:
    found = answer(versions={**read_versions(), "libtpu": "0.0.1"}, is_kept=True)
    assert "libtpu 0.0.1; here is" in describe(found, V6E, steps=1, chip_price=None)[-1]
    said = to_json(found, V6E, steps=1, chip_price=None)
    assert said["versions"]["libtpu"] == "0.0.1" and said["versions_here"] == read_versions()
    assert "here is" not in " ".join(describe(answer(), V6E, steps=1, chip_price=None))


def test_other_settings_are_part_of_the_question_and_told() -> None:
    asked = replace(QUESTION, others={"ema": 0.999, "convolutions": True})
    assert asked.describe() != QUESTION.describe()
    said = describe(answer(question=asked), V6E, steps=1, chip_price=None)
    assert "a step, ema 0.999, convolutions yes, on v6e-8" in said[0]

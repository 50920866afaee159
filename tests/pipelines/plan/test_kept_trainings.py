"""Files of kept answers about trainings: whose seconds are given out, and what several processes add at once."""

import json
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest

from pipelines.plan.estimate import OWN_ESTIMATORS, Cost, Estimate, find_estimator
from pipelines.plan.lines import read_lines, write_lines
from pipelines.plan.topologies import V5P, find_topology
from pipelines.plan.training import SHIPPED, TrainingAnswer, TrainingQuestion, find, keep, list_answers
from pipelines.plan.verdicts import Answer

QUESTION = TrainingQuestion(model="m", kind="lora", topology="v5p-64", shape="1024x1024", batch_size=64, rank=16)


def answer(question: TrainingQuestion) -> TrainingAnswer:
    return TrainingAnswer(
        question=question,
        remat="layers",
        mesh="dp=32",
        learnt=1000,
        weights_bytes=2000,
        program="abc",
        answer=Answer(compile_s=1.0, arguments_bytes=2000, temp_bytes=100, code_bytes=10),
        estimate=Estimate(run=Cost(compute_s=0.5), once=Cost()),
        day="2026-11-28",
        versions={},
        estimator=find_estimator(find_topology(question.topology, trains=True).chip),
    )


@pytest.mark.parametrize("estimator", [None, OWN_ESTIMATORS[V5P.name] - 1])
def test_seconds_that_were_counted_otherwise_are_not_given_out(tmp_path: Path, estimator: int | None) -> None:
    file = tmp_path / "answers.jsonl"
    keep(file, answer(QUESTION))
    found = find(file, QUESTION)
    assert found is not None and found.is_kept and [found] == list_answers(file)
    lines = [line | {"estimator": estimator} for line in read_lines(file)]
    write_lines(file, [{name: value for name, value in line.items() if value is not None} for line in lines])
    assert find(file, QUESTION) is None and list_answers(file) == []
    keep(file, answer(QUESTION))  # compiled anew, in place of the other
    assert len(read_lines(file)) == 1 and find(file, QUESTION) == found


def test_a_machine_that_is_not_known_has_no_seconds_of_today(tmp_path: Path) -> None:
    file = tmp_path / "answers.jsonl"
    keep(file, answer(QUESTION))
    gone = replace(QUESTION, topology="v9-8")
    file.write_text(file.read_text("utf-8").replace("v5p-64", gone.topology), "utf-8")
    assert find(file, gone) is None


def test_the_seconds_that_ship_are_of_today() -> None:
    """Plans of an earlier version would be left out, and the page of trainings would say that there are none."""
    assert len(list_answers(SHIPPED)) == len(read_lines(SHIPPED)) > 10


def test_answers_that_are_kept_at_the_same_time_are_all_kept(tmp_path: Path) -> None:
    file = tmp_path / "answers.jsonl"
    questions = [replace(QUESTION, rank=rank) for rank in range(1, 25)]
    with ThreadPoolExecutor(8) as threads:
        list(threads.map(lambda question: keep(file, answer(question)), questions))
    assert {json.loads(line)["question"]["rank"] for line in file.read_text("utf-8").splitlines()} == {*range(1, 25)}

"""Prompts of prior pictures come from the command line, a file, or the model's own examples."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pipelines.errors import RecipeError
from pipelines.models.catalog import load_catalog
from pipelines.training.data.prompts import list_prior_prompts
from pipelines.training.settings import TrainingSettings

MODEL = load_catalog().get("demo-sdxl")


def read(**asked: Any) -> tuple[str, ...]:
    return list_prior_prompts(TrainingSettings.model_validate(asked), MODEL)


def test_prompts_of_a_file_follow_those_of_the_command_line_and_none_comes_twice(tmp_path: Path) -> None:
    file = tmp_path / "prompts.txt"
    file.write_text("a boat\n\n  a house \na dog\n", "utf-8")
    assert read(prior_prompt=("a dog",), prior_prompts=str(file)) == ("a dog", "a boat", "a house")
    assert read() == ()


def test_auto_takes_the_models_own_examples() -> None:
    assert read(prior_prompts="auto") == tuple(example.prompt for example in MODEL.examples)
    with pytest.raises(RecipeError, match="no example prompts"):
        list_prior_prompts(TrainingSettings(prior_prompts="auto"), replace(MODEL, examples=()))


def test_a_file_that_cannot_be_used_is_told(tmp_path: Path) -> None:
    (tmp_path / "empty.txt").touch()
    with pytest.raises(RecipeError, match="no prompts"):
        read(prior_prompts=str(tmp_path / "empty.txt"))
    with pytest.raises(RecipeError, match=r"missing\.txt cannot be read: No such file or directory$"):
        read(prior_prompts=str(tmp_path / "missing.txt"))

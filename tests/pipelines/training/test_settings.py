"""A training's settings: from the command line and a file, and what of them would do nothing."""

from pathlib import Path
from typing import Any

import pytest

from pipelines.errors import RecipeError
from pipelines.training.settings import read_name, read_settings

ASKED = {"model": "m", "data": ("d",), "lora": True}


def find_problems(**asked: Any) -> dict[str, str]:
    with pytest.raises(RecipeError) as told:
        read_settings(ASKED | asked)
    return {name: str(text) for name, text in told.value.fields.items()}


def test_settings_without_what_they_belong_to_are_refused() -> None:
    alone = {"keep_tags": 3, "validate_every": 3, "sample_every": 3, "prior_weight": 2.0, "hub_model_id": "me/x",
             "hub_token": "hf_12345678"}  # fmt: skip
    assert {*find_problems(**alone)} == {*alone}
    read_settings(
        ASKED | alone | {"shuffle_tags": True, "validate_with": "0.1", "sample": ("a",), "data": ("d", "e,prior"),
                         "push_to_hub": True}
    )  # fmt: skip


def test_what_only_a_lora_has_is_refused_with_all_weights() -> None:
    asked = {"rank": 4, "lora_format": "kohya", "targets": "to_q"}
    assert {*find_problems(lora=None, full=True, **asked)} == {*asked}


def test_nothing_is_asked_by_nothing() -> None:
    read_settings(ASKED | {"keep_tags": 1, "prior_weight": 0.0, "snr_gamma": 0.0, "noise_offset": 0.0})


@pytest.mark.parametrize("name", ["sample", "prior_prompt"])
def test_an_empty_prompt_is_refused(name: str) -> None:
    assert {*find_problems(**{name: ("a boat", "  ")})} == {name}


def test_an_empty_output_or_share_is_refused() -> None:
    assert {*find_problems(output=Path(), validate_with="")} == {"output", "validate"}


FILE = """
model = "m"
data = ["d"]
full = true
steps = 5
validate = 0.25
caption-dropout = 0.5
random_flip = true
name = "corgi"
sample = "a boat"
"""


def test_a_file_says_settings_as_the_command_line_does_which_counts_before_it(tmp_path: Path) -> None:
    file = tmp_path / "corgi.toml"
    file.write_text(FILE, "utf-8")
    read = read_settings({"model": None}, file)
    assert (read.data, read.validate_with, read.caption_dropout, read.sample) == (("d",), "0.25", 0.5, ("a boat",))
    assert (read.full, read.random_flip, read.steps, read_name(file)) == (True, True, 5, "corgi")
    over = read_settings({"model": None, "lora": True, "random_flip": False, "epochs": 2.0}, file)
    assert (over.lora, over.full, over.random_flip, over.steps, over.epochs) == (True, False, False, None, 2.0)
    assert read_name(None) is None


@pytest.mark.parametrize("text", ["keep-tags = 1\nkeep_tags = 2", "name = 3", "data = [", "nonsense = 1"])
def test_a_file_that_cannot_be_meant_is_told(tmp_path: Path, text: str) -> None:
    file = tmp_path / "corgi.toml"
    file.write_text(text, "utf-8")
    with pytest.raises(RecipeError):
        read_name(file)
        read_settings(ASKED, file)


def test_a_slip_in_a_file_is_told_with_what_is_likely_meant(tmp_path: Path) -> None:
    file = tmp_path / "corgi.toml"
    file.write_text('learning-rat = 1e-4\nvalidat = 0.1\nremat = "laiers"\nnonsense = 1\n', "utf-8")
    with pytest.raises(RecipeError) as told:
        read_settings(ASKED, file)
    fields = told.value.fields
    assert fields["learning_rat"] == "is not a known field; perhaps learning_rate is meant"
    assert fields["validat"] == "is not a known field; perhaps validate is meant"
    assert fields["remat"].endswith("; perhaps layers is meant")
    assert fields["nonsense"] == "is not a known field"


def test_a_file_that_is_not_there_is_told_in_words(tmp_path: Path) -> None:
    with pytest.raises(RecipeError) as told:
        read_settings(ASKED, tmp_path / "corgi.toml")
    assert str(told.value.fields["config"]) == f"{tmp_path / 'corgi.toml'} cannot be read: No such file or directory"


def test_neither_a_lora_nor_all_weights_is_told_with_both_flags() -> None:
    problem = find_problems(lora=None)["lora"]
    assert "--lora" in problem and "--full" in problem


def test_a_fault_in_a_file_has_the_commands_name(tmp_path: Path) -> None:
    file = tmp_path / "corgi.toml"
    file.write_text("validate = true", "utf-8")
    with pytest.raises(RecipeError) as told:
        read_settings(ASKED, file)
    assert {*told.value.fields} == {"validate"}


def test_wrong_values_and_settings_that_exclude_each_other_are_told_together() -> None:
    with pytest.raises(RecipeError) as told:
        read_settings({"model": "m", "data": ("d",), "lora": True, "full": True, "ema": 2.0, "colour": "red"})
    assert told.value.fields.keys() == {"lora", "ema", "colour"}

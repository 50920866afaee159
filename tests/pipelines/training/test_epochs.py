"""What an epoch is: each picture once, with those that the model makes first, and a plan that counts them before."""

from pathlib import Path
from typing import Any

import pytest

from pipelines import registry
from pipelines.models.catalog import load_catalog
from pipelines.training.checks import Checked, check_training
from pipelines.training.settings import read_settings
from tests.pipelines.training.data.pictures import encode, make_picture


@pytest.fixture
def data(tmp_path: Path) -> Path:
    return write(tmp_path / "data", count=4)


def write(folder: Path, *, count: int) -> Path:
    folder.mkdir()
    for number in range(count):
        (folder / f"{number}.png").write_bytes(encode(make_picture(256, 256, seed=number)))
        (folder / f"{number}.txt").write_text("a cat", "utf-8")
    return folder


def check(*data: str, **asked: Any) -> Checked:
    usual = {"model": "demo-sdxl", "data": data, "lora": True, "trigger": "sks", "mesh": "dp=1"}
    settings = read_settings(usual | {"global_batch_size": 4} | asked)
    model = load_catalog().get(settings.model)
    return check_training(settings, model, registry.find_learner(model), name=None)


def write_prompts(folder: Path, count: int) -> str:
    (folder / "prompts.txt").write_text("\n".join(f"a cat {number}" for number in range(count)), "utf-8")
    return str(folder / "prompts.txt")


@pytest.mark.parametrize(("prompts", "prior", "steps"), [(1, 4, 2), (2, 4, 2), (10, 10, 4)])
def test_a_plan_counts_the_prior_pictures_that_are_still_to_be_made(
    data: Path, tmp_path: Path, prompts: int, prior: int, steps: int
) -> None:
    before = check(str(data), prior_prompts=write_prompts(tmp_path, prompts), epochs=3)
    made = write(tmp_path / "made", count=prior)
    after = check(str(data), f"{made},prior", epochs=3)
    assert (before.epoch.own, before.epoch.prior, before.epoch.made, after.epoch.made) == (4, prior, prior, 0)
    assert before.epoch.steps == after.epoch.steps == after.schedule.steps_per_epoch == steps
    assert before.steps == after.steps == 3 * steps
    told = "\n".join(before.tell())
    assert f"{3 * steps} steps of 4 pictures: 3.0 times through the data, of which 4 are your own and {prior}" in told
    assert f"{prior} prior pictures are made before the first step" in told
    plan = before.describe()
    assert (plan["steps_per_epoch"], plan["prior_pictures"]) == (steps, prior)


def test_a_number_of_steps_is_so_many_epochs_of_all_pictures(data: Path, tmp_path: Path) -> None:
    checked = check(str(data), prior_prompts=write_prompts(tmp_path, 10), steps=8)
    assert "8 steps of 4 pictures: 2.0 times through the data" in "\n".join(checked.tell())


def test_it_is_told_where_ones_own_pictures_are_the_lesser_part(data: Path, tmp_path: Path) -> None:
    prompts = write_prompts(tmp_path, 10)
    note = "There are more prior pictures than your own, which are 29 % of what is learnt; 3 times"
    assert any(one.startswith(note) for one in check(str(data), prior_prompts=prompts).notes)
    assert not check(f"{data},repeats=3", prior_prompts=prompts).epoch.list_notes()
    assert not check(str(data), prior_prompts=write_prompts(tmp_path, 4)).epoch.list_notes()


def test_pictures_of_the_same_words_that_are_only_kept_are_no_part_of_an_epoch(data: Path, tmp_path: Path) -> None:
    checked = check(str(data), prior_prompts=write_prompts(tmp_path, 10), preserve=1.0, epochs=3)
    assert (checked.epoch.prior, checked.epoch.made, checked.epoch.steps, checked.steps) == (0, 10, 1, 3)
    assert not checked.epoch.list_notes()


def test_without_prior_pictures_nothing_is_said_of_them(data: Path) -> None:
    assert "prior" not in "\n".join(check(str(data)).tell())

"""Whose weights a training starts from: a distilled model's base, for which the LoRA is used on the distilled one."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from pipelines.models.catalog import load_catalog
from pipelines.training.checks import tell_start


@pytest.mark.parametrize("size", ["4b", "9b"])
def test_klein_learns_from_klein_base(size: str) -> None:
    klein = load_catalog().get(f"flux2-klein-{size}")
    start = klein.choose_start()
    assert (start.repo, start.revision) == (f"black-forest-labs/FLUX.2-klein-base-{size.upper()}", "main")
    assert start.id == klein.id
    (whole,) = tell_start(klein, "full")
    assert "the result is used as that model is" in str(whole)
    (note,) = tell_start(klein)
    assert start.repo in str(note)


def test_a_revision_is_that_of_the_base() -> None:
    klein = load_catalog().get("flux2-klein-4b")
    assert klein.choose_start(revision="abc").revision == "abc"


def test_other_models_learn_from_themselves() -> None:
    for model in load_catalog().models:
        if not model.learns_from:
            assert model.choose_start() == model
            assert not tell_start(model)


def test_a_distilled_folder_of_ones_own_is_told(tmp_path: Path) -> None:
    own = replace(load_catalog().get("flux2-klein-4b"), path=tmp_path, repo="")
    assert own.choose_start() == own
    (tmp_path / "model_index.json").write_text(json.dumps({"is_distilled": True}), "utf-8")
    (note,) = tell_start(own)
    assert "distilled" in str(note)
    (tmp_path / "model_index.json").write_text(json.dumps({"is_distilled": False}), "utf-8")
    assert not tell_start(own)

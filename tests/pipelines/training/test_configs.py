"""Configs of a repository that no shipped model comes from are found where they were fetched to."""

from dataclasses import replace
from pathlib import Path
from shutil import copytree

import pytest
from huggingface_hub import constants

from pipelines.models.catalog import CONFIGS_DIR, Model, load_catalog
from pipelines.registry import find_learner
from pipelines.training.configs import find_known_configs
from pipelines.training.refusals import find_strange
from pipelines.training.settings import TrainingSettings
from pipelines.training.sizes import find_multiple
from tests.hub import COMMIT, REPO


@pytest.fixture
def fetched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Model:
    """A repository like Wan 2.2 TI2V, whose configs are in the hub's cache."""
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path))
    folder = tmp_path / f"models--{REPO.replace('/', '--')}" / "snapshots" / COMMIT
    copytree(CONFIGS_DIR / "wan2.2-ti2v-5b", folder)
    return replace(load_catalog().get("wan2.2-ti2v-5b"), id="someone-wan", repo=REPO, revision=COMMIT)


def test_what_was_fetched_is_checked_like_what_ships(fetched: Model) -> None:
    learner = find_learner(fetched)
    assert find_multiple(fetched, learner) == 32 > learner.size_multiple
    asked = {"model": REPO, "lora": True, "expert": "high", "targets": "nothing"}
    assert find_strange(TrainingSettings.model_validate(asked), fetched, learner).keys() == {"expert", "targets"}


def test_what_was_not_fetched_whole_is_not_there(fetched: Model) -> None:
    folder = find_known_configs(fetched)
    assert folder is not None
    (folder / "transformer" / "config.json").unlink()
    assert find_known_configs(fetched) is None
    assert find_known_configs(replace(fetched, revision="another")) is None
    assert find_known_configs(replace(fetched, repo="")) is None

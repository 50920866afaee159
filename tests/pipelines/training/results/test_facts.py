"""Every setting is shared with a state, taken and said, or of no effect on what is learnt."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from pipelines.errors import RecipeError
from pipelines.families.sdxl.training import LEARNER as SDXL
from pipelines.families.wan.training import LEARNER as WAN
from pipelines.training.results.facts import (
    NAMED_BY_OTHERS,
    TAKEN,
    WITHOUT_EFFECT,
    list_differences,
    list_facts,
    refuse_differences,
    tell_changes,
)
from pipelines.training.settings import TrainingSettings


def list_of(learner: Any = SDXL, scheduler: Mapping[str, Any] | None = None, **asked: Any) -> dict[str, Any]:
    settings = TrainingSettings.model_validate({"model": "m", "data": ("d",), "lora": True} | asked)
    return list_facts(
        settings, learner, scheduler or {}, model="m", revision="", base="", expert="unet", global_batch_size=8,
        data="hash", prior="none", start_from=None, steps=100, dtype="float32",
    )  # fmt: skip


def test_every_setting_is_in_one_group() -> None:
    facts = list_of()
    named = [*facts, *facts[TAKEN]]
    known = {name for name in named if name in TrainingSettings.model_fields}
    assert known | NAMED_BY_OTHERS | WITHOUT_EFFECT == set(TrainingSettings.model_fields)
    assert not WITHOUT_EFFECT & (known | NAMED_BY_OTHERS)


def test_a_prediction_is_what_the_checkpoint_has_or_what_is_asked() -> None:
    found = list_of(scheduler={"prediction_type": "v_prediction"})
    assert list_differences(found, list_of(scheduler={}, prediction_type="v_prediction")) == {}
    assert list_differences(found, list_of()) == {"prediction_type": ("v_prediction", "epsilon")}


def test_what_a_family_takes_by_default_is_the_same_as_asking_for_it() -> None:
    assert tell_changes(list_of(), list_of(snr_gamma=5.0)) is None
    assert tell_changes(list_of(WAN), list_of(WAN, sigmas="shifted")) is None
    assert "sigmas uniform (before: shifted)" in str(tell_changes(list_of(WAN), list_of(WAN, sigmas="uniform")))


def test_a_revision_that_has_moved_is_another_training() -> None:
    def list_at(commit: str | None) -> dict[str, Any]:
        settings = TrainingSettings.model_validate({"model": "m", "data": ("d",), "full": True})
        return list_facts(
            settings, SDXL, {}, model="m", revision="", base="", expert="unet", global_batch_size=8, data="hash",
            prior="none", start_from=None, steps=100, dtype="float32", denoisers=commit,
        )  # fmt: skip

    with pytest.raises(RecipeError, match="other weights of the same non_ema_revision"):
        refuse_differences(list_at("a" * 40), list_at("b" * 40), Path("out"))
    refuse_differences(list_at("a" * 40), list_at(None), Path("out"))  # not here yet
    refuse_differences(list_at(None), list_at("b" * 40), Path("out"))  # a state from before it was noted


def test_a_state_of_before_such_facts_is_gone_on_with() -> None:
    asked = list_of(trigger="sks", noise_offset=0.1)
    older = {"model": "m", "rank": 16}
    assert list_differences(older, asked) == {}
    assert tell_changes(older, asked) is None

"""Where the weights that learn come from."""

import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from pipelines import registry
from pipelines.models.catalog import Catalog, Model
from pipelines.runtime.devices.mesh import build_mesh
from pipelines.stages import ignore_progress
from pipelines.training.engine import denoiser
from pipelines.training.engine.denoiser import Origin, build_module, describe_weights, find_denoisers, start_state
from pipelines.training.engine.optimizers import build_optimizer
from pipelines.training.settings import TrainingSettings

ASKED: dict[str, Any] = {"model": "tiny", "data": ("d",), "full": True, "non_ema_revision": "non-ema"}


def test_weights_of_another_revision_learn_in_place_of_the_bases(
    local_catalog: Catalog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = replace(local_catalog.get("tiny"), variant="fp16")  # which the other revision is not read in
    assert model.path is not None
    learner = registry.find_learner(model)
    known = learner.list_denoisers(model.path, {})
    other = shutil.copytree(model.path / "unet", tmp_path / "snapshot" / "unet")
    (file,) = other.glob("*.safetensors")
    save_file({name: value + 1 for name, value in load_file(file).items()}, file, {"format": "pt"})
    asked: list[tuple[str, str, tuple[str, ...]]] = []

    def locate(asked_of: Model, *, components: tuple[str, ...], **_more: Any) -> Path:
        asked.append((asked_of.revision, asked_of.variant, components))
        return other.parent

    monkeypatch.setattr(denoiser, "locate", locate)
    settings = TrainingSettings.model_validate(ASKED)
    folder = find_denoisers(settings, model, known, ignore_progress)
    assert asked == [("non-ema", "", ("unet",))]
    assert folder is not None
    before = describe_weights(model, model.path, folder)
    assert before.startswith(f"{describe_weights(model, model.path, None)}, with denoisers of local-")
    origin = Origin(
        model=model, learner=learner, folder=model.path, mesh=build_mesh("dp=1"), on_progress=ignore_progress,
        denoisers=folder,
    )  # fmt: skip
    built = build_module(origin, known[0], settings)
    state = start_state(origin, known[0], built, optimizer=build_optimizer(settings, built.shapes), settings=settings)
    np.testing.assert_array_equal(state.trained["conv_in.bias"], jnp.float32(load_file(file)["conv_in.bias"]))
    save_file({name: value + 2 for name, value in load_file(file).items()}, file, {"format": "pt"})
    assert describe_weights(model, model.path, folder) != before, "hosts compare it"

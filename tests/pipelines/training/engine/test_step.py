"""One training step: the loss and gradients of torch and peft on the same noise, on any mesh, in any parts."""

import functools
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
import torch
from diffusers import UNet2DConditionModel
from peft import inject_adapter_in_model
from torch.nn import functional

from pipelines import registry
from pipelines.models.catalog import Catalog, load_catalog
from pipelines.runtime.devices.mesh import build_mesh
from pipelines.runtime.programs.compiled import lower
from pipelines.runtime.weights.components import abstract_weights, read_json
from pipelines.stages import ignore_progress
from pipelines.training.data.rows import TWIN
from pipelines.training.engine import placement
from pipelines.training.engine.adapters import ADAPTER, name_in_checkpoint
from pipelines.training.engine.denoiser import (
    LearningModule,
    Origin,
    build_module,
    describe_state,
    load_frozen,
    start_state,
)
from pipelines.training.engine.objective import Diffusion
from pipelines.training.engine.step import Metrics, StepPlan, TrainState, build_program, build_step
from pipelines.training.results.export import split_stacks
from pipelines.training.settings import TrainingSettings
from tests.pipelines.short import write_short

BATCH = 8
ROUNDING = 1e-9
RATE = jnp.float32(1.0)


class Trial:
    """A model ready to learn on a mesh, with gradients as its moves."""

    def __init__(self, catalog: Catalog, model_id: str, mesh: str, **asked: Any) -> None:
        self.settings = TrainingSettings.model_validate({"model": model_id, "data": ("d",), "lora": True} | asked)
        self.folder = catalog.get(model_id).path
        assert self.folder is not None
        self.model = catalog.get(model_id)
        self.learner = registry.find_learner(self.model)
        (self.denoiser,) = self.learner.list_denoisers(self.folder, {})
        self.origin = Origin(
            model=self.model,
            learner=self.learner,
            folder=self.folder,
            mesh=build_mesh(mesh),
            on_progress=ignore_progress,
        )
        self.built: LearningModule = build_module(self.origin, self.denoiser, self.settings)
        # The moves of plain gradient descent at a rate of 1 are the gradients.
        self.optimizer: Any = optax.apply_if_finite(optax.sgd(1.0), max_consecutive_errors=100)
        self.objective = Diffusion.of_scheduler(
            read_json(self.folder / "scheduler" / "scheduler_config.json"), prediction_type=None, snr_gamma=5.0
        )
        self.steps: dict[str, Any] = {}  # traced once for all rows of the same names and shapes

    def start(self) -> TrainState:
        return start_state(self.origin, self.denoiser, self.built, optimizer=self.optimizer, settings=self.settings)

    def step(self, state: TrainState, rows: Mapping[str, np.ndarray], **options: Any) -> tuple[TrainState, Metrics]:
        placed = {name: jax.device_put(value, placement.rows(self.origin.mesh)) for name, value in rows.items()}
        assert abstract_weights(placed)
        key = repr(sorted(options.items()))
        if key not in self.steps:
            shardings = jax.tree.map(lambda leaf: leaf.sharding, describe_state(state))
            self.steps[key] = jax.jit(build_step(self.plan(**options)), out_shardings=(shardings, None))
        return self.steps[key](state, self.frozen, placed, RATE)

    @functools.cached_property
    def frozen(self) -> dict[str, jax.Array]:
        return load_frozen(self.origin, self.denoiser, self.built, dtype=jnp.float32)

    def plan(self, **options: Any) -> StepPlan:
        return StepPlan(
            module=self.built.module,
            learner=self.learner,
            objective=self.objective,
            optimizer=self.optimizer,
            mesh=self.origin.mesh,
            dtype=jnp.float32,
            exact=True,
            **options,
        )


def draw_rows() -> dict[str, np.ndarray]:
    rng = np.random.default_rng(0)
    shapes = {"mean": (4, 16, 16), "prompt_embeds": (24, 80), "pooled_prompt_embeds": (48,)}
    rows = {name: rng.normal(size=(BATCH, *shape)).astype(np.float32) for name, shape in shapes.items()}
    rows["deviation"] = np.full_like(rows["mean"], 0.1)
    rows["time_ids"] = np.tile(np.asarray([[64, 64, 0, 0, 64, 64]], np.float32), (BATCH, 1))
    return rows | {"weight": np.ones(BATCH, np.float32)}


def give_values(state: TrainState) -> TrainState:
    """Gives B values that are not zero, so that A's gradients are none either."""
    rng = np.random.default_rng(7)
    trained = {
        name: jax.device_put(jnp.asarray(rng.normal(size=value.shape) * 0.05, jnp.float32), value.sharding)
        if ".lora_B." in name
        else value
        for name, value in state.trained.items()
    }
    return state._replace(trained=trained)


def compute_with_torch(trial: Trial, state: TrainState, rows: Mapping[str, np.ndarray]) -> tuple[float, dict[str, Any]]:
    """Returns diffusers' loss on the noise that the step draws, and torch's gradients by names of checkpoints."""
    latents_key, noise_key = jax.random.split(jax.random.fold_in(jax.random.key(0), 0))
    mean, deviation = jnp.asarray(rows["mean"]), jnp.asarray(rows["deviation"])
    latents = mean + deviation * jax.random.normal(latents_key, mean.shape)
    noised = trial.objective.add_noise(latents, noise_key)
    unet = UNet2DConditionModel.from_pretrained(trial.folder, subfolder="unet")
    values = split_stacks({name: np.asarray(value) for name, value in state.trained.items()})
    if trial.built.config is not None:
        unet.requires_grad_(requires_grad=False)
        inject_adapter_in_model(trial.built.config, unet, adapter_name=ADAPTER)
        missing = unet.load_state_dict(
            {name: torch.from_numpy(np.array(v)) for name, v in values.items()}, strict=False
        )
        assert not missing.unexpected_keys
    take = lambda value: torch.from_numpy(np.array(value))  # noqa: E731
    (prediction,) = unet(
        take(noised.noisy),
        take(noised.timesteps),
        encoder_hidden_states=take(rows["prompt_embeds"]),
        added_cond_kwargs={"text_embeds": take(rows["pooled_prompt_embeds"]), "time_ids": take(rows["time_ids"])},
        return_dict=False,
    )
    errors = functional.mse_loss(prediction, take(noised.target), reduction="none").mean(dim=(1, 2, 3))
    counts = take(rows["weight"])
    loss = (errors * take(noised.weights) * counts).sum() / (counts > 0).sum()
    loss.backward()
    return loss.item(), {name: one.grad.numpy() for name, one in unet.named_parameters() if one.grad is not None}


@pytest.fixture(name="catalog", scope="module")
def write_models(tmp_path_factory: pytest.TempPathFactory, data_dir: Path) -> Catalog:
    """Has a UNet of one level as `short`, and the tiny one with two blocks in each place, a scan, as `stacked`."""
    folder = tmp_path_factory.mktemp("models") / "stacked"
    write_short(folder.with_name("short"), data_dir / "models" / "tiny")
    shutil.copytree(data_dir / "models" / "tiny", folder)
    torch.manual_seed(3)
    sizes = dict(UNet2DConditionModel.load_config(folder / "unet")) | {"transformer_layers_per_block": 2}
    UNet2DConditionModel.from_config(sizes).save_pretrained(folder / "unet")
    return load_catalog(folder.parent)


@pytest.mark.parametrize(
    ("place", "asked", "parts"),
    [
        (("stacked", "dp=1"), {"rank": 4, "alpha": 8, "convolutions": True}, {}),
        (("short", "dp=4"), {"lora": False, "full": True}, {"accumulate": 2}),
    ],
    ids=["lora", "full"],
)
@pytest.mark.usefixtures("cache_dir")
def test_loss_and_gradients_are_those_of_torch_and_peft_on_any_mesh_and_in_any_parts_of_a_batch(
    catalog: Catalog, place: tuple[str, str], asked: dict[str, Any], parts: dict[str, int]
) -> None:
    trial = Trial(catalog, *place, **asked)
    rows = draw_rows() | {"weight": np.asarray([1, 1, 0.5, 1, 1, 0, 1, 1], np.float32)}
    state = give_values(trial.start())
    expected_loss, expected = compute_with_torch(trial, state, rows)

    after, metrics = trial.step(state, rows, **parts)

    assert float(metrics.loss) == pytest.approx(expected_loss, rel=1e-5)
    moves = {name: np.asarray(state.trained[name] - after.trained[name]) for name in state.trained}
    gradients = split_stacks(moves)
    assert gradients.keys() == expected.keys()
    ours = np.concatenate([gradients[name].ravel() for name in sorted(expected)])
    theirs = np.concatenate([expected[name].ravel() for name in sorted(expected)])
    assert np.linalg.norm(ours - theirs) / np.linalg.norm(theirs) < 1e-3
    assert ours @ theirs / np.linalg.norm(ours) / np.linalg.norm(theirs) > 0.99999


@pytest.fixture(name="trial", scope="module")
def begin_trial(catalog: Catalog, cache_dir: Path) -> Trial:
    """A LoRA on one device, which all tests of twins' rows step with one program."""
    return Trial(catalog, "short", "dp=1")


def draw_twins() -> dict[str, np.ndarray]:
    """Rows of which every second one is a twin."""
    return draw_rows() | {TWIN: np.tile(np.asarray([0, 1], np.float32), BATCH // 2)}


def test_a_step_that_is_no_number_changes_no_weight_and_the_next_one_learns(trial: Trial) -> None:
    rows = draw_twins()
    state = give_values(trial.start())

    wrong, metrics = trial.step(state, rows | {"mean": np.full_like(rows["mean"], np.nan)})

    assert int(metrics.skipped) == 1
    assert int(wrong.step) == 1
    for name, value in state.trained.items():
        np.testing.assert_array_equal(wrong.trained[name], value)

    after, metrics = trial.step(wrong, rows)

    assert int(metrics.skipped) == 0
    assert any((np.asarray(value) != np.asarray(state.trained[name])).any() for name, value in after.trained.items())


def test_a_cpu_copies_no_array_of_the_state(trial: Trial) -> None:
    state = trial.start()
    where = placement.rows(trial.origin.mesh)
    rows = {name: jax.device_put(value, where) for name, value in draw_rows().items()}
    arguments = (describe_state(state), abstract_weights(trial.frozen), abstract_weights(rows))
    text = lower(build_program(trial.plan(), *arguments, key=("step",))).compile().as_text()
    assert "parameter(0)" in text
    assert "copy(%state" not in text


def test_twins_learn_what_the_model_predicted_before(trial: Trial) -> None:
    rows = draw_twins()
    others = rows | {"weight": 1 - rows[TWIN]}
    state = trial.start()

    after, metrics = trial.step(state, rows)  # of a LoRA that does nothing yet
    _, without = trial.step(state, others)
    assert float(without.losses.sum()) > 1
    np.testing.assert_allclose(metrics.losses, without.losses, atol=ROUNDING)  # twins lose nothing
    assert float(metrics.loss) == pytest.approx(float(metrics.losses.sum()) / BATCH)

    _, later = trial.step(after, rows)
    _, later_without = trial.step(after, others)
    assert float(later.losses.sum() - later_without.losses.sum()) > ROUNDING


def test_what_prior_pictures_count_is_learnt_also_where_a_batch_holds_nothing_else(trial: Trial) -> None:
    rows = draw_rows()
    state = give_values(trial.start())
    _, whole = trial.step(state, rows)
    _, half = trial.step(state, rows | {"weight": np.full(BATCH, 0.5, np.float32)})
    assert float(half.loss) == pytest.approx(float(whole.loss) / 2)
    assert float(half.gradient_norm) == pytest.approx(float(whole.gradient_norm) / 2, rel=1e-5)


def test_rows_and_their_twins_stay_together_in_parts_and_on_several_devices(trial: Trial, catalog: Catalog) -> None:
    rows = draw_twins()
    results = []
    for split, options in ((trial, {}), (Trial(catalog, "short", "dp=2"), {"accumulate": 2})):
        after, metrics = split.step(give_values(split.start()), rows, **options)
        results.append((np.asarray(metrics.losses), {name: np.asarray(value) for name, value in after.trained.items()}))
    (losses, weights), (other_losses, other) = results
    np.testing.assert_allclose(other_losses, losses, rtol=1e-4)
    for name, value in weights.items():
        np.testing.assert_allclose(other[name], value, atol=2e-5)


@pytest.mark.usefixtures("cache_dir")
def test_every_linear_layer_gets_a_lora_and_nothing_else_learns(catalog: Catalog) -> None:
    trial = Trial(catalog, "stacked", "dp=1", rank=4)
    unet = UNet2DConditionModel.from_pretrained(trial.folder, subfolder="unet")
    linear = {name for name, layer in unet.named_modules() if isinstance(layer, torch.nn.Linear)}
    shapes = {name: np.empty(shape, np.float32) for name, shape in trial.built.shapes.items()}

    learning = {name.partition(".lora_")[0] for name in split_stacks(shapes)}

    assert learning == linear
    frozen = {name_in_checkpoint(name) for name in trial.built.frozen_names}
    assert frozen == Trial(catalog, "stacked", "dp=1", lora=False, full=True).built.shapes.keys()

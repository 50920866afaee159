"""What each family learns where nothing is asked, and what is asked: shifts, experts, weights, empty captions.

The references are diffusers' schedulers and pipelines, and the numbers that the models' authors publish.
"""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import jax
import numpy as np
import pytest
import torch
from diffusers import DiffusionPipeline, FlowMatchEulerDiscreteScheduler
from diffusers.pipelines.flux2.pipeline_flux2 import compute_empirical_mu
from PIL import Image

from pipelines import registry
from pipelines.errors import RecipeError
from pipelines.families.flux2.training import LEARNER as FLUX2
from pipelines.families.sdxl.training import LEARNER as SDXL
from pipelines.families.trainable import Denoiser
from pipelines.families.wan.training import LEARNER as WAN
from pipelines.families.z_image.training import LEARNER as Z_IMAGE
from pipelines.models.catalog import Catalog, Model, Shape, load_catalog
from pipelines.models.fingerprints import find_configs
from pipelines.runtime.devices.mesh import build_mesh
from pipelines.runtime.weights.components import read_json
from pipelines.stages import ignore_progress
from pipelines.training.checks import Checked, check_training
from pipelines.training.data.encoder import TextReader
from pipelines.training.engine.objective import Diffusion, Flow, Objective, choose_objective
from pipelines.training.settings import TrainingSettings, read_settings

SQUARE = Shape(width=1024, height=1024)


def choose(model_id: str, shape: Shape, *, number: int = 0, **asked: Any) -> Objective:
    """Returns what a model of the catalogue learns for pictures of a size."""
    model = load_catalog().get(model_id)
    learner, folder = registry.find_learner(model), find_configs(model)
    settings = TrainingSettings.model_validate({"model": model_id, "data": ("d",), "lora": True} | asked)
    config = read_json(folder / "scheduler" / "scheduler_config.json")
    denoiser = learner.list_denoisers(folder, config)[number]
    return choose_objective(settings, learner, config, model=model, folder=folder, shape=shape, denoiser=denoiser)


def find_diffusers_shift(folder: Path, **options: Any) -> float:
    """Returns how far a scheduler's config moves a sigma of 1/2."""
    scheduler: Any = FlowMatchEulerDiscreteScheduler.from_pretrained(folder, subfolder="scheduler")
    scheduler.set_timesteps(sigmas=[0.5], **options)
    sigma = float(scheduler.sigmas[0])
    return sigma / (1 - sigma)


@pytest.mark.parametrize(("width", "height", "tokens"), [(1024, 1024, 4096), (1024, 576, 2304)])
def test_flux2_shifts_as_its_pipeline_does_for_that_many_tokens(width: int, height: int, tokens: int) -> None:
    model = load_catalog().get("flux2-klein-base-4b")
    mu = compute_empirical_mu(image_seq_len=tokens, num_steps=50)
    expected = find_diffusers_shift(find_configs(model), mu=mu)

    found = choose(model.id, Shape(width=width, height=height))

    assert isinstance(found, Flow)
    assert found.shift == pytest.approx(expected, rel=1e-4)
    assert (found.spread, found.timestep_scale, found.low, found.high) == ("logit_normal", 1.0, 0.0, 1.0)
    if tokens == 4096:
        assert found.shift == pytest.approx(7.6, abs=0.1)


@pytest.mark.parametrize(
    ("model_id", "shape", "shift"),
    [
        ("wan2.1-14b", Shape(width=1280, height=720, frames=81), 5.0),  # README of Wan-Video/Wan2.1
        ("wan2.1-14b", Shape(width=832, height=480, frames=81), 3.0),
        ("wan2.2-a14b", Shape(width=1280, height=720, frames=81), 12.0),  # wan_t2v_A14B.py of Wan-Video/Wan2.2
    ],
)
def test_wan_shifts_as_its_authors_do(model_id: str, shape: Shape, shift: float) -> None:
    found = choose(model_id, shape)
    assert isinstance(found, Flow)
    assert (found.shift, found.spread, found.timestep_scale) == (shift, "shifted", 1000.0)


def test_a_wan_of_ones_own_shifts_as_its_config_says(tmp_path: Path) -> None:
    (tmp_path / "scheduler").mkdir()
    (tmp_path / "scheduler" / "scheduler_config.json").write_text('{"flow_shift": 4.5}', "utf-8")
    model: Any = SimpleNamespace(choose_flow_shift=lambda _shape: None)
    assert WAN.find_shift(model, tmp_path, SQUARE) == 4.5


def test_sides_are_multiples_of_what_a_checkpoints_autoencoder_and_tokens_take() -> None:
    models = ("wan2.1-14b", "wan2.2-a14b", "wan2.2-ti2v-5b", "demo-wan")
    found = [WAN.find_size_multiple(find_configs(load_catalog().get(model))) for model in models]
    assert found == [16, 16, 32, 16]


def test_each_of_wans_experts_learns_the_timesteps_at_which_diffusers_asks_it() -> None:
    """WanPipeline asks `transformer` from the boundary on, 875 of 1000, and `transformer_2` below it."""
    shape = Shape(width=832, height=480, frames=81)
    folder = find_configs(load_catalog().get("wan2.2-a14b"))
    boundary = 1000 * read_json(folder / "model_index.json")["boundary_ratio"]
    timesteps = {}
    for number, denoiser in enumerate(WAN.list_denoisers(folder, {})):
        latents = jax.numpy.zeros((256, 1, 1, 1, 1))
        drawn = choose("wan2.2-a14b", shape, number=number).add_noise(latents, jax.random.key(0))
        timesteps[denoiser.component, denoiser.ending] = np.asarray(drawn.timesteps)

    high, low = timesteps["transformer", "_high_noise"], timesteps["transformer_2", "_low_noise"]
    assert boundary == 875
    assert boundary - 1 < high.min() < high.max() <= 1000
    assert 0 <= low.min() < low.max() < boundary + 1
    assert np.ptp(high) > 100 and np.ptp(low) > 700


def test_what_is_asked_of_the_loss_is_what_is_learnt() -> None:
    plain = choose("sdxl-base", SQUARE)
    asked = choose("sdxl-base", SQUARE, snr_gamma=3.0, noise_offset=0.07, prediction_type="v_prediction")
    none = choose("sdxl-base", SQUARE, snr_gamma=0.0)
    assert isinstance(plain, Diffusion) and isinstance(asked, Diffusion) and isinstance(none, Diffusion)
    assert (plain.snr_gamma, plain.noise_offset, plain.prediction_type) == (5.0, 0.0, "epsilon")
    assert (asked.snr_gamma, asked.noise_offset, asked.prediction_type) == (3.0, 0.07, "v_prediction")
    assert none.snr_gamma == 0.0

    flow = choose("flux2-klein-base-4b", SQUARE, sigmas="mode", shift=2.5)
    assert isinstance(flow, Flow)
    assert (flow.spread, flow.shift) == ("mode", 2.5)


def read_captions(catalog: Catalog, model_id: str, cache_dir: Path, *captions: str) -> list[Any]:
    """Returns the rows of captions, as a training has them."""
    model: Model = catalog.get(model_id)
    reader = TextReader(
        model, registry.find_learner(model), mesh=build_mesh("dp=1"), cache_dir=cache_dir, on_progress=ignore_progress
    )
    rows = [reader.read(caption) for caption in captions]
    reader.close()
    return rows


@pytest.mark.parametrize(("model_id", "has_zeros"), [("tiny", True), ("sd-one", False)])
def test_an_empty_caption_is_what_guidance_compares_with(
    local_catalog: Catalog, data_dir: Path, cache_dir: Path, model_id: str, *, has_zeros: bool
) -> None:
    empty, caption = read_captions(local_catalog, model_id, cache_dir, "", "a cat, (sitting)")
    pipeline: Any = DiffusionPipeline.from_pretrained(data_dir / "models" / model_id, dtype=torch.float32)
    given = {"device": "cpu", "num_images_per_prompt": 1, "do_classifier_free_guidance": True}
    with torch.no_grad():
        positive, negative, *pooled = pipeline.encode_prompt("a cat, (sitting)", **given)

    np.testing.assert_allclose(empty["prompt_embeds"], negative[0], atol=1e-4)
    np.testing.assert_allclose(caption["prompt_embeds"], positive[0], atol=1e-4)
    assert (not np.asarray(empty["prompt_embeds"]).any()) == has_zeros
    if pooled:
        np.testing.assert_allclose(empty["pooled_prompt_embeds"], pooled[1][0], atol=1e-4)
        np.testing.assert_allclose(caption["pooled_prompt_embeds"], pooled[0][0], atol=1e-4)


@pytest.mark.parametrize(
    ("learner", "name"),
    [(FLUX2, "prompt_embeds"), (WAN, "prompt_embeds"), (Z_IMAGE, "negative_prompt_embeds")],
    ids=["flux2", "wan", "z-image"],
)
def test_an_empty_caption_of_a_flow_model_is_its_own_encoding(learner: Any, name: str) -> None:
    """FLUX.2 and Wan encode no other prompt for a caption that is empty; Z-Image has one for guidance."""
    given = {"prompt_embeds": np.full((1, 2, 3), 1.0), "negative_prompt_embeds": np.full((1, 2, 3), 2.0)}
    np.testing.assert_array_equal(learner.take_text(None, given, is_empty=True)["prompt_embeds"], given[name][0])
    np.testing.assert_array_equal(learner.take_text(None, given, is_empty=False)["prompt_embeds"], np.ones((2, 3)))


def test_sdxl_is_told_a_pictures_size_and_cut_in_the_order_of_diffusers_script() -> None:
    """`list(original_size + crops_coords_top_left + target_size)`, each height first."""
    sizes = (900, 1333, 10, 20, 512, 768)
    np.testing.assert_array_equal(SDXL.describe_cut(sizes)["time_ids"], sizes)


def test_one_denoiser_learns_all_noise() -> None:
    folder = find_configs(load_catalog().get("sdxl-base"))
    assert SDXL.list_denoisers(folder, {}) == (Denoiser(component="unet", low=0.0, high=1.0, ending=""),)


@pytest.mark.usefixtures("cache_dir")
@pytest.mark.parametrize(
    ("model_id", "asked"),
    [
        ("demo-flux2", {"prediction_type": "sample", "snr_gamma": 5.0, "noise_offset": 0.1}),
        ("demo-sdxl", {"sigmas": "mode", "shift": 2.0}),
    ],
)
def test_what_is_of_the_other_kind_of_model_is_refused_by_name(
    tmp_path: Path, model_id: str, asked: dict[str, Any]
) -> None:
    with pytest.raises(RecipeError) as told:
        check(tmp_path, model_id, **asked)
    assert told.value.fields.keys() == asked.keys()
    assert check(tmp_path, model_id, snr_gamma=0.0).notes is not None  # as diffusers' scripts say it of every model


@pytest.mark.usefixtures("cache_dir")
def test_a_schedule_that_never_restarts_is_told(tmp_path: Path) -> None:
    notes = check(tmp_path, "demo-sdxl", lr_scheduler="cosine_with_restarts").notes
    assert "is cosine: lr_num_cycles asks for more" in " ".join(map(str, notes))
    notes = check(tmp_path, "demo-sdxl", lr_scheduler="cosine_with_restarts", lr_num_cycles=2).notes
    assert "lr_num_cycles" not in " ".join(map(str, notes))


def check(folder: Path, model_id: str, **asked: Any) -> Checked:
    """Checks a training of one picture."""
    Image.new("RGB", (256, 256), "red").save(folder / "red.png")
    settings = read_settings(
        {"model": model_id, "data": (str(folder),), "caption": "red", "lora": True, "mesh": "dp=1"} | asked
    )
    model = load_catalog().get(model_id)
    return check_training(settings, model, registry.find_learner(model), name=None)

"""Single-file checkpoints give the very pictures of the folders that they were made from, and diffusers' tensors."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest
import torch

from pipelines.generate import generate
from pipelines.models.catalog import Catalog, read_data_dir
from pipelines.models.fingerprints import fingerprint_plans, fingerprint_programs
from pipelines.models.model import Model
from pipelines.recipes.recipe import read_recipe
from pipelines.recipes.resolving import resolve
from pipelines.registry import find_architecture, find_learner, load
from pipelines.runtime.devices.mesh import build_mesh
from pipelines.runtime.weights.shard_load import load_weights
from pipelines.runtime.weights.single_file import StoredComponent
from pipelines.stages import ignore_progress
from pipelines.training.engine.denoiser import Origin
from pipelines.training.results.model_folder import write_model
from pipelines.training.results.own_parts import list_own_parts, measure_own_parts, read_tensor, write_own_parts
from tests.pipelines.conftest import PROMPT
from tests.pipelines.single_files import Tensors, scale_to_fp8, unscale, write_ldm
from tests.pipelines.tiny_sd import KINDS

FOLDERS = ("tiny", "middle", *KINDS)
MAX_DIFFERENCE = 2


@pytest.fixture
def home(data_dir: Path, tmp_path: Path) -> Path:
    """A data directory with the tiny models' folders."""
    (tmp_path / "models").mkdir()
    for name in FOLDERS:
        (tmp_path / "models" / name).symlink_to(data_dir / "models" / name)
    return tmp_path


@pytest.fixture
def add(home: Path) -> Callable[..., Catalog]:
    """Writes a folder's model as the single file `one` with the folder's configs; gives the catalogue with it."""

    def add(name: str, *, entry: str = "", **how: Any) -> Catalog:
        write_ldm(home / "models" / name, home / "models" / "one.safetensors", **how)
        text = f'[[model]]\nid = "mine"\nfile = "one.safetensors"\nconfigs = "{name}"\n{entry}\n'
        (home / "models.toml").write_text(text, "utf-8")
        return read_data_dir(home)

    return add


@pytest.fixture
def draw(cache_dir: Path) -> Iterator[Callable[..., np.ndarray]]:
    """Makes the picture of a model of a catalogue."""

    def draw(catalog: Catalog, model_id: str = "mine", **fields: Any) -> np.ndarray:
        defaults = {"model": model_id, "prompt": PROMPT, "seed": 5, "steps": 4, "guidance_scale": 4.0}
        family = load(catalog.get(model_id), mesh="dp=1", cache_dir=cache_dir, on_progress=ignore_progress)
        pixels = generate(family, resolve(read_recipe(defaults | fields), catalog)).pixels
        family.unload()
        return pixels

    yield draw


def read_files(model: Model) -> dict[str, dict[str, np.ndarray]]:
    """Reads every weight in a model's own files in fp32, component by component."""
    where = jax.sharding.SingleDeviceSharding(jax.devices()[0])
    return {
        name: {
            key: np.asarray(one)
            for key, one in load_weights(
                one.weights, dict.fromkeys(one.weights, where), dtype=np.float32, on_tensor=lambda *_: None
            ).items()
        }
        for name, one in find_files(model).items()
    }


def find_files(model: Model) -> dict[str, StoredComponent]:
    architecture: Any = find_architecture(model)
    return architecture.read_files(model)


def test_the_picture_is_the_folders_own(add: Any, draw: Any, load_family: Any, draw_recipe: Any) -> None:
    pixels = draw(add("tiny"))
    assert (pixels == generate(load_family("tiny"), draw_recipe(model="tiny")).pixels).all()
    assert pixels.std() > 1


@pytest.mark.parametrize("name", ["tiny", "middle", *KINDS])
def test_its_tensors_are_those_that_diffusers_reads(add: Any, home: Path, name: str) -> None:
    from diffusers import StableDiffusionPipeline, StableDiffusionXLPipeline

    is_xl = name not in KINDS
    model = add(name, has_open_clip=name == "sd-two").get("mine")  # as Stable Diffusion 2's text encoder is written
    own = read_files(model)
    pipeline: Any = (StableDiffusionXLPipeline if is_xl else StableDiffusionPipeline).from_single_file(
        str(model.file), config=str(home / "models" / name), local_files_only=True, dtype=torch.float32
    )
    for component, weights in own.items():
        module = getattr(pipeline, component)
        theirs = {key: value.numpy() for key, value in module.state_dict().items() if "position_ids" not in key}
        plain = {key.removeprefix("text_model."): value for key, value in weights.items()}
        theirs = {key.removeprefix("text_model."): value for key, value in theirs.items()}
        assert plain.keys() == theirs.keys(), component
        assert not [key for key in theirs if not np.array_equal(theirs[key], plain[key])], component
    assert own.keys() == {"unet", "vae", "text_encoder", *(["text_encoder_2"] if is_xl else [])}


def test_its_programs_and_plans_are_its_bases(add: Any) -> None:
    catalog = add("tiny")
    mine, base = catalog.get("mine"), catalog.get("tiny")
    assert fingerprint_programs(mine) == fingerprint_programs(base)
    assert fingerprint_plans(mine) == fingerprint_plans(base)
    assert mine.program_id == "tiny"


def test_what_a_file_lacks_is_its_bases(add: Any) -> None:
    model = add("tiny", without=("vae", "text_encoder")).get("mine")
    assert "From tiny: vae, text encoder." in model.description
    assert find_files(model).keys() == {"unet", "text_encoder_2"}


@pytest.mark.parametrize(
    "place", ["vae.safetensors", "models/tiny/vae", "models/tiny/vae/diffusion_pytorch_model.safetensors"]
)
def test_a_vae_of_ones_own_replaces_the_files(add: Any, home: Path, place: str) -> None:
    def darken(tensors: Tensors) -> Tensors:
        return {name: tensor * 0 if "first_stage" in name else tensor for name, tensor in tensors.items()}

    write_ldm(home / "models" / "tiny", home / "vae.safetensors", without=("unet", "text_encoder", "text_encoder_2"))
    right = read_files(add("tiny").get("mine"))["vae"]
    changed = read_files(add("tiny", change=darken, entry=f'vae = "{home / place}"').get("mine"))["vae"]
    assert right.keys() == changed.keys()
    assert all(np.array_equal(right[name], changed[name]) for name in right)


@pytest.mark.parametrize("by_row", [False, True], ids=["one scale", "a scale for each row"])
def test_scaled_fp8_means_its_product(add: Any, by_row: bool) -> None:  # noqa: FBT001
    stored: dict[str, Tensors] = {}

    def change(tensors: Tensors) -> Tensors:
        stored["fp8"] = scale_to_fp8(tensors, by_row=by_row)
        return stored["fp8"]

    model = add("tiny", change=change).get("mine")
    scaled = read_files(model)
    model = add("tiny", change=lambda _tensors: unscale(stored["fp8"])).get("mine")
    plain = read_files(model)
    for component in plain:
        for name, value in plain[component].items():
            np.testing.assert_array_equal(scaled[component][name], value)


def test_velocity_and_zero_terminal_snr_are_those_of_diffusers(add: Any, draw: Any, home: Path) -> None:
    from diffusers import EulerDiscreteScheduler, StableDiffusionXLPipeline

    catalog = add("tiny", change=lambda one: one | {"v_pred": torch.zeros(0), "ztsnr": torch.zeros(0)})
    model = catalog.get("mine")
    assert "It predicts velocity, as the file says. Its noise ends at zero signal." in model.description
    pipeline: Any = StableDiffusionXLPipeline.from_pretrained(home / "models" / "tiny", dtype=torch.float32)
    pipeline.set_progress_bar_config(disable=True)
    pipeline.scheduler = EulerDiscreteScheduler.from_config(
        pipeline.scheduler.config,
        prediction_type="v_prediction",
        rescale_betas_zero_snr=True,
        timestep_spacing="trailing",
    )
    pictures = pipeline(
        prompt=PROMPT,
        width=64,
        height=64,
        num_inference_steps=4,
        guidance_scale=4.0,
        generator=torch.Generator("cpu").manual_seed(5),
        output_type="np",
    ).images
    theirs = (pictures * 255).round().astype(np.uint8)
    pixels = draw(catalog)
    assert np.abs(pixels.astype(int) - theirs.astype(int)).max() <= MAX_DIFFERENCE


def test_all_of_a_file_as_a_folder_makes_its_picture(add: Any, draw: Any, home: Path) -> None:
    """The folder is as a training of all weights leaves it, here after no steps."""

    def change(tensors: Tensors) -> Tensors:
        own = {name: one * 0.9 if name.startswith("first_stage") else one for name, one in tensors.items()}
        return {name: one.bfloat16() for name, one in own.items()} | {"v_pred": torch.zeros(0)}

    catalog = add("tiny", change=change)
    before, model, folder = draw(catalog), catalog.get("mine"), home / "models" / "after"
    origin = Origin(
        model=model,
        learner=find_learner(model),
        folder=home / "models" / "tiny",
        mesh=build_mesh("dp=1"),
        on_progress=ignore_progress,
        files=find_files(model),
    )
    write_own_parts(origin, folder, ["unet"])
    weights = sum(file.stat().st_size for file in folder.rglob("*.safetensors"))
    assert 0.9 * weights < measure_own_parts(origin, ["unet"]) < weights  # with the files' headers
    write_model(
        folder,
        {name: read_tensor(one).float().numpy() for name, one in origin.files["unet"].weights.items()},
        base=origin.folder,
        component="unet",
        variant="",
        precision="bf16",
        card="",
        written={name: folder / name for name in list_own_parts(origin, ["unet"])},
    )
    after = read_data_dir(home)
    assert after.get("after").own_files == ()
    np.testing.assert_array_equal(draw(after, "after"), before)


def test_a_file_of_other_layers_than_its_configs_is_refused(add: Any, home: Path) -> None:
    add("tiny")
    write_ldm(home / "models" / "middle", home / "models" / "one.safetensors")
    assert {str(one.reason) for one in read_data_dir(home).unusable} == {
        "Its layers are those of no SDXL here: it is pruned, or distilled to fewer layers."
    }

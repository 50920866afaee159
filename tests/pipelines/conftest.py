"""What tests of real pipelines share: tiny models with random weights, in genuine diffusers layout, and eight devices.

The checkpoint is written once and loaded once for each mesh.
"""

import functools
import os
import shutil
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pipelines.runtime.devices.platform import prepare_compiler
from tests.compiling import COMPILE_FAST

# JAX and libtpu read the environment when they are imported.
assert "jax" not in sys.modules, "set the number of devices before anything imports jax"
os.environ["XLA_FLAGS"] = f"{os.environ.get('XLA_FLAGS', '')} {COMPILE_FAST}".strip()
prepare_compiler(cpu_devices=8)

import numpy as np
import pytest
from filelock import FileLock

from pipelines.models.catalog import Catalog, Model, load_catalog
from pipelines.plan.topologies import find_devices, find_topology
from pipelines.recipes.recipe import Recipe, read_recipe
from pipelines.recipes.resolving import resolve
from pipelines.stages import STAGES, OnProgress, ignore_progress
from tests.pipelines.denoising import denoise
from tests.pipelines.made_loras import Pairs, merged_by_hand
from tests.pipelines.schedulers import choose_scheduler
from tests.pipelines.short import write_short
from tests.pipelines.tiny_sd import KINDS, write_sd

PROMPT = "a red sailboat on the ocean at sunset"
SINGLE = "dp=1"
MAX_RELATIVE_ERROR = 1e-4
MAX_PIXEL_DIFFERENCE = 2  # of 255

# Two UNet levels with 2 and 4 heads, an autoencoder that shrinks 4 times: pictures of 64 x 64.
TINY = {
    "unet": {
        "sample_size": 16,
        "down_block_types": ("DownBlock2D", "CrossAttnDownBlock2D"),
        "up_block_types": ("CrossAttnUpBlock2D", "UpBlock2D"),
        "block_out_channels": (16, 32),
        "layers_per_block": 1,
        "transformer_layers_per_block": 1,
        "attention_head_dim": (2, 4),
        "norm_num_groups": 8,
    },
    "vae_channels": (8, 16, 16),
}

# Three levels, two layers a block, transformers of depth 2 and 5 (a scan), another head count at each level.
MIDDLE = {
    "unet": {
        "sample_size": 16,
        "down_block_types": ("DownBlock2D", "CrossAttnDownBlock2D", "CrossAttnDownBlock2D"),
        "up_block_types": ("CrossAttnUpBlock2D", "CrossAttnUpBlock2D", "UpBlock2D"),
        "block_out_channels": (32, 64, 96),
        "layers_per_block": 2,
        "transformer_layers_per_block": (1, 2, 5),
        "attention_head_dim": (2, 4, 6),
        "norm_num_groups": 16,
    },
    "vae_channels": (16, 16, 32),
}

SDXL_SCHEDULER = {
    "beta_start": 0.00085,
    "beta_end": 0.012,
    "beta_schedule": "scaled_linear",
    "num_train_timesteps": 1000,
    "prediction_type": "epsilon",
    "timestep_spacing": "leading",
    "steps_offset": 1,
    # The scheduler itself ignores it; SDXL's file has it for other schedulers, which diffusers makes of this config.
    "clip_sample": False,
    "set_alpha_to_one": False,
}


# What runtime/devices/platform.py silences for users (JAX narrows torch's int64 positions to int32), and what
# diffusers' schedulers say when numpy 2 reads a torch tensor.
HARMLESS_WARNINGS = (
    "ignore:Explicitly requested dtype:UserWarning",
    "ignore:__array__ implementation doesn't accept a copy:DeprecationWarning",
    "ignore:Error reading persistent compilation cache entry",  # which another test process is writing just now
)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if Path(__file__).parent in item.path.parents:
            for warning in HARMLESS_WARNINGS:
                item.add_marker(pytest.mark.filterwarnings(warning))


def write_checkpoint(folder: Path, tokenizer_folder: Path, sizes: dict[str, Any], *, seed: int) -> Path:
    """Saves an SDXL of these sizes with PyTorch's own random weights, through diffusers' save_pretrained."""
    import torch
    from diffusers import AutoencoderKL, EulerDiscreteScheduler, StableDiffusionXLPipeline, UNet2DConditionModel
    from transformers import CLIPTextConfig, CLIPTextModel, CLIPTextModelWithProjection, CLIPTokenizer

    tokenizer = CLIPTokenizer.from_pretrained(tokenizer_folder)

    def describe_text(width: int, layers: int) -> CLIPTextConfig:
        return CLIPTextConfig(
            vocab_size=len(tokenizer),
            hidden_size=width,
            intermediate_size=4 * width,
            projection_dim=width,
            num_hidden_layers=layers,
            num_attention_heads=4,
            max_position_embeddings=tokenizer.model_max_length,
            bos_token_id=tokenizer.bos_token_id,
            eos_token_id=tokenizer.eos_token_id,
            pad_token_id=tokenizer.eos_token_id,
        )

    torch.manual_seed(seed)
    unet = UNet2DConditionModel(
        **sizes["unet"],
        cross_attention_dim=32 + 48,
        addition_embed_type="text_time",
        addition_time_embed_dim=8,
        projection_class_embeddings_input_dim=48 + 6 * 8,
        use_linear_projection=True,
    )
    vae = AutoencoderKL(
        down_block_types=("DownEncoderBlock2D",) * len(sizes["vae_channels"]),
        up_block_types=("UpDecoderBlock2D",) * len(sizes["vae_channels"]),
        block_out_channels=sizes["vae_channels"],
        latent_channels=4,
        norm_num_groups=4,
        scaling_factor=0.6,
        force_upcast=True,
    )
    with torch.no_grad():
        unet.conv_out.weight *= 3  # so that prompt and guidance show in the picture
        for parameter in unet.add_embedding.parameters():
            parameter *= 3
        vae.decoder.conv_out.weight *= 2
    pipeline = StableDiffusionXLPipeline(
        vae=vae,
        text_encoder=CLIPTextModel(describe_text(32, 2)),
        text_encoder_2=CLIPTextModelWithProjection(describe_text(48, 3)),
        tokenizer=tokenizer,
        tokenizer_2=tokenizer,
        unet=unet,
        scheduler=EulerDiscreteScheduler.from_config(SDXL_SCHEDULER),
        add_watermarker=False,
    )
    pipeline.save_pretrained(folder, safe_serialization=True)
    return folder


@pytest.fixture(scope="session")
def v6e_8() -> list[Any]:
    """Eight chips to compile for; two test processes may compile at a time."""
    return list(find_devices(find_topology("v6e-8")))


@pytest.fixture(scope="session")
def data_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A data directory of this test process, with the SDXLs `tiny` and `middle`, and those of tiny_sd.py."""
    folder = tmp_path_factory.mktemp("data")
    shutil.copytree(make_once("data", write_checkpoints, tmp_path_factory), folder, dirs_exist_ok=True)
    return folder


@pytest.fixture(scope="session")
def short_dir(data_dir: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A data directory whose `tiny` has one text encoder and a UNet of one level, for tests of what surrounds it."""
    folder = tmp_path_factory.mktemp("short")
    write_short(folder / "models" / "tiny", data_dir / "models" / "sd-one")
    return folder


def write_checkpoints(folder: Path) -> None:
    from pipelines.demos.demo_sdxl.tokenizer import build_tokenizer

    build_tokenizer(folder / "tokenizer", captions=300)
    write_checkpoint(folder / "models" / "tiny", folder / "tokenizer", TINY, seed=0)
    write_checkpoint(folder / "models" / "middle", folder / "tokenizer", MIDDLE, seed=1)
    for seed, kind in enumerate(KINDS):
        write_sd(folder / "models" / kind, folder / "tokenizer", kind, seed=seed)


def make_once(name: str, make: Callable[[Path], None], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder for all test processes of a run, to be copied: the first to ask makes it, the others wait."""
    base = tmp_path_factory.getbasetemp()
    run = base.parent if "PYTEST_XDIST_WORKER" in os.environ else base
    folder = run / f"shared-{name}"
    with FileLock(run / f"{name}.lock"):
        if not folder.exists():
            half_made = run / f"half-made-{name}"
            make(half_made)
            half_made.rename(folder)
    return folder


@pytest.fixture(scope="session")
def cache_dir() -> Path:
    """The compilation cache of this run, in use."""
    from pipelines.registry import start_jax

    folder = Path(os.environ["JAX_COMPILATION_CACHE_DIR"])
    start_jax(folder)
    return folder


@pytest.fixture(scope="session")
def local_catalog(data_dir: Path) -> Catalog:
    return load_catalog(data_dir / "models", data_dir / "loras")


@pytest.fixture(scope="session")
def load_family(local_catalog: Catalog, data_dir: Path, cache_dir: Path) -> Callable[..., Any]:
    """Loads a model of the data directory on a mesh, once each, with all stages or some."""
    from pipelines.registry import load

    loaded: dict[tuple[Any, ...], Any] = {}

    def load_once(model_id: str = "tiny", mesh: str = SINGLE, stages: Sequence[str] = STAGES) -> Any:
        key = (model_id, mesh, stages)
        if key not in loaded:
            model = local_catalog.get(model_id)
            loaded[key] = load(model, mesh=mesh, cache_dir=cache_dir, on_progress=ignore_progress, stages=stages)
        return loaded[key]

    return load_once


@pytest.fixture(scope="session")
def loaded_by_commands() -> dict[str, Any]:
    """What commands have loaded in this test process."""
    return {}


@pytest.fixture
def keep_loaded(loaded_by_commands: dict[str, Any], cache_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Commands of this process load, trace and compile the same stages of a model once; it comes without LoRAs."""
    from pipelines import registry

    load = registry.load

    def load_once(model: Model, *, on_progress: OnProgress, **how: Any) -> Any:
        if any(how.get(name) for name in ("keep_layouts", "packs", "remote_encoder", "verify_weights")):
            return load(model, on_progress=on_progress, **how)  # it is about loading
        key = repr((model, how))
        if key not in loaded_by_commands:
            loaded_by_commands[key] = load(model, on_progress=on_progress, **how)
        loaded_by_commands[key].apply_loras((), on_progress=ignore_progress)
        return loaded_by_commands[key]

    monkeypatch.setattr(registry, "load", load_once)


@pytest.fixture(scope="session")
def family(load_family: Callable[..., Any]) -> Any:
    """The tiny SDXL on one device."""
    return load_family()


@pytest.fixture(scope="session")
def draw_recipe(local_catalog: Catalog) -> Callable[..., Recipe]:
    """A resolved recipe of the tiny SDXL, four steps short."""

    def draw(**fields: Any) -> Recipe:
        defaults = {"model": "tiny", "prompt": PROMPT, "seed": 5, "steps": 4, "guidance_scale": 4.0}
        return resolve(read_recipe(defaults | fields), local_catalog)

    return draw


@pytest.fixture(scope="session")
def ask_diffusers() -> Callable[[Path, Recipe], np.ndarray]:
    """The pictures diffusers' own pipeline makes of a recipe in fp32, as uint8 (B, height, width, 3).

    `pairs` of a LoRA are merged into its weights for the time.
    """
    import torch
    from diffusers import DiffusionPipeline

    torch.set_num_threads(1)  # these tensors are too small to share, and threads wait for each other on a busy machine
    loaded: dict[Path, tuple[Any, dict[str, Any]]] = {}

    def ask(folder: Path, recipe: Recipe, *, pairs: Pairs | None = None, scale: float = 1.0) -> np.ndarray:
        if folder not in loaded:
            pipeline = DiffusionPipeline.from_pretrained(folder, dtype=torch.float32)
            pipeline.set_progress_bar_config(disable=True)
            loaded[folder] = (pipeline, dict(pipeline.scheduler.config))
        pipeline, scheduler_config = loaded[folder]
        pipeline.scheduler = choose_scheduler(scheduler_config, recipe.scheduler)
        shape = recipe.parsed_shape
        with merged_by_hand(pipeline, pairs or {}, scale):
            pictures = pipeline(
                prompt=recipe.prompt,
                negative_prompt=recipe.negative_prompt or None,
                width=shape.width,
                height=shape.height,
                num_inference_steps=recipe.steps,
                guidance_scale=recipe.guidance_scale,
                num_images_per_prompt=recipe.batch_size,
                generator=[torch.Generator("cpu").manual_seed(recipe.seed + one) for one in range(recipe.batch_size)],
                output_type="np",
            ).images
        return (pictures * 255).round().astype(np.uint8)

    return ask


def note_kernels(patch: pytest.MonkeyPatch) -> set[str]:
    """The names of the kernels that come to be used from now on."""
    from jax.experimental import pallas

    kernels: set[str] = set()
    call = pallas.pallas_call

    def note(*arguments: Any, **options: Any) -> Any:
        kernels.add(options["name"])
        return call(*arguments, **options)

    patch.setattr(pallas, "pallas_call", note)
    return kernels


@pytest.fixture
def interpret_attention() -> Callable[[Any], AbstractContextManager[set[str]]]:
    """`with interpret_attention(module) as kernels`: attention of `module`'s axes goes through the kernels.

    What is compiled within keeps it, so a family that other tests share must not be. `kernels` are those it used.
    """
    from pipelines.runtime.kernels import attention

    @contextmanager
    def interpret(module: Any) -> Iterator[set[str]]:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(attention, "LONG", 8)
            patch.setattr(module, "AttentionAxes", functools.partial(attention.AttentionAxes, interprets=True))
            yield note_kernels(patch)

    return interpret


@pytest.fixture
def interpret_pictures() -> Callable[[Any], AbstractContextManager[set[str]]]:
    """The same for what `module` does to pictures: `with interpret_pictures(module) as kernels`."""
    from pipelines.runtime.kernels.convolution import PictureAxes

    @dataclass(frozen=True, kw_only=True)
    class Interpreted(PictureAxes):
        interprets: bool = True

    @contextmanager
    def interpret(module: Any) -> Iterator[set[str]]:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(module, "PictureAxes", Interpreted)
            yield note_kernels(patch)

    return interpret


@pytest.fixture
def borrow() -> Iterator[Callable[[Any], Any]]:
    """`borrow(family)` is the family; after the test it has no LoRAs."""
    borrowed = []

    def borrow(family: Any) -> Any:
        borrowed.append(family)
        return family

    yield borrow
    for family in borrowed:
        family.apply_loras((), on_progress=ignore_progress)


@pytest.fixture(scope="session")
def find_difference() -> Callable[[np.ndarray, np.ndarray], int]:
    """The largest difference of two uint8 pictures."""

    def find(one: np.ndarray, other: np.ndarray) -> int:
        assert one.shape == other.shape
        return int(np.abs(one.astype(int) - other.astype(int)).max())

    return find


@pytest.fixture(scope="session")
def assert_same_output(find_difference: Callable[..., int]) -> Callable[[Any, Any, Recipe], None]:
    """Two loaded families make the same of a recipe: latents within 1e-4 in fp32, pixels within 2 of 255.

    A family without a decoder is compared by its latents alone.
    """

    def compare(family: Any, expected_family: Any, recipe: Recipe) -> None:
        latents, expected_latents = (denoise(one, recipe) for one in (family, expected_family))
        assert (latents.dtype, latents.shape) == (np.float32, expected_latents.shape)
        error = np.linalg.norm(latents - expected_latents) / np.linalg.norm(expected_latents)
        assert error < MAX_RELATIVE_ERROR
        if "decode" in family.parts.stages:
            pixels, expected_pixels = family.decode(recipe, latents), expected_family.decode(recipe, expected_latents)
            assert find_difference(pixels, expected_pixels) <= MAX_PIXEL_DIFFERENCE

    return compare

"""Tiny Wans of every kind with random weights, in genuine diffusers layout, and what diffusers itself makes of them."""

import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pipelines.models.catalog import Catalog, Model, Shape, load_catalog
from pipelines.recipes.recipe import Recipe, read_recipe
from pipelines.recipes.resolving import resolve
from pipelines.stages import STAGES, ignore_progress
from tests.pipelines.made_loras import Pairs, merged_by_hand
from tests.pipelines.schedulers import choose_scheduler

PROMPT = "a red sailboat on the ocean"
WORDS = ("a", "red", "blue", "sailboat", "house", "on", "the", "ocean", "at", "sunset", "night", "balloon")
MEAN = (0.1, -0.2, 0.3, 0.0, -0.1, 0.2)
DEVIATION = (1.0, 1.5, 0.8, 1.2, 0.9, 1.1)

TRANSFORMER = {
    "num_attention_heads": 4,
    "attention_head_dim": 12,
    "text_dim": 32,
    "freq_dim": 32,
    "ffn_dim": 96,
    "num_layers": 1,
}
VAE = {  # as few blocks as there can be; test_causal.py has more of each kind
    "base_dim": 8,
    "dim_mult": [1, 1, 1],
    "num_res_blocks": 0,
    "temperal_downsample": [True, True],
    "scale_factor_spatial": 4,
}
VAE_2_2 = VAE | {
    "decoder_base_dim": 12,
    "is_residual": True,
    "in_channels": 12,
    "out_channels": 12,
    "patch_size": 2,
    "scale_factor_spatial": 8,
}


@dataclass(frozen=True, kw_only=True)
class Kind:
    """One kind of Wan: what its modules and its pipeline are made of."""

    channels: int
    text_layers: int = 1
    tokenizer_limit: int = 16  # which neither diffusers nor Lumesh keeps to
    shapes: tuple[str, ...] = ("32x32x9",)
    vae: dict[str, Any] | None = None
    transformer: dict[str, Any] | None = None
    pipeline: dict[str, Any] | None = None
    experts: int = 1
    has_image_encoder: bool = False
    pipeline_class: str = "WanPipeline"


KINDS = {
    "t2v": Kind(  # layers enough for scans
        channels=4, text_layers=5, shapes=("32x32x9", "64x32x17", "32x32"), transformer={"num_layers": 5}
    ),
    "wide": Kind(  # heads of the size that real ones have, one for each of four devices
        channels=4,
        transformer={"num_attention_heads": 4, "attention_head_dim": 128, "num_layers": 5},
    ),
    "experts": Kind(channels=4, experts=2, pipeline={"boundary_ratio": 0.8}),
    "i2v-experts": Kind(
        channels=4,
        shapes=("32x32x5",),
        experts=2,
        transformer={"in_channels": 12},
        pipeline={"boundary_ratio": 0.9},
        pipeline_class="WanImageToVideoPipeline",
    ),
    "ti2v": Kind(channels=6, vae=VAE_2_2, pipeline={"expand_timesteps": True}),
    "i2v": Kind(
        channels=4,
        tokenizer_limit=512,
        shapes=("32x32x5",),
        transformer={"in_channels": 12, "image_dim": 24, "added_kv_proj_dim": 48},
        has_image_encoder=True,
        pipeline_class="WanImageToVideoPipeline",
    ),
    "flf2v": Kind(
        channels=4,
        shapes=("32x32x9",),
        transformer={"in_channels": 12, "image_dim": 24, "added_kv_proj_dim": 48, "pos_embed_seq_len": 10},
        has_image_encoder=True,
        pipeline_class="WanImageToVideoPipeline",
    ),
}


def write_checkpoint(folder: Path, kind: Kind, *, seed: int) -> None:
    """Saves a Wan of this kind with PyTorch's own random weights, through diffusers' save_pretrained."""
    import diffusers
    import torch
    from transformers import CLIPImageProcessor, CLIPVisionConfig, CLIPVisionModel, UMT5Config, UMT5EncoderModel

    torch.manual_seed(seed)
    tokenizer = make_tokenizer(kind.tokenizer_limit)
    sizes = TRANSFORMER | {"in_channels": kind.channels, "out_channels": kind.channels} | (kind.transformer or {})
    vae = diffusers.AutoencoderKLWan(
        **(kind.vae or VAE),
        z_dim=kind.channels,
        latents_mean=MEAN[: kind.channels],
        latents_std=DEVIATION[: kind.channels],
    )
    experts = [diffusers.WanTransformer3DModel(**sizes) for _ in range(kind.experts)]
    with torch.no_grad():
        for expert in experts:
            # So that prompt and guidance show in the video: a few words are among 512 tokens.
            expert.proj_out.weight *= 3
            for block in expert.blocks:
                block.attn2.norm_k.weight *= 5
            if "pos_embed_seq_len" in sizes:
                torch.nn.init.normal_(expert.condition_embedder.image_embedder.pos_embed)
        vae.decoder.conv_out.weight *= 2
    components: dict[str, Any] = {
        "tokenizer": tokenizer,
        "text_encoder": UMT5EncoderModel(
            UMT5Config(vocab_size=len(tokenizer), d_model=32, d_kv=8, d_ff=64, num_layers=kind.text_layers, num_heads=4)
        ),
        "vae": vae,
        "scheduler": diffusers.UniPCMultistepScheduler(
            prediction_type="flow_prediction", use_flow_sigmas=True, flow_shift=3.0
        ),
        **dict(zip(("transformer", "transformer_2"), experts, strict=False)),
    }
    if kind.has_image_encoder:
        vision = CLIPVisionConfig(
            hidden_size=24,
            intermediate_size=48,
            num_hidden_layers=6,  # a scan of five, and the one that nobody needs
            num_attention_heads=2,
            image_size=32,
            patch_size=16,
        )
        components["image_encoder"] = CLIPVisionModel(vision)
        components["image_processor"] = CLIPImageProcessor(
            size={"shortest_edge": 32}, crop_size={"height": 32, "width": 32}
        )
    pipeline = getattr(diffusers, kind.pipeline_class)(**components, **(kind.pipeline or {}))
    pipeline.save_pretrained(folder, safe_serialization=True)


def make_tokenizer(length: int) -> Any:
    """A UMT5 tokenizer of a few words and letters."""
    from transformers import T5Tokenizer

    special = [("<pad>", 0.0), ("</s>", 0.0), ("<unk>", 0.0), ("▁", -2.0)]
    words = [(f"▁{word}", -1.0) for word in WORDS]
    letters = [(letter, -5.0) for letter in "abcdefghijklmnopqrstuvwxyz"]
    return T5Tokenizer(vocab=special + words + letters, extra_ids=0, model_max_length=length)


@pytest.fixture(scope="session")
def wan_catalog(tmp_path_factory: pytest.TempPathFactory) -> Catalog:
    """The tiny Wans as a user's own checkpoints, each with small shapes."""
    folder = tmp_path_factory.mktemp("wan")
    for seed, (name, kind) in enumerate(KINDS.items()):
        write_checkpoint(folder / name, kind, seed=seed)
    local = load_catalog(folder, folder / "loras")
    return Catalog(tuple(make_small(local.get(name), kind) for name, kind in KINDS.items()), local.loras_dir)


def make_small(model: Model, kind: Kind) -> Model:
    shapes = tuple(Shape.parse(text) for text in kind.shapes)
    return replace(model, shapes=shapes, default_shape=shapes[0], flow_shifts={}, max_batch_size=4)


@pytest.fixture(scope="session")
def load_wan(wan_catalog: Catalog, cache_dir: Path) -> Callable[..., Any]:
    """Loads one of the tiny Wans on a mesh, once each, with all stages or some."""
    from pipelines.registry import load

    loaded: dict[tuple[Any, ...], Any] = {}

    def load_once(model_id: str = "t2v", mesh: str = "dp=1", stages: Sequence[str] = STAGES) -> Any:
        key = (model_id, mesh, stages)
        if key not in loaded:
            model = wan_catalog.get(model_id)
            loaded[key] = load(model, mesh=mesh, cache_dir=cache_dir, on_progress=ignore_progress, stages=stages)
        return loaded[key]

    return load_once


@pytest.fixture(scope="session")
def draw_wan(wan_catalog: Catalog, photo: Path) -> Callable[..., Recipe]:
    """A resolved recipe of a tiny Wan, four steps short; its images "photo" and "turned" are the photo's."""

    def draw(model: str = "t2v", **fields: Any) -> Recipe:
        defaults = {"model": model, "prompt": PROMPT, "seed": 5, "steps": 4, "guidance_scale": 4.0}
        named = {"photo": photo, "turned": photo.with_name("turned.png")}
        fields |= {"images": [str(named.get(name, name)) for name in fields["images"]]} if fields.get("images") else {}
        return resolve(read_recipe(defaults | {"negative_prompt": ""} | fields), wan_catalog)

    return draw


@pytest.fixture(scope="session")
def photo(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A photo of colours, in the proportions of the tiny shapes."""
    from PIL import Image

    file = tmp_path_factory.mktemp("pictures") / "photo.png"
    small = np.random.default_rng(0).integers(0, 256, (6, 6, 3), np.uint8)
    picture = Image.fromarray(small).resize((96, 96), Image.Resampling.BICUBIC)
    picture.save(file)
    picture.rotate(90).save(file.with_name("turned.png"))
    return file


@pytest.fixture(scope="session")
def ask_wan(wan_catalog: Catalog) -> Callable[[Recipe], np.ndarray]:
    """The videos diffusers' own pipelines make of a recipe in fp32, as uint8 (B, F, height, width, 3).

    They are told what the recipe says beside its model's defaults, and nothing else: length of the text, scheduler and
    shift are those that people get who call them so. `pairs` of a LoRA are merged into its weights for the time.
    """
    import diffusers
    import torch

    torch.set_num_threads(1)  # these tensors are too small to share
    loaded: dict[tuple[str, str], tuple[Any, Any]] = {}

    def ask(recipe: Recipe, *, pairs: Pairs | None = None, scale: float = 1.0, **options: Any) -> np.ndarray:
        model = wan_catalog.get(recipe.model)
        key = (model.id, "WanImageToVideoPipeline" if recipe.images else "WanPipeline")
        if key not in loaded:
            pipeline = getattr(diffusers, key[1]).from_pretrained(model.path, dtype=torch.float32)
            pipeline.set_progress_bar_config(disable=True)
            loaded[key] = (pipeline, pipeline.scheduler)
        pipeline, own = loaded[key]
        asked = (recipe.scheduler, recipe.flow_shift)
        if asked == (model.scheduler, model.flow_shift):
            pipeline.scheduler = type(own).from_config(own.config)
        else:
            pipeline.scheduler = choose_scheduler(own.config, recipe.scheduler, flow_shift=recipe.flow_shift)
        shape = recipe.parsed_shape
        with merged_by_hand(pipeline, pairs or {}, scale):
            videos = pipeline(
                **(encode_in_diffusers(pipeline, recipe) if recipe.images else name_prompts(recipe)),
                **dict(zip(("image", "last_image"), map(open_rgb, recipe.images), strict=False)),
                width=shape.width,
                height=shape.height,
                num_frames=shape.frames,
                num_inference_steps=recipe.steps,
                guidance_scale=recipe.guidance_scale,
                **(
                    {"guidance_scale_2": second} if (second := recipe.guidance_scale_2) != recipe.guidance_scale else {}
                ),
                generator=[torch.Generator("cpu").manual_seed(recipe.seed + one) for one in range(recipe.batch_size)],
                **options,
            ).frames
        return (videos * 255).round().astype(np.uint8)

    return ask


def open_rgb(file: str) -> Any:
    from PIL import Image

    return Image.open(file).convert("RGB")


def name_prompts(recipe: Recipe) -> dict[str, Any]:
    return {
        "prompt": recipe.prompt,
        "negative_prompt": recipe.negative_prompt,
        "num_videos_per_prompt": recipe.batch_size,
    }


def encode_in_diffusers(pipeline: Any, recipe: Recipe) -> dict[str, Any]:
    """Both prompts' embeddings, by WanPipeline: WanImageToVideoPipeline 0.42 cannot clean a prompt without ftfy.

    As long as WanImageToVideoPipeline makes them by default.
    """
    from diffusers import WanPipeline

    length = inspect.signature(type(pipeline).__call__).parameters["max_sequence_length"].default

    names = ("tokenizer", "text_encoder", "vae", "scheduler")
    encoder = WanPipeline(**{name: pipeline.components[name] for name in names})
    embeds = encoder.encode_prompt(
        recipe.prompt,
        recipe.negative_prompt,
        num_videos_per_prompt=recipe.batch_size,
        max_sequence_length=length,
    )
    return dict(zip(("prompt_embeds", "negative_prompt_embeds"), embeds, strict=True))

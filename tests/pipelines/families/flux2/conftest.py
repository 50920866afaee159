"""Tiny FLUX.2 checkpoints with random weights, in genuine diffusers layout, and diffusers' own pictures of them.

`klein` has classic guidance (as the base models), `distilled` is the same without, `dev` has a Mistral 3 text encoder,
embedded guidance, and layers enough to run as scans. Eight heads, so that each of eight devices has something to hold.
"""

import json
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pipelines.models.catalog import Catalog, load_catalog
from pipelines.recipes.recipe import Recipe, read_recipe
from pipelines.recipes.resolving import resolve
from pipelines.stages import STAGES, ignore_progress
from tests.pipelines.made_loras import Pairs, merged_by_hand

PROMPT = "a red boat"
SINGLE = "dp=1"
TOKENIZER_LIMIT = {"klein": 64, "dev": 240}  # which neither diffusers nor Lumesh keeps to
SIDE = 64  # pixels
OUT_LAYERS = (1, 2, 3)

TEXT_SIZES = {
    "vocab_size": 256 + 7,
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 8,
    "initializer_range": 0.3,
    "text_encoder_out_layers": list(OUT_LAYERS),
}

SYMBOLS = ("<|endoftext|>", "<|im_start|>", "<|im_end|>", "[INST]", "[/INST]", "[SYSTEM_PROMPT]", "[/SYSTEM_PROMPT]")
KLEIN_CHAT = """{% for message in messages %}<|im_start|>{{ message.role }}
{{ message.content }}<|im_end|>
{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant
{% if enable_thinking is defined and enable_thinking is false %}<think>

</think>

{% endif %}{% endif %}"""

DEV_CHAT = (
    "{% for message in messages %}{% if message.role == 'system' %}[SYSTEM_PROMPT]{{ message.content[0].text }}"
    "[/SYSTEM_PROMPT]{% else %}[INST]{{ message.content[0].text }}[/INST]{% endif %}{% endfor %}"
)


def make_tokenizer(chat_template: str, *, length: int, padding_side: str) -> Any:
    """Bytes as tokens: no vocabulary to learn, and every prompt has its own ids."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers
    from transformers import Qwen2TokenizerFast

    symbols = (*sorted(pre_tokenizers.ByteLevel.alphabet()), *SYMBOLS)
    vocabulary = {symbol: index for index, symbol in enumerate(symbols)}
    core = Tokenizer(models.BPE(vocab=vocabulary, merges=[]))
    core.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    core.decoder = decoders.ByteLevel()
    tokenizer = Qwen2TokenizerFast(
        tokenizer_object=core,
        vocab=vocabulary,
        merges=[],
        model_max_length=length,
        padding_side=padding_side,
        additional_special_tokens=list(SYMBOLS),
    )
    tokenizer.chat_template = chat_template
    return tokenizer


def make_transformer(*, guidance_embeds: bool, layers: int) -> Any:
    import torch
    from diffusers import Flux2Transformer2DModel

    transformer = Flux2Transformer2DModel(
        in_channels=16,
        num_layers=layers,
        num_single_layers=layers,
        attention_head_dim=16,
        num_attention_heads=8,
        joint_attention_dim=len(OUT_LAYERS) * 32,
        timestep_guidance_channels=32,
        axes_dims_rope=(4, 4, 4, 4),
        guidance_embeds=guidance_embeds,
    )
    with torch.no_grad():  # so that prompt and guidance show in the picture
        for name, parameter in transformer.named_parameters():
            if "embedder" in name or "modulation" in name:
                parameter *= 3
            if "norm_" in name and "out" not in name:  # of queries and keys: sharper attention
                parameter *= 2
    return transformer


def make_vae() -> Any:
    import torch
    from diffusers import AutoencoderKLFlux2

    channels = (8, 16, 16)
    vae = AutoencoderKLFlux2(
        down_block_types=("DownEncoderBlock2D",) * len(channels),
        up_block_types=("UpDecoderBlock2D",) * len(channels),
        block_out_channels=channels,
        layers_per_block=1,
        latent_channels=4,
        norm_num_groups=4,
        sample_size=SIDE,
    )
    with torch.no_grad():
        vae.encoder.conv_out.weight *= 20
        vae.decoder.conv_out.weight *= 2
        vae.bn.running_mean.normal_()
        vae.bn.running_var.uniform_(0.5, 2)
    return vae


def make_scheduler() -> Any:
    from diffusers import FlowMatchEulerDiscreteScheduler

    return FlowMatchEulerDiscreteScheduler(shift=3.0, use_dynamic_shifting=True)


def write_klein(folder: Path) -> None:
    import torch
    from diffusers import Flux2KleinPipeline
    from transformers import Qwen3Config, Qwen3ForCausalLM

    torch.manual_seed(0)
    Flux2KleinPipeline(
        scheduler=make_scheduler(),
        vae=make_vae(),
        text_encoder=Qwen3ForCausalLM(Qwen3Config(**TEXT_SIZES, max_position_embeddings=TOKENIZER_LIMIT["klein"])),
        tokenizer=make_tokenizer(KLEIN_CHAT, length=TOKENIZER_LIMIT["klein"], padding_side="right"),
        transformer=make_transformer(guidance_embeds=False, layers=2),
    ).save_pretrained(folder)


def write_dev(folder: Path) -> None:
    import torch
    from diffusers import Flux2Pipeline
    from transformers import Mistral3Config, Mistral3ForConditionalGeneration

    torch.manual_seed(1)
    config = Mistral3Config(
        text_config={"model_type": "mistral", "max_position_embeddings": TOKENIZER_LIMIT["dev"], **TEXT_SIZES},
        vision_config={
            "model_type": "pixtral",
            "hidden_size": 16,
            "intermediate_size": 16,
            "num_hidden_layers": 1,
            "num_attention_heads": 2,
            "head_dim": 8,
        },
    )
    Flux2Pipeline(
        scheduler=make_scheduler(),
        vae=make_vae(),
        text_encoder=Mistral3ForConditionalGeneration(config),
        tokenizer=make_tokenizer(DEV_CHAT, length=TOKENIZER_LIMIT["dev"], padding_side="left"),
        transformer=make_transformer(guidance_embeds=True, layers=5),
    ).save_pretrained(folder)


def change_json(file: Path, **changes: Any) -> None:
    file.write_text(json.dumps(json.loads(file.read_text()) | changes))


@pytest.fixture(scope="session")
def models_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("flux2") / "models"
    write_klein(folder / "klein")
    write_dev(folder / "dev")
    shutil.copytree(folder / "klein", folder / "distilled")
    change_json(folder / "distilled" / "model_index.json", is_distilled=True)
    return folder


@pytest.fixture(scope="session")
def flux2_catalog(models_dir: Path) -> Catalog:
    return load_catalog(models_dir, models_dir.parent / "loras")


@pytest.fixture(scope="session")
def load_flux2(flux2_catalog: Catalog, cache_dir: Path) -> Callable[..., Any]:
    """Loads a checkpoint on a mesh, once each, with all stages or some."""
    from pipelines.registry import load

    loaded: dict[tuple[Any, ...], Any] = {}

    def load_once(model_id: str = "klein", mesh: str = SINGLE, stages: Sequence[str] = STAGES) -> Any:
        key = (model_id, mesh, stages)
        if key not in loaded:
            model = flux2_catalog.get(model_id)
            loaded[key] = load(model, mesh=mesh, cache_dir=cache_dir, on_progress=ignore_progress, stages=stages)
        return loaded[key]

    return load_once


@pytest.fixture(scope="session")
def draw_recipe(flux2_catalog: Catalog) -> Callable[..., Recipe]:
    """A resolved recipe of the tiny klein, three steps short."""

    def draw(**fields: Any) -> Recipe:
        defaults = {"model": "klein", "prompt": PROMPT, "seed": 5, "steps": 3, "guidance_scale": 3.0}
        return resolve(read_recipe(defaults | fields), flux2_catalog)

    return draw


@pytest.fixture(scope="session")
def ask_diffusers(flux2_catalog: Catalog) -> Callable[[Recipe], np.ndarray]:
    """The pictures diffusers' own pipeline makes of a recipe in fp32, as uint8 (B, height, width, 3).

    `pairs` of a LoRA are merged into its weights for the time.
    """
    import torch
    from diffusers import DiffusionPipeline

    pipelines: dict[str, Any] = {}

    def ask(recipe: Recipe, *, pairs: Pairs | None = None, scale: float = 1.0, **options: Any) -> np.ndarray:
        if recipe.model not in pipelines:
            pipelines[recipe.model] = DiffusionPipeline.from_pretrained(flux2_catalog.get(recipe.model).path)
            pipelines[recipe.model].set_progress_bar_config(disable=True)
        shape = recipe.parsed_shape
        with merged_by_hand(pipelines[recipe.model], pairs or {}, scale):
            pictures = pipelines[recipe.model](
                prompt=recipe.prompt,
                width=shape.width,
                height=shape.height,
                num_inference_steps=recipe.steps,
                guidance_scale=recipe.guidance_scale,
                num_images_per_prompt=recipe.batch_size,
                generator=[torch.Generator("cpu").manual_seed(recipe.seed + one) for one in range(recipe.batch_size)],
                text_encoder_out_layers=OUT_LAYERS,
                output_type="np",
                **options,
            ).images
        return (pictures * 255).round().astype(np.uint8)

    return ask

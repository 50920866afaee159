"""A tiny Z-Image checkpoint with random weights, in genuine diffusers layout, and diffusers' own pictures of it.

`base` has the base model's shift, `turbo` is the same with Turbo's. Six heads, which four devices do not divide.
"""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pipelines.models.catalog import Catalog, read_data_dir
from pipelines.recipes.recipe import Recipe, read_recipe
from pipelines.recipes.resolving import resolve
from pipelines.stages import ignore_progress
from tests.pipelines.made_loras import Pairs, merged_by_hand

PROMPT = "a red boat"
SINGLE = "dp=1"
SIDE = 64  # pixels; a token covers 8 x 8
TEXT = 150  # tokens, which are filled up to 160
NARROW = "96x32"  # 12 x 4 tokens, which are filled up to 64

SYMBOLS = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
CHAT = """{% for message in messages %}<|im_start|>{{ message.role }}
{{ message.content }}<|im_end|>
{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant
{% if enable_thinking is defined and enable_thinking is false %}<think>

</think>

{% endif %}{% endif %}"""


def make_tokenizer() -> Any:
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
        model_max_length=131072,
        additional_special_tokens=list(SYMBOLS),
    )
    tokenizer.chat_template = CHAT
    return tokenizer


def make_transformer() -> Any:
    import torch
    from diffusers import ZImageTransformer2DModel

    transformer = ZImageTransformer2DModel(
        in_channels=16,
        dim=96,
        n_layers=5,
        n_refiner_layers=2,
        n_heads=6,
        n_kv_heads=6,
        cap_feat_dim=32,
        axes_dims=[4, 6, 6],
        axes_lens=[192, 32, 32],
    )
    with torch.no_grad():
        transformer.x_pad_token.normal_()
        transformer.cap_pad_token.normal_()
        for name, parameter in transformer.named_parameters():  # so that prompt and time show in the picture
            if "embedder" in name or "adaLN" in name:
                parameter *= 3
            if "norm_q" in name or "norm_k" in name:  # sharper attention
                parameter *= 2
    return transformer


def make_vae() -> Any:
    import torch
    from diffusers import AutoencoderKL

    channels = (8, 8, 8)
    vae = AutoencoderKL(
        down_block_types=("DownEncoderBlock2D",) * len(channels),
        up_block_types=("UpDecoderBlock2D",) * len(channels),
        block_out_channels=channels,
        layers_per_block=0,
        latent_channels=16,
        norm_num_groups=4,
        sample_size=SIDE,
        scaling_factor=0.3611,
        shift_factor=0.1159,
        use_quant_conv=False,
        use_post_quant_conv=False,
        force_upcast=True,
    )
    with torch.no_grad():
        vae.encoder.conv_out.weight *= 20
        vae.decoder.conv_out.weight *= 2
    return vae


def write_base(folder: Path) -> None:
    import torch
    from diffusers import FlowMatchEulerDiscreteScheduler, ZImagePipeline
    from transformers import Qwen3Config, Qwen3Model

    torch.manual_seed(0)
    text = Qwen3Config(
        vocab_size=256 + len(SYMBOLS),
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=4,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=8,
        initializer_range=0.3,
    )
    ZImagePipeline(
        scheduler=FlowMatchEulerDiscreteScheduler(shift=6.0),
        vae=make_vae(),
        text_encoder=Qwen3Model(text),
        tokenizer=make_tokenizer(),
        transformer=make_transformer(),
    ).save_pretrained(folder)


def change_json(file: Path, **changes: Any) -> None:
    file.write_text(json.dumps(json.loads(file.read_text()) | changes))


@pytest.fixture(scope="session")
def models_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    data = tmp_path_factory.mktemp("z_image")
    write_base(data / "models" / "base")
    shutil.copytree(data / "models" / "base", data / "models" / "turbo")
    change_json(data / "models" / "turbo" / "scheduler" / "scheduler_config.json", shift=3.0)
    entries = [f'[[model]]\nid = "{name}"\ntext_length = {TEXT}\nshapes = ["{NARROW}"]\n' for name in ("base", "turbo")]
    (data / "models.toml").write_text("\n".join(entries), "utf-8")
    return data / "models"


@pytest.fixture(scope="session")
def z_image_catalog(models_dir: Path) -> Catalog:
    return read_data_dir(models_dir.parent)


@pytest.fixture(scope="session")
def load_z_image(z_image_catalog: Catalog, cache_dir: Path) -> Callable[..., Any]:
    """Loads a checkpoint on a mesh, once each."""
    from pipelines.registry import load

    loaded: dict[tuple[str, str], Any] = {}

    def load_once(model_id: str = "base", mesh: str = SINGLE) -> Any:
        key = (model_id, mesh)
        if key not in loaded:
            model = z_image_catalog.get(model_id)
            loaded[key] = load(model, mesh=mesh, cache_dir=cache_dir, on_progress=ignore_progress)
        return loaded[key]

    return load_once


@pytest.fixture(scope="session")
def draw_recipe(z_image_catalog: Catalog) -> Callable[..., Recipe]:
    """A resolved recipe of the tiny base model, three steps short."""

    def draw(**fields: Any) -> Recipe:
        defaults = {"model": "base", "prompt": PROMPT, "seed": 5, "steps": 3, "guidance_scale": 4.0}
        return resolve(read_recipe(defaults | fields), z_image_catalog)

    return draw


@pytest.fixture(scope="session")
def ask_diffusers(z_image_catalog: Catalog) -> Callable[..., np.ndarray]:
    """The pictures diffusers' own pipeline makes of a recipe in fp32, as uint8 (B, height, width, 3).

    Its guidance scale counts from 0, ours from 1. With an `image` it is image to image. `pairs` of a LoRA are merged
    into its weights for the time.
    """
    import torch
    from diffusers import ZImageImg2ImgPipeline, ZImagePipeline

    pipelines: dict[tuple[str, bool], Any] = {}

    def ask(recipe: Recipe, *, image: Any = None, pairs: Pairs | None = None, scale: float = 1.0) -> np.ndarray:
        key = recipe.model, image is not None
        if key not in pipelines:
            kind = ZImagePipeline if image is None else ZImageImg2ImgPipeline
            pipelines[key] = kind.from_pretrained(z_image_catalog.get(recipe.model).path)
            pipelines[key].set_progress_bar_config(disable=True)
        shape = recipe.parsed_shape
        given = {} if image is None else {"image": image, "strength": recipe.strength}
        with merged_by_hand(pipelines[key], pairs or {}, scale):
            pictures = pipelines[key](
                prompt=recipe.prompt,
                negative_prompt=recipe.negative_prompt,
                width=shape.width,
                height=shape.height,
                num_inference_steps=recipe.steps,
                guidance_scale=recipe.guidance_scale - 1,
                num_images_per_prompt=recipe.batch_size,
                generator=[torch.Generator("cpu").manual_seed(recipe.seed + one) for one in range(recipe.batch_size)],
                max_sequence_length=TEXT,
                output_type="np",
                **given,
            ).images
        return (pictures * 255).round().astype(np.uint8)

    return ask

"""Stages 2 and 3: both text encoders and the UNet, jointly and from scratch; 128 px first, then every shape.

v-prediction (Salimans and Ho 2022) on a linear schedule whose last step is nearly pure noise, so that sampling may
start from noise with trailing timesteps. Captions are drawn anew each step; some are dropped to train classifier-free
guidance, and some are words the model does not know, paired with an empty landscape: what it cannot draw becomes a calm
view, never noise.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from diffusers import DDPMScheduler
from jax.sharding import Mesh
from transformers import CLIPTokenizer

from pipelines.runtime.torch_bridge import TracedModule
from pipelines.training.demo_sdxl import architecture
from pipelines.training.demo_sdxl.autoencoder import encode_mean, to_pixels
from pipelines.training.optimizer import Course
from pipelines.training.postcards import Scene, describe, draw_scene, render
from pipelines.training.trainer import Batch, Parameters, Task, train

UNKNOWN_SHARE = 0.04  # captions of unknown words
EMPTY_SHARE = 0.02  # captions of no words
DROPPED_SHARE = 0.08  # embeddings set to zero, as SDXL does for an empty negative prompt

COMMON_WORDS = (  # noqa: SIM905 - a list of a hundred quoted words reads worse
    "a the of in on with and over under by near at from for "
    "to an some my your very old new big small tiny happy sad fast "
    "slow man woman child dog cat horse dragon robot astronaut portrait photo car train "
    "city-hall castle bridge forest river street table chair food pizza coffee flower garden music "
    "dance king queen knight space planet moonbase ship plane bicycle book computer phone market "
    "kitchen window door face hand eye smile anime style cinematic detailed 4k film oil "
    "watercolor sketch minimal abstract neon steampunk futuristic ancient"
).split()


@dataclass(frozen=True, kw_only=True)
class Album:
    """Pictures as latents, with the scenes they show; latents fp16 (N, 4, height / 8, width / 8)."""

    width: int
    height: int
    latents: np.ndarray
    scenes: tuple[Scene, ...]
    empty_scenes: np.ndarray


@dataclass(frozen=True, kw_only=True)
class AlbumSize:
    """How many pictures of which size, and how many of them a step learns from."""

    width: int
    height: int
    pictures: int
    batch_size: int
    turns: int = 1  # steps in a row of each round


@dataclass(frozen=True, kw_only=True)
class Stage:
    name: str
    sizes: tuple[AlbumSize, ...]
    course: Course


STAGES = (
    Stage(
        name="denoiser-128",
        sizes=(AlbumSize(width=128, height=128, pictures=16_384, batch_size=32),),
        course=Course(steps=3000, muon_learning_rate=0.015, adam_learning_rate=1e-3),
    ),
    Stage(
        name="denoiser-256",
        sizes=(
            AlbumSize(width=256, height=256, pictures=6144, batch_size=12, turns=5),
            AlbumSize(width=320, height=192, pictures=2048, batch_size=12, turns=2),
            AlbumSize(width=192, height=320, pictures=2048, batch_size=12, turns=2),
            AlbumSize(width=128, height=128, pictures=16_384, batch_size=32, turns=1),
        ),
        course=Course(steps=1250, muon_learning_rate=0.008, adam_learning_rate=6e-4),
    ),
)


@dataclass(frozen=True, kw_only=True)
class Network:
    """The three modules trained together; parameters carry the diffusers folder as prefix (`unet.conv_in.weight`)."""

    modules: dict[str, TracedModule]
    initial: dict[str, np.ndarray]
    constants: dict[str, Any]


def build_network(tokenizer: CLIPTokenizer, *, seed: int = 0) -> Network:
    config = architecture.text_config(
        vocabulary_size=len(tokenizer),
        **architecture.special_ids(tokenizer),
    )
    parts = {
        "text_encoder": architecture.trace_and_initialise(architecture.build_text_encoder, config, seed=seed),
        "text_encoder_2": architecture.trace_and_initialise(architecture.build_text_encoder_2, config, seed=seed + 1),
        "unet": architecture.trace_and_initialise(architecture.build_unet, seed=seed + 2),
    }
    return Network(
        modules={name: module for name, (module, _) in parts.items()},
        initial={f"{part}.{name}": value for part, (_, values) in parts.items() for name, value in values.items()},
        constants={part: module.constant_buffers() for part, (module, _) in parts.items()},
    )


def train_stage(
    stage: Stage,
    network: Network,
    tokenizer: CLIPTokenizer,
    albums: list[Album],
    initial: Mapping[str, np.ndarray],
    *,
    mesh: Mesh,
    folder: Path,
    stop_after_s: float | None = None,
) -> dict[str, np.ndarray]:
    """Returns the EMA parameters; resumes from `folder`."""
    rounds = [album for album, size in zip(albums, stage.sizes, strict=True) for _ in range(size.turns)]
    batch_sizes = [size.batch_size for size in stage.sizes for _ in range(size.turns)]
    alphas_cumprod = np.asarray(DDPMScheduler(**_ddpm_config()).alphas_cumprod)

    def draw_batch(step: int) -> Batch:
        turn = step % len(rounds)
        return _draw_batch(rounds[turn], tokenizer, _round_up(batch_sizes[turn], mesh.shape["dp"]), step)

    return train(
        Task(
            name=stage.name,
            loss=lambda parameters, batch, key: _compute_loss(network, alphas_cumprod, parameters, batch, key),
            draw_batch=draw_batch,
            course=stage.course,
            is_hidden=is_hidden,
            seed=3,
        ),
        initial,
        mesh=mesh,
        folder=folder,
        stop_after_s=stop_after_s,
    )


def is_hidden(name: str) -> bool:
    return not any(part in name for part in ("conv_in", "conv_out", "token_embedding", "position_embedding"))


def draw_album(size: AlbumSize, vae: TracedModule, vae_parameters: Parameters, *, folder: Path) -> Album:
    """Draws the postcards of one size and encodes them; kept in `folder`, so that a resumed run starts at once."""
    rng = np.random.default_rng((4, size.width, size.height))
    scenes = tuple(draw_scene(rng) for _ in range(size.pictures))
    file = folder / f"album-{size.width}x{size.height}.npy"
    if not file.exists():
        folder.mkdir(parents=True, exist_ok=True)
        encode = jax.jit(lambda parameters, pixels: encode_mean(vae, parameters, pixels))
        parts = [
            np.asarray(encode(vae_parameters, to_pixels(np.stack(pictures))), np.float16)
            for pictures in (
                [render(scene, size.width, size.height) for scene in scenes[start : start + 16]]
                for start in range(0, len(scenes), 16)
            )
        ]
        partial = file.with_suffix(".partial.npy")
        np.save(partial, np.concatenate(parts))
        partial.rename(file)
    return Album(
        width=size.width,
        height=size.height,
        latents=np.load(file),
        scenes=scenes,
        empty_scenes=np.flatnonzero([not scene.subjects and scene.weather == "clear" for scene in scenes]),
    )


def _draw_batch(album: Album, tokenizer: CLIPTokenizer, batch_size: int, step: int) -> Batch:
    rng = np.random.default_rng((5, step))
    chosen = rng.integers(len(album.scenes), size=batch_size)
    captions = []
    for row, choice in enumerate(chosen):
        lot = rng.random()
        if lot < UNKNOWN_SHARE:
            chosen[row] = rng.choice(album.empty_scenes)
            captions.append(_draw_unknown_words(rng))
        elif lot < UNKNOWN_SHARE + EMPTY_SHARE:
            captions.append("")
        else:
            captions.append(describe(album.scenes[choice], rng))
    ids = tokenizer(captions, padding="max_length", max_length=architecture.TEXT_LENGTH, truncation=True)
    size = [album.height, album.width, 0, 0, album.height, album.width]
    return {
        "latents": album.latents[chosen].astype(np.float32),
        "input_ids": np.asarray(ids["input_ids"], np.int32),
        "is_kept": (rng.random(batch_size) >= DROPPED_SHARE).astype(np.float32),
        "time_ids": np.tile(np.asarray(size, np.float32), (batch_size, 1)),
    }


def _draw_unknown_words(rng: np.random.Generator) -> str:
    """Common words that no postcard shows, and made-up ones."""
    words = []
    for _ in range(rng.integers(1, 9)):
        if rng.random() < 0.75:
            words.append(COMMON_WORDS[rng.integers(len(COMMON_WORDS))])
        else:
            words.append("".join(rng.choice(list("aeioubcdfghklmnprstvwyz"), size=rng.integers(2, 9))))
    return " ".join(words)


def _compute_loss(
    network: Network,
    alphas_cumprod: np.ndarray,
    parameters: Parameters,
    batch: Mapping[str, jax.Array],
    key: jax.Array,
) -> jax.Array:
    """Mean squared error of v = sqrt(a) noise - sqrt(1 - a) latents at a uniformly drawn timestep."""
    latents = batch["latents"]
    time_key, noise_key = jax.random.split(key)
    timesteps = jax.random.randint(time_key, (latents.shape[0],), 0, len(alphas_cumprod))
    noise = jax.random.normal(noise_key, latents.shape, latents.dtype)
    alpha = jnp.asarray(alphas_cumprod)[timesteps][:, None, None, None]
    noisy = jnp.sqrt(alpha) * latents + jnp.sqrt(1 - alpha) * noise
    target = jnp.sqrt(alpha) * noise - jnp.sqrt(1 - alpha) * latents

    prompt_embeds, pooled = embed(network, parameters, batch["input_ids"])
    kept = batch["is_kept"]
    (predicted,) = network.modules["unet"].call(
        _of(network, parameters, "unet"),
        noisy,
        timesteps,
        encoder_hidden_states=prompt_embeds * kept[:, None, None],
        added_cond_kwargs={"text_embeds": pooled * kept[:, None], "time_ids": batch["time_ids"]},
        return_dict=False,
    )
    return jnp.square(predicted - target).mean()


def embed(network: Network, parameters: Mapping[str, jax.Array], input_ids: jax.Array) -> tuple[jax.Array, jax.Array]:
    """As SDXL: last but one hidden states of both encoders side by side, and the second one's pooled projection."""
    outputs = [
        network.modules[part].call(
            _of(network, parameters, part),
            input_ids,
            output_hidden_states=True,
            return_dict=False,
        )
        for part in ("text_encoder", "text_encoder_2")
    ]
    return jnp.concatenate([output[-1][-2] for output in outputs], axis=-1), outputs[1][0]


def _of(network: Network, parameters: Mapping[str, jax.Array], part: str) -> dict[str, jax.Array]:
    prefix = f"{part}."
    own = {name[len(prefix) :]: value for name, value in parameters.items() if name.startswith(prefix)}
    return own | network.constants[part]


def _ddpm_config() -> dict[str, Any]:
    names = ("num_train_timesteps", "beta_schedule", "beta_start", "beta_end")
    return {name: architecture.SCHEDULER_CONFIG[name] for name in names}


def _round_up(count: int, multiple: int) -> int:
    return -(-count // multiple) * multiple

"""A family without weights or jax: it draws a landscape from prompt and seed and takes its time like a model.

`--fake` serves every catalogue entry with it, so page, queue, files and restarts can be worked on and tested in
seconds. It behaves like the real families where they can be seen: it loads, compiles each shape once, steps, previews,
can be cancelled between steps. Input pictures tint the landscape with their mean colour, and each LoRA tints it with a
colour derived from its ref.

Two prompts are test hooks of this family only: "crash worker" anywhere in a prompt kills its own process in the middle
of denoising, as the kernel does when memory runs out; "fail please" raises a LumeshError.
"""

import os
import signal
import time
import zlib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from pipelines.errors import LumeshError
from pipelines.families.fake.landscape import draw_landscape
from pipelines.messages import Message, say
from pipelines.models.catalog import Model, Shape
from pipelines.pictures.reading import open_picture
from pipelines.pictures.references import References, name_programs
from pipelines.prompts.reading import count_chunks
from pipelines.recipes.cache_kinds import SUFFIXES
from pipelines.recipes.recipe import Lora, Recipe
from pipelines.stages import Embeddings, OnProgress, Progress, ignore_progress

LOAD_S = 0.3
COMPILE_S = 1.0
UNLOAD_S = 0.3
STEP_S = 0.15
AT_ONCE = 8  # outputs computed at once if each device makes its own
PREVIEW_SCALE = 4  # a preview pixel covers this many output pixels, as a latent does
COMPILE_TICKS = 10
LORA_TINT = 0.3  # weight of a LoRA's colour at a scale of 1
TINT = 0.6  # weight of the input pictures' mean colour in the drawing


def load(model: Model, *, outputs_at_once: int = 1, on_progress: OnProgress) -> "FakeFamily":
    """Returns a fake of `model` after a pretended load time."""
    started = time.perf_counter()
    for done in range(3):
        on_progress(Progress(phase="loading", done=done, total=3, detail=model.title))
        time.sleep(LOAD_S / 3)
    return FakeFamily(model, load_s=time.perf_counter() - started, outputs_at_once=outputs_at_once)


class FakeFamily:
    """Family (pipelines/stages.py) without weights; its latents are float pictures, BCHW with three channels.

    A video is one picture that drifts to the left.
    """

    def __init__(
        self,
        model: Model,
        *,
        load_s: float = 0.0,
        compile_s: float = COMPILE_S,
        step_s: float = STEP_S,
        outputs_at_once: int = 1,
    ) -> None:
        self.model = model
        self.load_s = load_s
        self.revision = ""
        self.mesh = ""
        self.host_ms_per_chunk = 0.0
        self.outputs_at_once = outputs_at_once
        self._compile_s = compile_s
        self._step_s = step_s
        self._warm: set[tuple[str, int, bool]] = set()
        self._loras: tuple[Lora, ...] = ()

    def warm(
        self,
        shape: Shape,
        *,
        batch_size: int,
        uses_cfg: bool,
        references: References | None = None,
        text_chunks: int = 1,
        cache_kind: str = "",
        stage: str | None = None,  # noqa: ARG002
        on_progress: OnProgress,
    ) -> float:
        """Takes `compile_s` the first time for each set of programs."""
        name = name_programs(shape, references, text_chunks)
        name += SUFFIXES[cache_kind]
        key = self._key(name, batch_size, uses_cfg=uses_cfg)
        if self._is_warm(key):
            return 0.0
        started = time.perf_counter()
        for done in range(COMPILE_TICKS):
            on_progress(Progress(phase="compiling", done=done, total=COMPILE_TICKS, detail=name))
            time.sleep(self._compile_s / COMPILE_TICKS)
        self._warm.add(key)
        return time.perf_counter() - started

    def count_compiling(self) -> int:
        return 0

    def shape_state(
        self,
        shape: Shape,
        references: References | None = None,
        text_chunks: int = 1,
        *,
        batch_size: int = 1,
        uses_cfg: bool | None = None,
        cache_kind: str = "",
    ) -> str:
        is_guided = self.model.guidance_scale > 1 if uses_cfg is None else uses_cfg
        name = name_programs(shape, references, text_chunks)
        name += SUFFIXES[cache_kind]
        key = self._key(name, batch_size, uses_cfg=is_guided)
        return "warm" if key in self._warm else "cold"

    def _key(self, name: str, batch_size: int, *, uses_cfg: bool) -> tuple[str, int, bool]:
        return name, max(batch_size, self.outputs_at_once), uses_cfg

    def _is_warm(self, key: tuple[str, int, bool]) -> bool:
        """Tells whether nothing is to be compiled: the guided programs serve without guidance too, as in base.py."""
        return key in self._warm or (*key[:2], True) in self._warm

    def apply_loras(self, loras: Sequence[Lora], *, on_progress: OnProgress) -> Sequence[Message]:
        if tuple(loras) != self._loras:
            on_progress(Progress(phase="loading", detail=f"LoRA {', '.join(lora.ref for lora in loras)}"))
            self._loras = tuple(loras)
        return ()

    def encode(self, recipe: Recipe, *, on_progress: OnProgress = ignore_progress) -> Embeddings:  # noqa: ARG002
        """Returns the pictures that denoising will reveal, one per seed of the batch."""
        if "fail please" in recipe.prompt.lower():
            raise LumeshError(
                say("The prompt asked the fake model to fail."),
                advice=say("Write another prompt."),
                title=say("Failed as asked"),
            )
        shape = recipe.parsed_shape
        pictures = [
            draw_landscape(recipe.prompt, seed=seed, width=shape.width, height=shape.height) for seed in recipe.seeds
        ]
        tinted = _colour(_tint(np.stack(pictures), recipe), self._loras)
        return {"prompt_embeds": tinted.transpose(0, 3, 1, 2)}

    def count_text_chunks(self, recipe: Recipe) -> int:
        return count_chunks(self.model, recipe.prompt, recipe.negative_prompt)

    def denoise(
        self,
        recipe: Recipe,
        embeddings: Mapping[str, Any],
        *,
        seeds: Sequence[int] | None = None,
        on_progress: OnProgress,
    ) -> np.ndarray:
        """Fades the noise out, taking `step_s` per step."""
        steps = recipe.denoising_steps
        pictures = embeddings["prompt_embeds"]
        draws = [np.random.default_rng(seed) for seed in seeds or recipe.seeds]
        noise = np.stack([draw.standard_normal(pictures.shape[1:], np.float32) for draw in draws]) * 0.4 + 0.5
        on_progress(Progress(phase="denoising", total=steps))
        for done in range(1, steps + 1):
            time.sleep(0 if done - 1 in recipe.reused_steps else self._step_s)
            if done == 2 and "crash worker" in recipe.prompt.lower():
                os.kill(os.getpid(), signal.SIGKILL)
            draw = _previewer(pictures, noise, (done / steps) ** 1.5, frames=recipe.parsed_shape.frames)
            on_progress(Progress(phase="denoising", done=done, total=steps, draw_preview=draw))
        return pictures

    def decode(self, recipe: Recipe, latents_BCHW: np.ndarray) -> np.ndarray:
        return _to_frames(_to_pixels(latents_BCHW), recipe.parsed_shape.frames)

    def embedding_shapes(self, text_chunks: int = 1) -> dict[str, tuple[int, ...]]:  # noqa: ARG002
        return {}  # its embeddings are pictures of any size

    def latents_shape(self, shape: Shape) -> tuple[int, ...]:
        return (3, shape.height, shape.width)

    def compile_count(self) -> int:
        return len(self._warm)

    def unload(self) -> None:
        time.sleep(UNLOAD_S if self._step_s else 0)
        self._warm.clear()


def _tint(pictures_BHWC: np.ndarray, recipe: Recipe) -> np.ndarray:
    """Blends pictures towards the mean colour of the recipe's images, so that a test sees that the pixels arrived.

    A lower `strength` (less denoising) tints more.
    """
    if not recipe.images:
        return pictures_BHWC
    colours = [np.asarray(open_picture(Path(image)), np.float32).mean((0, 1)) / 255 for image in recipe.images]
    tint = TINT if recipe.strength is None else 1 - recipe.strength
    return (1 - tint) * pictures_BHWC + tint * np.mean(colours, axis=0)


def _colour(pictures_BHWC: np.ndarray, loras: Sequence[Lora]) -> np.ndarray:
    """Blends pictures towards the colour derived from each LoRA's ref, or away from it if the scale is negative."""
    for lora in loras:
        colour = np.random.default_rng(zlib.crc32(lora.ref.encode())).random(3)
        pictures_BHWC = pictures_BHWC + LORA_TINT * lora.scale * (colour - pictures_BHWC)
    return pictures_BHWC


def _previewer(
    pictures_BCHW: np.ndarray, noise_BCHW: np.ndarray, share: float, *, frames: int
) -> Callable[[], np.ndarray]:
    pictures, noise = (one[:, :, ::PREVIEW_SCALE, ::PREVIEW_SCALE] for one in (pictures_BCHW, noise_BCHW))
    return lambda: _to_frames(_to_pixels(share * pictures + (1 - share) * noise), frames)


def _to_frames(pixels_BHWC: np.ndarray, frames: int) -> np.ndarray:
    """Returns the pictures themselves, or `frames` frames of each that drift by a quarter of the width."""
    if frames == 1:
        return pixels_BHWC
    width = pixels_BHWC.shape[2]
    shifts = [round(-width / 4 * index / frames) for index in range(frames)]
    return np.stack([np.roll(pixels_BHWC, shift, axis=2) for shift in shifts], axis=1)


def _to_pixels(latents_BCHW: np.ndarray) -> np.ndarray:
    return (np.clip(latents_BCHW, 0.0, 1.0) * 255).round().astype(np.uint8).transpose(0, 2, 3, 1)

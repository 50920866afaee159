"""A recipe's way through the compiled programs of a loaded Wan."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np

from pipelines.families.base import pair_rows
from pipelines.families.layout import ENCODE_KEY
from pipelines.families.learnt_preview import PreviewedModel
from pipelines.families.wan import programs
from pipelines.families.wan.denoise import Channels, Condition, FirstFrame
from pipelines.families.wan.encode import tokenize
from pipelines.families.wan.parts import EXPERTS, Parts
from pipelines.families.wan.preview import pair_frames
from pipelines.families.wan.programs import IMAGE_KEY, Layout
from pipelines.models.catalog import Shape
from pipelines.pictures.fitting import fit_picture
from pipelines.pictures.reading import open_picture
from pipelines.recipes.recipe import Recipe
from pipelines.runtime.devices import hosts
from pipelines.runtime.sampling.noise import NoiseSource
from pipelines.runtime.sampling.schedules import build_schedule
from pipelines.runtime.sampling.solver import State
from pipelines.stages import Embeddings, OnProgress


class WanFamily(PreviewedModel):
    """See `stages.Family` for what each method promises."""

    programs = programs
    parts: Parts

    def _encode(self, recipe: Recipe) -> Embeddings:
        texts = [recipe.negative_prompt or "", recipe.prompt]
        ids, mask = tokenize(self.parts.tokenizers[0], texts, length=self.parts.text_length)
        program = self._programs.get(*ENCODE_KEY)
        found = program(*self._take(program, "text_encoder"), self._put(ids), self._put(mask))
        return {name: hosts.fetch(value) for name, value in found.items()}

    def denoise(
        self, recipe: Recipe, embeddings: Embeddings, *, seeds: Sequence[int] | None = None, on_progress: OnProgress
    ) -> jax.Array:
        scale = recipe.guidance_scale or 0.0
        layout = self._choose_layout(
            recipe.parsed_shape,
            recipe.batch_size,
            uses_cfg=scale > 1,
            cache_kind=recipe.cache_kind,
        )
        schedule = build_schedule(
            recipe.scheduler or "",
            self.parts.scheduler_config,
            steps=recipe.steps or 1,
            levels=recipe.sigmas or (),
            flow_shift=recipe.flow_shift,
        )
        program = self._programs.get(*layout.denoise_key)
        latents = NoiseSource(seeds=seeds or recipe.seeds, images=layout.outputs, shape=layout.latents_shape).draw()
        zeros = hosts.place(np.zeros_like(latents), layout.latents)
        state = State(hosts.place(latents, layout.latents), zeros, zeros, zeros)
        rows = hosts.place(pair_rows(embeddings, "prompt_embeds", layout).astype(np.float32), layout.rows)
        condition = self._make_condition(recipe, layout)
        table = self._put(schedule.table)
        # The guided program may run without guidance too; at a scale of 1 its result is the positive half.
        second_scale = scale if recipe.guidance_scale_2 is None else recipe.guidance_scale_2
        scales = [self._put(np.float32(value if scale > 1 else 1.0)) for value in (scale, second_scale)]
        boundary = self.parts.find_boundary(schedule)
        steps = self._reuse_steps(recipe, layout, whole=(0, boundary))

        def advance(state: State, start: int, stop: int) -> State:
            middle = min(max(start, boundary), stop)
            for expert, guidance_scale, begin, end in (
                (EXPERTS[0], scales[0], start, middle),
                (EXPERTS[1], scales[1], middle, stop),
            ):
                if begin < end:
                    state = steps.run(
                        program,
                        *self._take(program, expert),
                        state,
                        rows,
                        condition,
                        table,
                        guidance_scale,
                        self._number(begin),
                        self._number(end),
                    )
            return state

        return self._run_steps(
            advance,
            layout,
            state,
            steps=schedule.steps,
            batch_size=recipe.batch_size,
            on_progress=on_progress,
        )

    def embedding_shapes(self, text_chunks: int = 1) -> dict[str, tuple[int, ...]]:  # noqa: ARG002 - always one
        """Returns the shapes of the embeddings that `denoise` takes, one row each, as in stage files."""
        hidden = (1, self.parts.text_length, self.parts.text_width)
        return {"prompt_embeds": hidden, "negative_prompt_embeds": hidden}

    def latents_shape(self, shape: Shape) -> tuple[int, int, int, int]:
        """Returns (C, T, H, W) of one video's latents."""
        return self.parts.latents_CTHW(shape)

    def _make_condition(self, recipe: Recipe, layout: Layout) -> Condition:
        if not self.parts.takes_pictures:
            return None
        if not recipe.images:
            channels, _, height, width = layout.latents_shape
            return FirstFrame(
                self._put(np.zeros((1, channels, 1, height, width), np.float32)), self._put(np.float32(0))
            )
        pictures = [open_picture(Path(image)) for image in recipe.images[: self.parts.picture_count]]
        program = self._programs.get(*layout.condition_key)
        fitted = np.concatenate([fit_picture(picture, layout.shape, recipe.fit) for picture in pictures])
        found = program(*self._take(program, "vae"), self._put(fitted))
        if not self.parts.takes_channels:
            return FirstFrame(found, self._put(np.float32(1)))
        if self.parts.image_processor is None:
            return Channels(found)
        seen: Any = self.parts.image_processor(images=pictures, return_tensors="np")["pixel_values"]
        program = self._programs.get(*IMAGE_KEY)
        return Channels(found, program(*self._take(program, "image_encoder"), self._put(np.asarray(seen, np.float32))))

    def _pair_preview(self, latents: np.ndarray, pixels: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        return pair_frames(latents[0], pixels[0])

"""A recipe's way through the compiled programs of a loaded Z-Image."""

from collections.abc import Sequence
from pathlib import Path

import jax
import numpy as np

from pipelines.families.base import pair_rows
from pipelines.families.layout import ENCODE_KEY
from pipelines.families.learnt_preview import PreviewedModel
from pipelines.families.z_image import programs
from pipelines.families.z_image.denoise import choose_steps
from pipelines.families.z_image.encode import tokenize
from pipelines.families.z_image.parts import Parts
from pipelines.families.z_image.programs import Layout
from pipelines.models.catalog import Shape
from pipelines.pictures.fitting import fit_picture
from pipelines.pictures.reading import open_picture
from pipelines.recipes.recipe import Recipe
from pipelines.runtime.devices import hosts
from pipelines.runtime.sampling.noise import NoiseSource
from pipelines.runtime.sampling.solver import State
from pipelines.stages import Embeddings, OnProgress

_EMBEDDINGS = ("negative_prompt_embeds", "prompt_embeds")


class ZImageFamily(PreviewedModel):
    """See `stages.Family` for what each method promises.

    A guidance scale is counted as in all families: 1 is none. diffusers' pipeline counts from 0 here, so its 4 is 5.
    """

    programs = programs
    parts: Parts

    def _encode(self, recipe: Recipe) -> Embeddings:
        program = self._programs.get(*ENCODE_KEY)
        ids = self._put(tokenize(self.parts, [recipe.negative_prompt or "", recipe.prompt]))
        rows = hosts.fetch(program(*self._take(program, "text_encoder"), ids))
        return {name: row[None] for name, row in zip(_EMBEDDINGS, rows, strict=True)}

    def denoise(
        self, recipe: Recipe, embeddings: Embeddings, *, seeds: Sequence[int] | None = None, on_progress: OnProgress
    ) -> jax.Array:
        scale = recipe.guidance_scale or 0.0
        layout = self._choose_layout(
            recipe.parsed_shape, recipe.batch_size, uses_cfg=scale > 1, cache_kind=recipe.cache_kind
        )
        schedule = choose_steps(
            recipe.scheduler or "",
            self.parts.scheduler_config,
            steps=recipe.steps or 1,
            levels=recipe.sigmas or (),
            count=self.parts.count_tokens(recipe.parsed_shape),
            last_steps=recipe.denoising_steps if recipe.images else None,
            flow_shift=recipe.flow_shift,
        )
        program = self._programs.get(*layout.denoise_key)
        noise = NoiseSource(seeds=seeds or recipe.seeds, images=layout.outputs, shape=layout.latents_shape)
        picture = self._draw_picture(recipe, layout, noise) if recipe.images else np.float32(0)
        latents = np.float32(schedule.picture_scale) * picture + np.float32(schedule.initial_scale) * noise.draw()
        state = State(*(hosts.place(value, layout.latents) for value in (latents, np.zeros_like(latents))))
        rows = hosts.place(pair_rows(embeddings, "prompt_embeds", layout).astype(self.parts.dtype), layout.rows)
        table = self._put(schedule.table)
        guidance_scale = self._put(np.float32(max(scale, 1.0)))

        steps = self._reuse_steps(recipe, layout)

        def advance(state: State, start: int, stop: int) -> State:
            return steps.run(
                program,
                *self._take(program, "transformer"),
                state,
                rows,
                table,
                guidance_scale,
                self._number(start),
                self._number(stop),
            )

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
        return dict.fromkeys(_EMBEDDINGS, (1, self.parts.text_length, self.parts.text_width))

    def latents_shape(self, shape: Shape) -> tuple[int, int, int]:
        """Returns (C, H, W) of one picture's latents."""
        return self.parts.latents_CHW(shape)

    def _draw_picture(self, recipe: Recipe, layout: Layout, noise: NoiseSource) -> np.ndarray:
        """Encodes the picture and samples latents (B, C, H, W), with each image's first noise draw, as in diffusers."""
        picture = self._put(fit_picture(open_picture(Path(recipe.images[0])), layout.shape, recipe.fit))
        program = self._programs.get(*layout.condition_key)
        mean, deviation = program(*self._take(program, "vae"), picture)
        return hosts.fetch(mean) + hosts.fetch(deviation) * noise.draw()

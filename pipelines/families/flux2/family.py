"""A recipe's way through the compiled programs of a loaded FLUX.2."""

from collections.abc import Sequence

import jax
import numpy as np

from pipelines.families.base import pair_rows
from pipelines.families.flux2 import programs
from pipelines.families.flux2.denoise import choose_steps
from pipelines.families.flux2.encode import tokenize
from pipelines.families.flux2.parts import Parts
from pipelines.families.flux2.references import read_references
from pipelines.families.flux2.variants import Guidance
from pipelines.families.layout import ENCODE_KEY
from pipelines.families.learnt_preview import PreviewedModel
from pipelines.models.catalog import Shape
from pipelines.recipes.recipe import Recipe
from pipelines.runtime.devices import hosts
from pipelines.runtime.sampling.noise import NoiseSource
from pipelines.runtime.sampling.solver import State
from pipelines.stages import Embeddings, OnProgress


class Flux2Family(PreviewedModel):
    """See `stages.Family` for what each method promises."""

    programs = programs
    parts: Parts

    def _encode(self, recipe: Recipe) -> Embeddings:
        names = ("prompt_embeds",)
        prompts = [recipe.prompt]
        if self.parts.guidance is Guidance.PAIR:
            names = ("negative_prompt_embeds", *names)
            prompts = [recipe.negative_prompt or "", *prompts]
        program = self._programs.get(*ENCODE_KEY)
        rows = program(*self._take(program, "text_encoder"), self._put(tokenize(self.parts, prompts)))
        return {name: row[None] for name, row in zip(names, hosts.fetch(rows), strict=True)}

    def denoise(
        self, recipe: Recipe, embeddings: Embeddings, *, seeds: Sequence[int] | None = None, on_progress: OnProgress
    ) -> jax.Array:
        scale = recipe.guidance_scale or 0.0
        pictures, kind = read_references(recipe.images, self.model, recipe.fit)
        layout = self._choose_layout(
            recipe.parsed_shape,
            recipe.batch_size,
            uses_cfg=scale > 1,
            references=kind,
            cache_kind=recipe.cache_kind,
        )
        references = None
        if pictures is not None:
            reference = self._programs.get(*layout.reference_key)
            references = reference(*self._take(reference, "vae"), self._put(pictures))
        schedule = choose_steps(
            recipe.scheduler or "",
            self.parts.scheduler_config,
            steps=recipe.steps or 1,
            tokens=layout.tokens,
            levels=recipe.sigmas or (),
        )
        program = self._programs.get(*layout.denoise_key)
        latents = NoiseSource(seeds=seeds or recipe.seeds, images=layout.outputs, shape=layout.latents_shape).draw()
        state = State(*(hosts.place(value, layout.latents) for value in (latents, np.zeros_like(latents))))
        rows = hosts.place(pair_rows(embeddings, "prompt_embeds", layout).astype(self.parts.dtype), layout.rows)
        table = self._put(schedule.table)
        guidance_scale = self._put(np.float32(max(scale, 1.0) if layout.uses_cfg else scale))

        steps = self._reuse_steps(recipe, layout)

        def advance(state: State, start: int, stop: int) -> State:
            return steps.run(
                program,
                *self._take(program, "transformer"),
                state,
                rows,
                references,
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
        hidden = (1, self.parts.text_length, self.parts.text_width)
        if self.parts.guidance is Guidance.PAIR:
            return {"prompt_embeds": hidden, "negative_prompt_embeds": hidden}
        return {"prompt_embeds": hidden}

    def latents_shape(self, shape: Shape) -> tuple[int, int, int]:
        """Returns (C, H, W) of one picture's patchified latents."""
        return self.parts.latents_CHW(shape)

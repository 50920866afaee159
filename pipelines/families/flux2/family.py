"""A recipe's way through the compiled programs of a loaded FLUX.2."""

from collections.abc import Sequence
from pathlib import Path

import jax
import numpy as np

from pipelines.catalog import Model, Shape
from pipelines.families.base import LoadedModel, fill_rows, spread_rows
from pipelines.families.flux2.denoise import MAX_CHUNK, choose_steps
from pipelines.families.flux2.encode import tokenize
from pipelines.families.flux2.parts import Parts
from pipelines.families.flux2.programs import ENCODE_KEY, Layout, lay_out, list_programs
from pipelines.families.flux2.references import read_references
from pipelines.families.flux2.variants import Guidance
from pipelines.recipe import Recipe
from pipelines.references import References
from pipelines.runtime.programs.compiled import Program
from pipelines.runtime.sampling.noise import NoiseSource
from pipelines.runtime.sampling.preview import PreviewMap
from pipelines.runtime.sampling.solver import State
from pipelines.stages import Embeddings, OnProgress


class Flux2Family(LoadedModel):
    """See `stages.Family` for what each method promises. A recipe's `images` are files on this machine."""

    def __init__(self, model: Model, parts: Parts, preview: PreviewMap, *, cache_dir: Path, load_s: float) -> None:
        super().__init__(model, parts.weights, mesh=parts.mesh, cache_dir=cache_dir, load_s=load_s)
        self.parts = parts
        self._preview = preview

    def _encode(self, recipe: Recipe) -> Embeddings:
        names = ("prompt_embeds",)
        prompts = [recipe.prompt]
        if self.parts.guidance is Guidance.PAIR:
            names = ("negative_prompt_embeds", *names)
            prompts = [recipe.negative_prompt or "", *prompts]
        program = self._programs.get(*ENCODE_KEY)
        rows = program(*self._take(program, "text_encoder"), self._put(tokenize(self.parts, prompts)))
        return {name: row[None] for name, row in zip(names, jax.device_get(rows), strict=True)}

    def denoise(
        self, recipe: Recipe, embeddings: Embeddings, *, seeds: Sequence[int] | None = None, on_progress: OnProgress
    ) -> jax.Array:
        scale = recipe.guidance_scale or 0.0
        pictures, kind = read_references(recipe.images, self.model)
        layout = self._choose_layout(recipe.parsed_shape, recipe.batch_size, uses_cfg=scale > 1, references=kind)
        references = None
        if pictures is not None:
            reference = self._programs.get(*layout.reference_key)
            references = reference(*self._take(reference, "vae"), self._put(pictures))
        schedule = choose_steps(
            recipe.scheduler or "", self.parts.scheduler_config, steps=recipe.steps or 1, tokens=layout.tokens
        )
        program = self._programs.get(*layout.denoise_key)
        latents = NoiseSource(seeds=seeds or recipe.seeds, images=layout.images, shape=layout.latents_CHW).draw()
        state = State(*(jax.device_put(value, layout.latents) for value in (latents, np.zeros_like(latents))))
        rows = self._put_rows(embeddings, layout)
        table = self._put(schedule.table)
        guidance_scale = self._put(np.float32(max(scale, 1.0) if layout.uses_cfg else scale))

        def run(start: int, stop: int) -> jax.Array:
            nonlocal state
            state = program(
                *self._take(program, "transformer"),
                state,
                rows,
                references,
                table,
                guidance_scale,
                self._number(start),
                self._number(stop),
            )
            return state.x0

        self._run_steps(
            run,
            layout,
            steps=schedule.steps,
            max_chunk=MAX_CHUNK,
            batch_size=recipe.batch_size,
            on_progress=on_progress,
        )
        return state.latents

    def decode(self, recipe: Recipe, latents_BCHW: jax.Array) -> np.ndarray:
        layout = self._lay_out(recipe.parsed_shape, recipe.batch_size, uses_cfg=True)
        latents = jax.device_put(fill_rows(latents_BCHW, layout.images), layout.latents)
        program = self._programs.get(*layout.decode_key)
        pixels = program(*self._take(program, "vae"), latents)
        pictures = np.asarray(pixels)[: recipe.batch_size]
        if not self._preview.is_learnt:
            self._preview.learn(np.asarray(latents)[: recipe.batch_size], pictures)
        return pictures

    def embedding_shapes(self) -> dict[str, tuple[int, ...]]:
        """What `denoise` takes: one row each, as the stage files hold them."""
        hidden = (1, self.parts.text_length, self.parts.text_width)
        if self.parts.guidance is Guidance.PAIR:
            return {"prompt_embeds": hidden, "negative_prompt_embeds": hidden}
        return {"prompt_embeds": hidden}

    def latents_shape(self, shape: Shape) -> tuple[int, int, int]:
        """(C, H, W) of one picture's latents, in patches."""
        return self.parts.latents_CHW(shape)

    def _list_programs(self, layout: Layout) -> tuple[Program, ...]:
        return list_programs(self.parts, layout)

    def _lay_out(
        self, shape: Shape, batch_size: int, *, uses_cfg: bool, references: References | None = None
    ) -> Layout:
        count = max(batch_size, self.outputs_at_once)
        return lay_out(self.parts, shape, batch_size=count, uses_cfg=uses_cfg, references=references)

    def _put_rows(self, embeddings: Embeddings, layout: Layout) -> jax.Array:
        """[negative..., positive...] rows with guidance, positive rows alone without."""
        names = ("negative_prompt_embeds", "prompt_embeds") if layout.uses_cfg else ("prompt_embeds",)
        rows = [spread_rows(embeddings[name], layout.images) for name in names]
        return jax.device_put(np.concatenate(rows).astype(self.parts.dtype), layout.rows)

    def _draw_preview(self, layout: Layout, x0_BCHW: jax.Array) -> np.ndarray:
        matrix, bias = (
            self._put(value.astype(np.float32)) for value in (self._preview.map.matrix, self._preview.map.bias)
        )
        return np.asarray(self._programs.get(*layout.preview_key)(matrix, bias, x0_BCHW))

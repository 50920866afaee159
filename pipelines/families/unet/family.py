"""A recipe's way through the compiled programs of a loaded model with a UNet."""

from collections.abc import Sequence
from pathlib import Path

import jax
import numpy as np

from pipelines.families.base import LoadedModel, pair_rows
from pipelines.families.layout import ENCODE_KEY
from pipelines.families.unet import programs
from pipelines.families.unet.encode import Tokens, join_chunks, tokenize, weigh
from pipelines.families.unet.parts import Parts
from pipelines.families.unet.programs import Layout
from pipelines.models.catalog import Model, Shape
from pipelines.pictures.fitting import fit_picture
from pipelines.pictures.reading import open_picture
from pipelines.recipes.recipe import Recipe
from pipelines.runtime.devices import hosts
from pipelines.runtime.sampling.chunks import MAX_CHUNK
from pipelines.runtime.sampling.noise import NoiseSource
from pipelines.runtime.sampling.schedules import Schedule, build_schedule
from pipelines.runtime.sampling.solver import State
from pipelines.stages import Embeddings, OnProgress


class UNetFamily(LoadedModel):
    """See `stages.Family` for what each method promises."""

    programs = programs
    parts: Parts

    def __init__(self, model: Model, parts: Parts, *, cache_dir: Path, load_s: float) -> None:
        super().__init__(model, parts, cache_dir=cache_dir, load_s=load_s)
        self._zero_noise: dict[Layout, jax.Array] = {}

    def _encode(self, recipe: Recipe) -> Embeddings:
        tokens = self._tokenize(recipe)
        program = self._programs.get(*ENCODE_KEY)
        encoders = self._take(program, *self.parts.text_encoders)
        is_negative_empty = self._put(np.asarray(not recipe.negative_prompt))
        found = [program(*encoders, self._put(ids), is_negative_empty) for ids in tokens.ids]
        chunks = [{name: hosts.fetch(value) for name, value in one.items()} for one in found]
        widths = self.parts.text_widths
        for chunk, weights in zip(chunks, tokens.weights, strict=True):
            for row, name in enumerate(("negative_prompt_embeds", "prompt_embeds")):
                chunk[name] = weigh(chunk[name], weights[:, row], widths=widths)
        return join_chunks(chunks)

    def count_text_chunks(self, recipe: Recipe) -> int:
        return len(self._tokenize(recipe).ids)

    def _tokenize(self, recipe: Recipe) -> Tokens:
        return tokenize(
            self.parts.tokenizers,
            recipe.prompt,
            recipe.negative_prompt or "",
            length=self.parts.text_length,
            most_chunks=self.model.traits.text_chunks,
        )

    def denoise(
        self, recipe: Recipe, embeddings: Embeddings, *, seeds: Sequence[int] | None = None, on_progress: OnProgress
    ) -> jax.Array:
        shape = recipe.parsed_shape
        scale = recipe.guidance_scale or 0.0
        layout = self._choose_layout(
            shape,
            recipe.batch_size,
            uses_cfg=scale > 1,
            cache_kind=recipe.cache_kind,
            text_chunks=np.asarray(embeddings["prompt_embeds"]).shape[1] // self.parts.text_length,
        )
        schedule = build_schedule(
            recipe.scheduler or "",
            self.parts.scheduler_config,
            steps=recipe.steps or 1,
            levels=recipe.sigmas or (),
            last_steps=recipe.denoising_steps if recipe.images else None,
        )
        program = self._programs.get(*layout.denoise_key)
        noise = NoiseSource(seeds=seeds or recipe.seeds, images=layout.outputs, shape=layout.latents_shape)
        picture = self._draw_picture(recipe, layout, noise) if recipe.images else np.float32(0)
        latents = np.float32(schedule.picture_scale) * picture + np.float32(schedule.initial_scale) * noise.draw()
        state = State(*(hosts.place(value, layout.latents) for value in (latents, np.zeros_like(latents))))
        rows = self._put_rows(embeddings, layout)
        table = self._put(schedule.table)
        guidance_scale = self._put(np.float32(max(scale, 1.0)))

        steps = self._reuse_steps(recipe, layout)

        def advance(state: State, start: int, stop: int) -> State:
            return steps.run(
                program,
                *self._take(program, "unet"),
                state,
                rows,
                table,
                self._draw_chunk_noise(noise, layout, schedule, start, stop),
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
            rows_per_step=recipe.rows_per_step,
        )

    def embedding_shapes(self, text_chunks: int = 1) -> dict[str, tuple[int, ...]]:
        """Returns the shapes of the embeddings that `denoise` takes, one row each, as in stage files."""
        sizes = self.parts.embedding_sizes(text_chunks)
        return {f"{side}{name}": (1, *size) for name, size in sizes.items() for side in ("", "negative_")}

    def latents_shape(self, shape: Shape) -> tuple[int, int, int]:
        """Returns (C, H, W) of one picture's latents."""
        return self.parts.latents_CHW(shape)

    def unload(self) -> None:
        self._zero_noise.clear()
        super().unload()

    def _draw_picture(self, recipe: Recipe, layout: Layout, noise: NoiseSource) -> np.ndarray:
        """Encodes the picture and samples latents (B, C, H, W), with each image's first noise draw, as in diffusers."""
        picture = self._put(fit_picture(open_picture(Path(recipe.images[0])), layout.shape, recipe.fit))
        program = self._programs.get(*layout.condition_key)
        mean, deviation = program(*self._take(program, "vae"), picture)
        return hosts.fetch(mean) + hosts.fetch(deviation) * noise.draw()

    def _put_rows(self, embeddings: Embeddings, layout: Layout) -> dict[str, jax.Array]:
        """Puts the rows [negative..., positive...] on the devices; without guidance only the positive ones."""
        rows = {name: pair_rows(embeddings, name, layout) for name in self.parts.embedding_sizes(layout.text_chunks)}
        told = self.parts.describe_shape(layout.shape)
        rows |= {name: np.repeat(value, layout.row_count, axis=0) for name, value in told.items()}
        return {name: hosts.place(value.astype(np.float32), layout.rows) for name, value in rows.items()}

    def _draw_chunk_noise(
        self, source: NoiseSource, layout: Layout, schedule: Schedule, start: int, stop: int
    ) -> jax.Array:
        sharded = layout.noise
        size = (MAX_CHUNK, layout.outputs, *layout.latents_shape)
        if not schedule.has_noise:
            if layout not in self._zero_noise:
                self._zero_noise[layout] = hosts.place(np.zeros(size, np.float32), sharded)
            return self._zero_noise[layout]
        noise = np.zeros(size, np.float32)
        for row in range(start, stop):
            noise[row - start] = source.draw()
            if share := schedule.shared_noise.get(row):
                fresh = np.float32((1 - share**2) ** 0.5)
                noise[row - start] = np.float32(share) * noise[row - start - 1] + fresh * noise[row - start]
        return hosts.place(noise, sharded)

    def _draw_preview(self, layout: Layout, x0_BCHW: jax.Array) -> np.ndarray:
        return hosts.fetch(self._programs.get(*layout.preview_key)(x0_BCHW))

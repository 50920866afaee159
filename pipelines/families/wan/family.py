"""A recipe's way through the compiled programs of a loaded Wan."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np

from pipelines.catalog import Model, Shape
from pipelines.families.base import LoadedModel, fill_rows, spread_rows
from pipelines.families.wan.denoise import MAX_CHUNK, Channels, Condition, FirstFrame
from pipelines.families.wan.encode import tokenize
from pipelines.families.wan.parts import Parts
from pipelines.families.wan.preview import pair_frames
from pipelines.families.wan.programs import ENCODE_KEY, IMAGE_KEY, Layout, lay_out, list_programs
from pipelines.recipe import Recipe
from pipelines.references import References
from pipelines.runtime.programs.compiled import Program
from pipelines.runtime.sampling.noise import NoiseSource
from pipelines.runtime.sampling.pictures import fit_picture, open_picture
from pipelines.runtime.sampling.schedules import COLUMNS, Schedule, build_schedule
from pipelines.runtime.sampling.solver import State
from pipelines.stages import Embeddings, OnProgress


class WanFamily(LoadedModel):
    """See `stages.Family` for what each method promises. A recipe's `images` are files on this machine."""

    def __init__(self, model: Model, parts: Parts, *, cache_dir: Path, load_s: float) -> None:
        super().__init__(model, parts.weights, mesh=parts.mesh, cache_dir=cache_dir, load_s=load_s)
        self.parts = parts

    def _encode(self, recipe: Recipe) -> Embeddings:
        texts = [recipe.negative_prompt or "", recipe.prompt]
        ids, mask = tokenize(self.parts.tokenizer, texts, length=self.parts.text_length)
        program = self._programs.get(*ENCODE_KEY)
        return jax.device_get(program(*self._take(program, "text_encoder"), self._put(ids), self._put(mask)))

    def denoise(
        self, recipe: Recipe, embeddings: Embeddings, *, seeds: Sequence[int] | None = None, on_progress: OnProgress
    ) -> jax.Array:
        scale = recipe.guidance_scale or 0.0
        layout = self._choose_layout(recipe.parsed_shape, recipe.batch_size, uses_cfg=scale > 1)
        schedule = build_schedule(
            recipe.scheduler or "",
            self.parts.scheduler_config,
            steps=recipe.steps or 1,
            flow_shift=recipe.flow_shift,
        )
        program = self._programs.get(*layout.denoise_key)
        latents = NoiseSource(seeds=seeds or recipe.seeds, images=layout.videos, shape=layout.latents_CTHW).draw()
        zeros = jax.device_put(np.zeros_like(latents), layout.latents)
        state = State(jax.device_put(latents, layout.latents), zeros, zeros, zeros)
        rows = self._put_rows(embeddings, layout)
        condition = self._make_condition(recipe, layout)
        table = self._put(schedule.table)
        # Without guidance the guided program may run all the same; at 1 it gives the positive half.
        second_scale = scale if recipe.guidance_scale_2 is None else recipe.guidance_scale_2
        scales = [self._put(np.float32(value if scale > 1 else 1.0)) for value in (scale, second_scale)]
        boundary = self._find_boundary(schedule)

        def run(start: int, stop: int) -> jax.Array:
            nonlocal state
            middle = min(max(start, boundary), stop)
            for expert, guidance_scale, begin, end in (
                ("transformer", scales[0], start, middle),
                ("transformer_2", scales[1], middle, stop),
            ):
                if begin < end:
                    state = program(
                        *self._take(program, expert),
                        state,
                        rows,
                        condition,
                        table,
                        guidance_scale,
                        self._number(begin),
                        self._number(end),
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

    def decode(self, recipe: Recipe, latents_BCTHW: jax.Array) -> np.ndarray:
        layout = self._lay_out(recipe.parsed_shape, recipe.batch_size, uses_cfg=True)
        latents = jax.device_put(fill_rows(latents_BCTHW, layout.videos), layout.latents)
        program = self._programs.get(*layout.decode_key)
        pixels = program(*self._take(program, "vae"), latents)
        frames = np.asarray(pixels)[: recipe.batch_size]
        if not self.parts.preview.is_learnt:
            self.parts.preview.learn(*pair_frames(np.asarray(latents)[0], frames[0]))
        return frames

    def embedding_shapes(self) -> dict[str, tuple[int, ...]]:
        """What `denoise` takes: one row each, as the stage files hold them."""
        hidden = (1, self.parts.text_length, self.parts.text_width)
        return {"prompt_embeds": hidden, "negative_prompt_embeds": hidden}

    def latents_shape(self, shape: Shape) -> tuple[int, int, int, int]:
        """(C, T, H, W) of one video's latents."""
        return self.parts.latents_CTHW(shape)

    def _list_programs(self, layout: Layout) -> tuple[Program, ...]:
        return list_programs(self.parts, layout)

    def _lay_out(
        self, shape: Shape, batch_size: int, *, uses_cfg: bool, references: References | None = None
    ) -> Layout:
        assert references is None, "only a model with references has programs for them"
        return lay_out(self.parts, shape, batch_size=max(batch_size, self.outputs_at_once), uses_cfg=uses_cfg)

    def _find_boundary(self, schedule: Schedule) -> int:
        """The first step of the second expert; past the last one where there is none."""
        if self.parts.boundary_timestep is None:
            return schedule.steps
        timesteps = schedule.table[: schedule.steps, COLUMNS.index("timestep")]
        return int((timesteps >= self.parts.boundary_timestep).sum())

    def _put_rows(self, embeddings: Embeddings, layout: Layout) -> jax.Array:
        """[negative..., positive...] rows with guidance, positive rows alone without."""
        names = ("negative_prompt_embeds", "prompt_embeds") if layout.uses_cfg else ("prompt_embeds",)
        rows = np.concatenate([spread_rows(embeddings[name], layout.videos) for name in names])
        return jax.device_put(rows.astype(np.float32), layout.rows)

    def _make_condition(self, recipe: Recipe, layout: Layout) -> Condition:
        if not self.parts.takes_pictures:
            return None
        if not recipe.images:
            channels, _, height, width = layout.latents_CTHW
            return FirstFrame(
                self._put(np.zeros((1, channels, 1, height, width), np.float32)), self._put(np.float32(0))
            )
        picture = open_picture(Path(recipe.images[0]))
        program = self._programs.get(*layout.condition_key)
        found = program(*self._take(program, "vae"), self._put(fit_picture(picture, layout.shape)))
        if not self.parts.takes_channels:
            return FirstFrame(found, self._put(np.float32(1)))
        if self.parts.image_processor is None:
            return Channels(found)
        seen: Any = self.parts.image_processor(images=picture, return_tensors="np")["pixel_values"]
        program = self._programs.get(*IMAGE_KEY)
        return Channels(found, program(*self._take(program, "image_encoder"), self._put(np.asarray(seen, np.float32))))

    def _draw_preview(self, layout: Layout, x0_BCTHW: jax.Array) -> np.ndarray:
        found = self.parts.preview.map
        matrix, bias = (self._put(np.asarray(value, np.float32)) for value in (found.matrix, found.bias))
        return np.asarray(self._programs.get(*layout.preview_key)(matrix, bias, x0_BCTHW))

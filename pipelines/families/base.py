"""The base class of loaded models: it holds weights and compiled programs, knows which are warm, and frees them."""

import abc
import functools
import gc
import logging
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from pipelines.families.embedding_cache import EmbeddingCache
from pipelines.families.layout import ENCODE_KEY, Layout
from pipelines.families.protocol import FamilyPrograms
from pipelines.families.remote_encoder import RemoteEncoder
from pipelines.families.reused_steps import ResidualRatios, ReusedSteps
from pipelines.messages import Message
from pipelines.models.catalog import Model, Shape
from pipelines.models.fingerprints import fingerprint_programs
from pipelines.pictures.references import References, name_programs
from pipelines.recipes.cache_kinds import MAGCACHE
from pipelines.recipes.recipe import Lora, Recipe
from pipelines.runtime.bridge.modules import TracedModule
from pipelines.runtime.devices import hosts
from pipelines.runtime.devices.following import tell_together
from pipelines.runtime.devices.mesh import describe_mesh
from pipelines.runtime.devices.offload import Offloader
from pipelines.runtime.devices.sharding import count_at_once
from pipelines.runtime.kernels.switches import list_off
from pipelines.runtime.programs.aot_packs import Packs
from pipelines.runtime.programs.compiled import CacheIndex, Programs, counter
from pipelines.runtime.sampling.chunks import MAX_CHUNK, run_chunks
from pipelines.runtime.sampling.solver import State
from pipelines.runtime.weights.components import ComponentLoader
from pipelines.runtime.weights.lora_spelling import Spell
from pipelines.runtime.weights.lora_state import LoraState, refuse_on_text_encoder
from pipelines.stages import Embeddings, OnProgress, Progress, ignore_progress

log = logging.getLogger(__name__)

Weights = dict[str, dict[str, jax.Array]]
"""Component -> parameter name -> array on the mesh, or Parked if offloaded; the same dict object as in `Parts`."""

TEXT_ENCODERS = ("text_encoder", "text_encoder_2")


class LoadedModel(abc.ABC):
    """The family-independent part of `stages.Family`; the family's module `programs` says what a shape needs.

    A recipe's `images` are files on this machine.
    """

    programs: ClassVar[FamilyPrograms]
    parts: Any
    """The family's `Parts`"""

    def __init__(self, model: Model, parts: Any, *, cache_dir: Path, load_s: float) -> None:
        mesh: Mesh = parts.mesh
        self.model = model
        self.parts = parts
        self.load_s = load_s
        self.host_ms_per_chunk = 0.0
        self.outputs_at_once = 1
        self.ratios: ResidualRatios | None = None
        self.revision = ""
        self.mesh = describe_mesh(mesh)
        self._mesh = mesh
        self.remote_encoder: RemoteEncoder | None = None
        self._weights: Weights = parts.weights
        self._programs = Programs()
        self._packs: Packs | None = None
        self._loras: LoraState | None = None
        self._replicated = NamedSharding(mesh, PartitionSpec())
        self._offloader = Offloader(limit_bytes=None)
        self._embeddings = EmbeddingCache()
        self._numbers: dict[int, jax.Array] = {}
        device = mesh.devices.flat[0]
        context = " ".join((f"{fingerprint_programs(model)} {dict(mesh.shape)} {device.device_kind}", *list_off()))
        self._index = CacheIndex(cache_dir, context=context)

    def warm(
        self,
        shape: Shape,
        *,
        batch_size: int,
        uses_cfg: bool,
        references: References | None = None,
        text_chunks: int = 1,
        cache_kind: str = "",
        stage: str | None = None,
        on_progress: OnProgress,
    ) -> float:
        layout = self._choose_layout(
            shape,
            batch_size,
            uses_cfg=uses_cfg,
            references=references,
            text_chunks=text_chunks,
            cache_kind=cache_kind,
        )
        title = name_programs(shape, references, text_chunks)
        return self._warm(layout, title=title, stage=stage, on_progress=on_progress)

    def warm_encoder(self, on_progress: OnProgress) -> None:
        """Compiles what `encode` runs and nothing else, for callers that make no pictures."""
        layout = self._lay_out(self.model.default_shape, 1, uses_cfg=True)
        programs = [one for one in self.programs.list_programs(self.parts, layout) if one.key == ENCODE_KEY]
        self._programs.compile_all(
            programs, on_wait=lambda done: on_progress(Progress(phase="compiling", done=done, total=len(programs)))
        )

    def make_many_at_once(self) -> None:
        """Makes programs compute as many outputs as take no longer than one. Call it before anything is warm."""
        uses_cfg = self.model.guidance_scale > 1
        self.outputs_at_once = count_at_once(
            self._mesh, lambda count: self._lay_out(self.model.default_shape, count, uses_cfg=uses_cfg)
        )
        if self.outputs_at_once == 1:
            log.info("%s has no devices to spare for a second output on %s", self.model.title, self.mesh)

    def count_compiling(self) -> int:
        return self._programs.unfinished

    def use_packs(self, packs: Packs) -> None:
        """Makes later programs load from `packs` instead of being compiled. Call it before anything is warm."""
        self._packs = packs
        self._programs = Programs(packs.find)

    def use_loader(self, loader: ComponentLoader, *, modules: Mapping[str, TracedModule], spell: Spell) -> None:
        """Allows LoRAs to be merged into `modules`, which `loader` has read; `spell` knows the family's LoRA names.

        Components are offloaded by the loader's offloader from now on.
        """
        self._offloader = loader.offloader
        self._loras = LoraState(self.model, self._weights, modules=modules, loader=loader, spell=spell)

    def apply_loras(self, loras: Sequence[Lora], *, on_progress: OnProgress) -> Sequence[Message]:
        if self._loras is not None:
            return self._loras.become(loras, on_progress=on_progress)
        assert not loras, "a model that was not loaded from files has none to read again"
        return ()

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
        uses_cfg = self.model.guidance_scale > 1 if uses_cfg is None else uses_cfg
        layout = self._lay_out(
            shape,
            batch_size,
            uses_cfg=uses_cfg,
            references=references,
            text_chunks=text_chunks,
            cache_kind=cache_kind,
        )
        keys = (layout.denoise_key, layout.decode_key)
        if all(self._programs.has(*key) for key in keys):
            return "warm"
        if self._packs is not None and self._packs.has(*keys):
            return "disk"
        return "disk" if self._index.has(*layout.name) else "cold"

    def compile_count(self) -> int:
        return counter.compiled

    def encode(self, recipe: Recipe, *, on_progress: OnProgress = ignore_progress) -> Embeddings:
        """Returns the prompt's embeddings, computed now or from the cache; raises RemoteEncoderError."""
        encode = self._encode
        touching = self._loras.find_touching(TEXT_ENCODERS) if self._loras is not None else frozenset()
        if self.remote_encoder is not None:
            refuse_on_text_encoder(touching)
            encode = functools.partial(
                self.remote_encoder.encode,
                shapes=self.embedding_shapes(self.count_text_chunks(recipe)),
                on_wait=lambda: on_progress(Progress(phase="encoding", total=1)),
            )
        key = (recipe.prompt, recipe.negative_prompt, touching)
        return self._embeddings.get(key, lambda: encode(recipe))

    def count_text_chunks(self, recipe: Recipe) -> int:  # noqa: ARG002 - one, but for families with chunks
        return 1

    def decode(self, recipe: Recipe, latents: Any) -> np.ndarray:
        layout = self._lay_out(recipe.parsed_shape, recipe.batch_size, uses_cfg=True)
        latents = hosts.place(fill_rows(latents, layout.outputs), layout.latents)
        program = self._programs.get(*layout.decode_key)
        return hosts.fetch(program(*self._take(program, "vae"), latents))[: recipe.batch_size]

    def find_ratios(self, recipe: Recipe, *, on_progress: OnProgress) -> tuple[tuple[float, ...], ...]:
        """Runs a resolved recipe step by step, and returns each expert's ratio of a step's residual to the last one's.

        Only for models that can have MagCache.
        """
        assert MAGCACHE in self.model.traits.cache_kinds, f"{self.model.id} has no residuals"
        whole = recipe.model_copy(update={"step_cache": "0,0,1", "reused_steps": ()})
        self.warm(
            whole.parsed_shape,
            batch_size=1,
            uses_cfg=(whole.guidance_scale or 0.0) > 1,
            cache_kind=MAGCACHE,
            on_progress=on_progress,
        )
        self.ratios = found = ResidualRatios()
        try:
            self.denoise(whole, self.encode(whole), on_progress=on_progress)
        finally:
            self.ratios = None
        return tuple(map(tuple, found.of_experts))

    @abc.abstractmethod
    def denoise(
        self, recipe: Recipe, embeddings: Embeddings, *, seeds: Sequence[int] | None = None, on_progress: OnProgress
    ) -> jax.Array: ...

    def unload(self) -> None:
        self._programs.clear()
        self._embeddings.clear()
        self._numbers.clear()
        for component in self._weights.values():
            for array in component.values():
                array.delete()
        self._offloader.clear()
        self._weights.clear()
        gc.collect()

    @abc.abstractmethod
    def embedding_shapes(self, text_chunks: int = 1) -> dict[str, tuple[int, ...]]: ...

    @abc.abstractmethod
    def _encode(self, recipe: Recipe) -> Embeddings: ...

    @abc.abstractmethod
    def _draw_preview(self, layout: Any, x0: jax.Array, /) -> np.ndarray: ...

    def _lay_out(
        self,
        shape: Shape,
        batch_size: int,
        *,
        uses_cfg: bool,
        references: References | None = None,
        text_chunks: int = 1,
        cache_kind: str = "",
    ) -> Any:
        count = max(batch_size, self.outputs_at_once)
        further = {"text_chunks": text_chunks} if text_chunks > 1 else {}  # only families with chunks take it
        further |= {"cache_kind": cache_kind} if cache_kind else {}  # nor can all have each
        return self.programs.lay_out(
            self.parts, shape, batch_size=count, uses_cfg=uses_cfg, references=references, **further
        )

    def _choose_layout(
        self,
        shape: Shape,
        batch_size: int,
        *,
        uses_cfg: bool,
        references: References | None = None,
        text_chunks: int = 1,
        cache_kind: str = "",
    ) -> Any:
        """Picks the program with one forward pass per step if guidance is off, unless only the guided one is warm.

        At a scale of 1 the guided program gives the same output and costs a second forward pass, but no compilation.
        """
        single, guided = (
            self._lay_out(
                shape,
                batch_size,
                uses_cfg=value,
                references=references,
                text_chunks=text_chunks,
                cache_kind=cache_kind,
            )
            for value in (False, True)
        )
        is_single_warm, is_guided_warm = (self._programs.has(*layout.denoise_key) for layout in (single, guided))
        return guided if uses_cfg or (is_guided_warm and not is_single_warm) else single

    def _warm(self, layout: Any, *, title: str, stage: str | None, on_progress: OnProgress) -> float:
        """Compiles missing programs, records what the cache now has, and returns the seconds this took.

        With a `stage` it waits only for that stage's programs; the next call waits for the others.
        """
        programs = self.programs.list_programs(self.parts, layout)
        if all(self._programs.has(*program.key) for program in programs):
            return 0.0
        awaited = [program for program in programs if stage in (None, program.key[0])]
        is_cached = self._index.has(*layout.name)

        def report(done: int) -> None:
            ready = self._packs.describe(programs) if self._packs is not None else ""
            sources = [title, f"{ready};" if ready and is_cached else ready, "from the cache" if is_cached else ""]
            detail = " ".join(filter(None, sources))
            on_progress(Progress(phase="compiling", done=done, total=len(programs), detail=detail))

        started = time.perf_counter()
        self._programs.compile_all(programs, awaited=awaited, on_wait=report)
        seconds = time.perf_counter() - started
        is_whole = len(awaited) == len(programs)
        if is_whole and not is_cached and (self._packs is None or not self._packs.has_loaded(programs)):
            self._index.add(*layout.name)
        return seconds

    def _run_steps(
        self,
        advance: Callable[[State, int, int], State],
        layout: Layout,
        state: State,
        *,
        steps: int,
        batch_size: int,
        on_progress: OnProgress,
        rows_per_step: int = 1,
    ) -> jax.Array:
        """Runs all steps in chunks (chunks.py), each queued by `advance(state, start, stop)`; returns the latents.

        `steps`, `start` and `stop` count rows of the schedule's table; people are told of steps.
        """

        def run(start: int, stop: int) -> jax.Array:
            nonlocal state
            hosts.note_launch(f"steps {start}-{stop}")
            state = advance(state, start, stop)
            return state.x0

        def report(done: int, picture: jax.Array) -> None:
            draw = lambda: self._draw_preview(layout, picture)[:batch_size]  # noqa: E731
            told, total = (-(-count // rows_per_step) for count in (done, steps))
            tell_together(on_progress, Progress(phase="denoising", done=told, total=total, draw_preview=draw))

        self.host_ms_per_chunk = run_chunks(
            run,
            steps=steps,
            max_chunk=MAX_CHUNK if self.ratios is None else 1,
            unit=rows_per_step,
            on_done=report,
        )
        return state.latents

    def _reuse_steps(self, recipe: Recipe, layout: Layout, *, whole: Collection[int] = (0,)) -> ReusedSteps:
        """Returns what runs this recipe's denoise programs; steps in `whole` are computed in any case."""
        return ReusedSteps(
            layout,
            reused=recipe.reused_steps,
            whole=whole,
            get=self._programs.get,
            put=self._put,
            ratios=self.ratios,
        )

    def _take(self, program: Any, *components: str) -> list[dict[str, jax.Array]]:
        """Brings `components` onto the devices and returns their weights, as arguments for `program`."""
        self._offloader.use(*components, program=program)
        return [self._weights[name] for name in components]

    def _put(self, value: Any) -> jax.Array:
        """Puts a value on every device (replicated)."""
        return hosts.place(value, self._replicated)

    def _number(self, value: int) -> jax.Array:
        """Returns an int32 on the devices, cached because every chunk uses step numbers again."""
        if value not in self._numbers:
            self._numbers[value] = self._put(np.int32(value))
        return self._numbers[value]


def pair_rows(embeddings: Embeddings, name: str, layout: Layout) -> np.ndarray:
    """Returns the rows [negative..., positive...] with guidance, only the positive ones without."""
    names = (f"negative_{name}", name) if layout.uses_cfg else (name,)
    return np.concatenate([_spread_rows(embeddings[name], layout.outputs) for name in names])


def _spread_rows(rows: Any, count: int) -> np.ndarray:
    """Expands one row for all outputs, or one row per output, to `count` rows, repeating the last one."""
    values = np.asarray(rows)
    return values[np.minimum(np.arange(count), len(values) - 1)]


def fill_rows(latents: Any, rows: int) -> Any:
    """Pads latents to `rows` with zeros: files hold only the requested outputs, programs take a full batch class."""
    missing = rows - len(latents)
    if not missing:
        return latents
    return np.concatenate([latents, np.zeros((missing, *latents.shape[1:]), np.float32)])

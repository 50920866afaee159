"""The SDXL family: two CLIP encoders, a UNet with size conditioning, classic guidance, a standard autoencoder.

`load` builds the modules without weights, reads the checkpoint straight into sharded arrays, and returns a `Family`.
What differs from other families is in encode.py, denoise.py, decode.py and sharding.py, a screen each.
"""

import contextlib
import gc
import json
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from diffusers import AutoencoderKL, UNet2DConditionModel
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from transformers import CLIPTextConfig, CLIPTextModel, CLIPTextModelWithProjection, CLIPTokenizer

from pipelines.catalog import Model, Shape
from pipelines.errors import ModelError
from pipelines.recipe import Recipe
from pipelines.runtime import hub
from pipelines.runtime.compiled import CacheIndex, Program, Programs, counter
from pipelines.runtime.preview import SDXL_LATENTS_TO_RGB, LatentsToRgb, read_map
from pipelines.runtime.schedules import COLUMNS, MAX_STEPS, build_schedule
from pipelines.runtime.sharding import Rules, apply_rules
from pipelines.runtime.torch_bridge import TracedModule, parameters_on_meta
from pipelines.runtime.weights import find_weight_files, load_weights, read_headers
from pipelines.sdxl import sharding
from pipelines.sdxl.decode import build_decode_program
from pipelines.sdxl.denoise import MAX_CHUNK, NoiseSource, build_denoise_program, make_time_ids
from pipelines.sdxl.encode import build_encode_program, tokenize
from pipelines.stages import STAGES, Embeddings, OnProgress, Progress

COMPONENTS = ("text_encoder", "text_encoder_2", "unet", "vae", "tokenizer", "tokenizer_2", "scheduler")
STAGE_OF = {"text_encoder": "encode", "text_encoder_2": "encode", "unet": "denoise", "vae": "decode"}
CHUNK_TARGET_S = 0.1  # how often the host looks: often enough for a smooth bar and a prompt cancel


def load(
    model: Model,
    *,
    mesh: Mesh,
    cache_dir: Path,
    on_progress: OnProgress,
    stages: Sequence[str] = STAGES,
) -> "SdxlFamily":
    """Downloads if need be, builds, reads and shards; raises ModelError with what to do when it cannot.

    With fewer `stages` only their weights are read, and only their methods may be called.
    """
    started = time.perf_counter()
    folder = hub.locate(
        model,
        components=COMPONENTS,
        on_bytes=lambda done, total: on_progress(Progress(phase="downloading", done=done, total=total)),
    )
    on_progress(Progress(phase="loading"))
    with _told_as_incomplete(folder):
        parts = _build_modules(folder)
        tokenizers = tuple(CLIPTokenizer.from_pretrained(folder / name) for name in ("tokenizer", "tokenizer_2"))
        scheduler_config = _read_json(folder / "scheduler" / "scheduler_config.json")
        zeroes_empty = bool(_read_json(folder / "model_index.json").get("force_zeros_for_empty_prompt", True))
    dtype = jnp.float32 if mesh.devices.flat[0].platform == "cpu" else jnp.bfloat16
    weights = {}
    for name, module in parts.items():
        if STAGE_OF[name] not in stages:
            continue
        needs_fp32 = name == "vae" and module.module.config.force_upcast
        weights[name] = _load_part(
            folder / name,
            module,
            mesh=mesh,
            rules=sharding.UNET_RULES if name == "unet" else sharding.REPLICATED,
            dtype=jnp.float32 if needs_fp32 else dtype,
            variant=model.variant,
            on_progress=on_progress,
            detail=name.replace("_", " "),
        )
    return SdxlFamily(
        model=model,
        mesh=mesh,
        modules=parts,
        weights=weights,
        tokenizers=tokenizers,
        scheduler_config=scheduler_config,
        zeroes_empty=zeroes_empty,
        latents_to_rgb=read_map(folder) or SDXL_LATENTS_TO_RGB,
        dtype=dtype,
        cache_dir=cache_dir,
        load_s=time.perf_counter() - started,
    )


@dataclass(frozen=True, kw_only=True)
class _Plan:
    """The arrays of one (shape, images, guidance): sizes and where they lie."""

    shape: Shape
    images: int
    uses_cfg: bool
    latents_CHW: tuple[int, int, int]  # noqa: N815
    latents: NamedSharding
    rows: NamedSharding
    model_input: NamedSharding


class SdxlFamily:
    """A loaded SDXL: see `stages.Family` for what each method promises."""

    def __init__(
        self,
        *,
        model: Model,
        mesh: Mesh,
        modules: Mapping[str, TracedModule],
        weights: Mapping[str, dict[str, jax.Array]],
        tokenizers: tuple[CLIPTokenizer, CLIPTokenizer],
        scheduler_config: Mapping[str, Any],
        zeroes_empty: bool,
        latents_to_rgb: LatentsToRgb,
        dtype: Any,
        cache_dir: Path,
        load_s: float,
    ) -> None:
        self.model = model
        self.mesh = mesh
        self.load_s = load_s
        self._modules = modules
        self._weights = dict(weights)
        self._tokenizers = tokenizers
        self._scheduler_config = scheduler_config
        self._zeroes_empty = zeroes_empty
        self._latents_to_rgb = latents_to_rgb
        self._dtype = dtype
        self._programs = Programs()
        self._replicated = NamedSharding(mesh, PartitionSpec())
        device = mesh.devices.flat[0]
        context = f"{model.id}@{model.revision} {dict(mesh.shape)} {device.device_kind} {jax.__version__}"
        self._index = CacheIndex(cache_dir, context=context)
        self.host_ms_per_chunk = 0.0  # of the last denoise: the host's own work, waiting for the devices left out
        self._zero_noise: dict[_Plan, jax.Array] = {}

    def warm(self, shape: Shape, *, batch_size: int, uses_cfg: bool, on_progress: OnProgress) -> float:
        plan = self._choose_plan(shape, batch_size, uses_cfg=uses_cfg)
        uses_cfg = plan.uses_cfg
        programs = self._list_programs(plan)
        if all(self._programs.has(*program.key) for program in programs):
            return 0.0
        key = ("shape", shape, plan.images, uses_cfg)
        known_s = self._index.find_seconds(*key)
        detail = f"{shape}" if known_s is None else f"{shape} from the cache"
        on_progress(Progress(phase="compiling", total=len(programs), detail=detail))
        started = time.perf_counter()
        self._programs.compile_all(programs)
        seconds = time.perf_counter() - started
        self._index.remember(*key, seconds=seconds)
        return seconds

    def shape_state(self, shape: Shape) -> str:
        uses_cfg = self.model.guidance_scale > 1
        plan = self._plan(shape, 1, uses_cfg=uses_cfg)
        if all(self._programs.has(*key) for key in (self._denoise_key(plan), ("decode", shape, plan.images))):
            return "warm"
        known_s = self._index.find_seconds("shape", shape, plan.images, uses_cfg)
        return "cold" if known_s is None else "disk"

    def encode(self, recipe: Recipe) -> Embeddings:
        negative_prompt = recipe.negative_prompt or ""
        ids = tokenize(self._tokenizers, recipe.prompt, negative_prompt)
        embeddings = self._programs.get("encode")(
            self._weights["text_encoder"],
            self._weights["text_encoder_2"],
            self._put(ids),
            self._put(np.asarray(not negative_prompt)),
        )
        return jax.device_get(embeddings)

    def denoise(self, recipe: Recipe, embeddings: Embeddings, *, on_progress: OnProgress) -> jax.Array:
        shape = recipe.parsed_shape
        scale = recipe.guidance_scale or 0.0
        plan = self._choose_plan(shape, recipe.batch_size, uses_cfg=scale > 1)
        schedule = build_schedule(recipe.scheduler or "", self._scheduler_config, steps=recipe.steps or 1)
        program = self._programs.get(*self._denoise_key(plan))
        noise = NoiseSource(seed=recipe.seed or 0, images=plan.images, shape_CHW=plan.latents_CHW)
        latents = jax.device_put(noise.draw() * np.float32(schedule.initial_scale), plan.latents)
        x0 = jax.device_put(np.zeros(latents.shape, np.float32), plan.latents)
        rows = self._put_rows(embeddings, plan)
        table = self._put(schedule.table)
        guidance_scale = self._put(np.float32(max(scale, 1.0)))

        # One chunk is always queued behind the running one, so the devices never wait for the host.
        start, chunk, clock = 0, 1, time.perf_counter()
        began_s, waited_s, chunks = clock, 0.0, 0
        running: tuple[int, int, jax.Array] | None = None
        while start < schedule.steps or running is not None:
            queued = None
            if start < schedule.steps:
                stop = min(start + chunk, schedule.steps)
                chunk_noise = self._draw_chunk_noise(noise, plan, stop - start, has_noise=schedule.has_noise)
                latents, x0 = program(
                    self._weights["unet"],
                    latents,
                    x0,
                    rows,
                    table,
                    chunk_noise,
                    guidance_scale,
                    self._put(np.int32(start)),
                    self._put(np.int32(stop)),
                )
                queued = (start, stop, x0)
                start = stop
            if running is not None:
                began, ended, picture = running
                waiting_s = time.perf_counter()
                picture.block_until_ready()
                now = time.perf_counter()
                waited_s, chunks = waited_s + now - waiting_s, chunks + 1
                step_s, clock = (now - clock) / (ended - began), now
                chunk = int(np.clip(CHUNK_TARGET_S / max(step_s, 1e-6), 1, MAX_CHUNK))
                on_progress(
                    Progress(
                        phase="denoising",
                        done=ended,
                        total=schedule.steps,
                        draw_preview=lambda picture=picture: self._draw_preview(plan, picture)[: recipe.batch_size],
                    )
                )
            running = queued
        self.host_ms_per_chunk = 1000 * (time.perf_counter() - began_s - waited_s) / chunks
        return latents

    def decode(self, recipe: Recipe, latents_BCHW: jax.Array) -> np.ndarray:
        plan = self._plan(recipe.parsed_shape, recipe.batch_size, uses_cfg=True)
        latents = jax.device_put(_fill_rows(latents_BCHW, plan.images), plan.latents)
        pixels = self._programs.get("decode", plan.shape, plan.images)(self._weights["vae"], latents)
        return np.asarray(pixels)[: recipe.batch_size]

    def embedding_shapes(self) -> dict[str, tuple[int, ...]]:
        """What `denoise` takes: one row each, as the stage files hold them."""
        hidden = (1, self._tokenizers[0].model_max_length, self._cross_attention_dim())
        pooled = (1, self._modules["text_encoder_2"].module.config.projection_dim)
        return {
            "prompt_embeds": hidden,
            "negative_prompt_embeds": hidden,
            "pooled_prompt_embeds": pooled,
            "negative_pooled_prompt_embeds": pooled,
        }

    def latents_shape(self, shape: Shape) -> tuple[int, int, int]:
        """(C, H, W) of one picture's latents."""
        return self._plan(shape, 1, uses_cfg=True).latents_CHW

    def compile_count(self) -> int:
        return counter.compiled

    def unload(self) -> None:
        self._programs.clear()
        self._zero_noise.clear()
        for weights in self._weights.values():
            for array in weights.values():
                array.delete()
        self._weights.clear()
        gc.collect()

    def _plan(self, shape: Shape, batch_size: int, *, uses_cfg: bool) -> _Plan:
        images = sharding.batch_class(batch_size)
        scale = 2 ** (len(self._modules["vae"].module.config.block_out_channels) - 1)
        latents_CHW = (self._modules["vae"].module.config.latent_channels, shape.height // scale, shape.width // scale)
        dp, sp = self.mesh.shape["dp"], self.mesh.shape["sp"]
        rows = images * (2 if uses_cfg else 1)
        latents = PartitionSpec(
            "dp" if images % dp == 0 else None,
            None,
            "sp" if latents_CHW[1] % sp == 0 else None,
        )
        batched = PartitionSpec("dp" if rows % dp == 0 else None)
        return _Plan(
            shape=shape,
            images=images,
            uses_cfg=uses_cfg,
            latents_CHW=latents_CHW,
            latents=NamedSharding(self.mesh, latents),
            rows=NamedSharding(self.mesh, batched),
            model_input=NamedSharding(self.mesh, PartitionSpec(*batched, None, latents[2])),
        )

    def _choose_plan(self, shape: Shape, batch_size: int, *, uses_cfg: bool) -> _Plan:
        """One forward a step when guidance is off, unless only the guided program is warm.

        At a scale of 1 that one gives the same picture, for a second forward instead of a compilation.
        """
        single, guided = (self._plan(shape, batch_size, uses_cfg=value) for value in (False, True))
        is_single_warm, is_guided_warm = (self._programs.has(*self._denoise_key(plan)) for plan in (single, guided))
        return guided if uses_cfg or (is_guided_warm and not is_single_warm) else single

    def _denoise_key(self, plan: _Plan) -> tuple[Any, ...]:
        return ("denoise", plan.shape, plan.images, plan.uses_cfg)

    def _list_programs(self, plan: _Plan) -> tuple[Program, ...]:
        """The programs of the loaded stages, as the worker and the command line both compile them."""
        loaded = {STAGE_OF[name] for name in self._weights}
        latents = jax.ShapeDtypeStruct((plan.images, *plan.latents_CHW), jnp.float32, sharding=plan.latents)
        programs = []
        if "encode" in loaded:
            programs.append(self._encode_program())
        if "denoise" in loaded:
            programs += [self._denoise_program(plan, latents), self._preview_program(plan, latents)]
        if "decode" in loaded:
            programs.append(self._decode_program(plan, latents))
        return tuple(programs)

    def _encode_program(self) -> Program:
        encoders = (self._modules["text_encoder"], self._modules["text_encoder_2"])
        ids = (len(encoders), 2, self._tokenizers[0].model_max_length)
        return Program(
            key=("encode",),
            function=build_encode_program(encoders, zeroes_empty=self._zeroes_empty),
            arguments=(
                _abstract(self._weights["text_encoder"]),
                _abstract(self._weights["text_encoder_2"]),
                self._abstract_input(ids, jnp.int32),
                self._abstract_input((), jnp.bool_),
            ),
        )

    def _denoise_program(self, plan: _Plan, latents: jax.ShapeDtypeStruct) -> Program:
        return Program(
            key=self._denoise_key(plan),
            function=build_denoise_program(
                self._modules["unet"],
                uses_cfg=plan.uses_cfg,
                dtype=self._dtype,
                input_sharding=plan.model_input,
            ),
            arguments=(
                _abstract(self._weights["unet"]),
                latents,
                latents,
                self._abstract_rows(plan),
                self._abstract_input((MAX_STEPS, len(COLUMNS)), jnp.float32),
                jax.ShapeDtypeStruct((MAX_CHUNK, *latents.shape), jnp.float32, sharding=self._noise_sharding(plan)),
                self._abstract_input((), jnp.float32),
                self._abstract_input((), jnp.int32),
                self._abstract_input((), jnp.int32),
            ),
            donate=(1,),
            out_shardings=(plan.latents, plan.latents),
        )

    def _decode_program(self, plan: _Plan, latents: jax.ShapeDtypeStruct) -> Program:
        weights = self._weights["vae"]
        return Program(
            key=("decode", plan.shape, plan.images),
            function=build_decode_program(self._modules["vae"], dtype=next(iter(weights.values())).dtype),
            arguments=(_abstract(weights), latents),
        )

    def _preview_program(self, plan: _Plan, latents: jax.ShapeDtypeStruct) -> Program:
        return Program(
            key=("preview", plan.shape, plan.images),
            function=self._latents_to_rgb.draw,
            arguments=(latents,),
            out_shardings=self._replicated,
        )

    def _abstract_input(self, shape: tuple[int, ...], dtype: Any) -> jax.ShapeDtypeStruct:
        return jax.ShapeDtypeStruct(shape, dtype, sharding=self._replicated)

    def _noise_sharding(self, plan: _Plan) -> NamedSharding:
        return NamedSharding(self.mesh, PartitionSpec(None, *plan.latents.spec))

    def _abstract_rows(self, plan: _Plan) -> dict[str, jax.ShapeDtypeStruct]:
        count = plan.images * (2 if plan.uses_cfg else 1)
        pooled = self._modules["text_encoder_2"].module.config.projection_dim
        sizes = {
            "prompt_embeds": (self._tokenizers[0].model_max_length, self._cross_attention_dim()),
            "pooled_prompt_embeds": (pooled,),
            "time_ids": (6,),
        }
        return {
            name: jax.ShapeDtypeStruct((count, *size), jnp.float32, sharding=plan.rows) for name, size in sizes.items()
        }

    def _cross_attention_dim(self) -> int:
        return sum(self._modules[name].module.config.hidden_size for name in ("text_encoder", "text_encoder_2"))

    def _put_rows(self, embeddings: Embeddings, plan: _Plan) -> dict[str, jax.Array]:
        """[negative..., positive...] rows with guidance, positive rows alone without."""
        rows = {}
        for name in ("prompt_embeds", "pooled_prompt_embeds"):
            halves = [embeddings[f"negative_{name}"], embeddings[name]] if plan.uses_cfg else [embeddings[name]]
            rows[name] = np.concatenate([np.repeat(np.asarray(half), plan.images, axis=0) for half in halves])
        time_ids = make_time_ids(width=plan.shape.width, height=plan.shape.height)
        rows["time_ids"] = np.repeat(time_ids, len(rows["prompt_embeds"]), axis=0)
        return {name: jax.device_put(value.astype(np.float32), plan.rows) for name, value in rows.items()}

    def _draw_chunk_noise(
        self,
        source: NoiseSource,
        plan: _Plan,
        steps: int,
        *,
        has_noise: bool,
    ) -> jax.Array:
        sharded = self._noise_sharding(plan)
        size = (MAX_CHUNK, plan.images, *plan.latents_CHW)
        if not has_noise:
            if plan not in self._zero_noise:
                self._zero_noise[plan] = jax.device_put(np.zeros(size, np.float32), sharded)
            return self._zero_noise[plan]
        noise = np.zeros(size, np.float32)
        for step in range(steps):
            noise[step] = source.draw()
        return jax.device_put(noise, sharded)

    def _draw_preview(self, plan: _Plan, x0_BCHW: jax.Array) -> np.ndarray:
        return np.asarray(self._programs.get("preview", plan.shape, plan.images)(x0_BCHW))

    def _put(self, value: Any) -> jax.Array:
        return jax.device_put(value, self._replicated)


@contextlib.contextmanager
def _told_as_incomplete(folder: Path) -> Iterator[None]:
    """Turns a missing or damaged file into a ModelError that says what a checkpoint consists of."""
    try:
        yield
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ModelError(
            f"{folder} is not a complete SDXL checkpoint: {error}.",
            advice=f"It needs model_index.json, {', '.join(COMPONENTS)}.",
        ) from error


def _build_modules(folder: Path) -> dict[str, TracedModule]:
    configs = {name: _read_json(folder / name / "config.json") for name in ("unet", "vae")}
    text_configs = {name: CLIPTextConfig.from_pretrained(folder / name) for name in ("text_encoder", "text_encoder_2")}
    with parameters_on_meta():
        modules = {
            "text_encoder": CLIPTextModel(text_configs["text_encoder"]),
            "text_encoder_2": CLIPTextModelWithProjection(text_configs["text_encoder_2"]),
            "unet": UNet2DConditionModel.from_config(configs["unet"]),
            "vae": AutoencoderKL.from_config(configs["vae"]),
        }
    if modules["unet"].config.addition_embed_type != "text_time":
        raise ModelError(
            f"{folder} holds a UNet without SDXL's size conditioning.",
            advice="Stable Diffusion 1.x and 2.x are other architectures and cannot run here.",
        )
    return {name: TracedModule(module) for name, module in modules.items()}


def _load_part(
    folder: Path,
    module: TracedModule,
    *,
    mesh: Mesh,
    rules: Rules,
    dtype: Any,
    variant: str,
    on_progress: OnProgress,
    detail: str,
) -> dict[str, jax.Array]:
    shapes = module.parameter_shapes()
    weights = load_weights(
        read_headers(find_weight_files(folder, variant=variant)),
        shapes,
        apply_rules(rules, shapes, mesh),
        dtype=dtype,
        optional_prefix="text_model.",
        on_tensor=lambda done, total: on_progress(Progress(phase="sharding", done=done, total=total, detail=detail)),
    )
    replicated = NamedSharding(mesh, PartitionSpec())
    return weights | {name: jax.device_put(value, replicated) for name, value in module.constant_buffers().items()}


def _fill_rows(latents_BCHW: Any, images: int) -> Any:
    """Latents read from a file hold only the pictures asked for; the program takes a full batch class."""
    missing = images - len(latents_BCHW)
    if not missing:
        return latents_BCHW
    return np.concatenate([latents_BCHW, np.zeros((missing, *latents_BCHW.shape[1:]), np.float32)])


def _read_json(file: Path) -> dict[str, Any]:
    return json.loads(file.read_text("utf-8"))


def _abstract(weights: Mapping[str, jax.Array]) -> dict[str, jax.ShapeDtypeStruct]:
    return {
        name: jax.ShapeDtypeStruct(array.shape, array.dtype, sharding=array.sharding) for name, array in weights.items()
    }

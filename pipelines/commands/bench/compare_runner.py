"""Runs one side of the bench in a process of its own, which bench/process.py starts and reads.

Each warm output has a new prompt, because Lumesh caches the embeddings of earlier prompts and diffusers does not.
"""

import time

STARTED = time.perf_counter()  # before any heavy import

import inspect  # noqa: E402
import resource  # noqa: E402
import statistics  # noqa: E402
from collections import Counter  # noqa: E402
from collections.abc import Mapping  # noqa: E402
from pathlib import Path  # noqa: E402
from typing import Any  # noqa: E402

from pipelines.commands.bench.checkpoint import place_in  # noqa: E402
from pipelines.commands.bench.process import answer  # noqa: E402
from pipelines.models.catalog import Model, read_data_dir  # noqa: E402
from pipelines.recipes.recipe import Recipe, read_recipe  # noqa: E402

LUMESH, EAGER, COMPILED = "lumesh", "diffusers", "diffusers, torch.compile"
PLATFORMS = "platforms"
CPU_FACTS = Path("/proc/cpuinfo")


def run_lumesh(task: dict[str, Any]) -> dict[str, Any]:
    from pipelines import registry
    from pipelines.generate import generate

    recipe, model = read_recipe(task["recipe"]), _find_model(task)
    registry.start_jax(Path(task["cache_dir"]))
    family = registry.load(
        model,
        mesh=task["mesh"],
        cache_dir=Path(task["cache_dir"]),
        on_progress=lambda _progress: None,
    )
    import_s = time.perf_counter() - STARTED - family.load_s
    first = generate(family, recipe)
    first_picture_s = time.perf_counter() - STARTED
    seconds, encode_seconds = [], []
    for warm in list_warm(recipe, task["pictures"]):
        clock = time.perf_counter()
        outcome = generate(family, warm)
        seconds.append(time.perf_counter() - clock)
        encode_seconds.append(outcome.timings.encode_s)
    return {
        "first_picture_s": first_picture_s,
        "import_s": import_s,
        "load_s": family.load_s,
        "compile_s": first.timings.compile_s,
        "warm_s": statistics.median(seconds),
        "encode_ms": 1000 * min(encode_seconds),
        "host_ms_per_chunk": family.host_ms_per_chunk,
        **read_jax_peak(),
        "peak_rss_mb": _read_peak_rss(),
        **describe_lumesh(model, task["mesh"]),
    }


def describe_lumesh(model: Model, mesh: str | None) -> dict[str, Any]:
    """Returns the devices, and the dtype of each component's weights; imports jax."""
    from pipelines import registry
    from pipelines.registry import describe_parts

    built = registry.build_mesh_for(model, mesh)
    kind = built.devices.flat[0].device_kind
    name = read_cpu_name() if kind == "cpu" else kind
    dtypes = {component: find_dtype(weights) for component, weights in describe_parts(model, built).weights.items()}
    return {"device": name if built.size == 1 else f"{built.size} x {name}", "dtypes": dtypes}


def find_dtype(weights: Mapping[str, Any]) -> str:
    """Returns the dtype of most of a component's weights: some components keep small weights in fp32."""
    sizes: Counter[str] = Counter()
    for weight in weights.values():
        sizes[weight.dtype.name] += weight.size
    return sizes.most_common(1)[0][0]


def read_jax_peak() -> dict[str, float]:
    """Returns the peak of XLA's allocator; nothing on CPU, where it is not counted."""
    import jax

    facts = jax.devices()[0].memory_stats() or {}
    return {"peak_device_mb": facts["peak_bytes_in_use"] / 1e6} if "peak_bytes_in_use" in facts else {}


def run_diffusers(task: dict[str, Any]) -> dict[str, Any]:
    """Measures diffusers with each component in the same dtype as ours, task["dtypes"]."""
    import torch

    import_s = time.perf_counter() - STARTED
    recipe, model = read_recipe(task["recipe"]), _find_model(task)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    pipeline = load_diffusers(str(model.path or model.repo), task["dtypes"]).to(device)
    if task["side"] == COMPILED:
        compile_modules(pipeline)
    load_s = time.perf_counter() - STARTED - import_s
    shape = recipe.parsed_shape
    options = _find_options(pipeline, recipe, frames=shape.frames)

    def make(one: Recipe) -> None:
        pipeline(
            prompt=one.prompt,
            **options,
            width=shape.width,
            height=shape.height,
            num_inference_steps=recipe.steps or 1,
            guidance_scale=recipe.guidance_scale or 0.0,
            generator=torch.Generator("cpu").manual_seed(one.seed or 0),
        )

    make(recipe)
    first_picture_s = time.perf_counter() - STARTED
    seconds = []
    for warm in list_warm(recipe, task["pictures"]):
        clock = time.perf_counter()
        make(warm)
        seconds.append(time.perf_counter() - clock)
    return {
        "first_picture_s": first_picture_s,
        "import_s": import_s,
        "load_s": load_s,
        "warm_s": statistics.median(seconds),
        **read_torch_peak(),
        "peak_rss_mb": _read_peak_rss(),
        "device": torch.cuda.get_device_name() if device == "cuda" else read_cpu_name(),
        "dtypes": {name: str(module.dtype).removeprefix("torch.") for name, module in _list_modules(pipeline).items()},
    }


def read_torch_peak() -> dict[str, float]:
    """Returns the peak of PyTorch's allocator on a GPU; nothing without one."""
    import torch

    return {"peak_device_mb": torch.cuda.max_memory_allocated() / 1e6} if torch.cuda.is_available() else {}


def load_diffusers(place: str, dtypes: Mapping[str, str]) -> Any:
    """Loads diffusers' own pipeline from a folder or repository, each component in its dtype."""
    import torch
    from diffusers import DiffusionPipeline

    chosen = {name: getattr(torch, dtype) for name, dtype in dtypes.items()}
    pipeline: Any = DiffusionPipeline.from_pretrained(place, dtype=chosen)
    pipeline.set_progress_bar_config(disable=True)
    decode = pipeline.vae.decode
    # SDXL's pipeline upcasts the autoencoder by itself only from fp16.
    pipeline.vae.decode = lambda latents, **options: decode(latents.to(pipeline.vae.dtype), **options)
    return pipeline


def _list_modules(pipeline: Any) -> dict[str, Any]:
    import torch

    return {name: one for name, one in pipeline.components.items() if isinstance(one, torch.nn.Module)}


def compile_modules(pipeline: Any, *, backend: str = "inductor") -> None:
    """Applies torch.compile to the denoisers and the decoder; they compile on their first call."""
    import torch

    for name in ("unet", "transformer", "transformer_2"):
        if (module := getattr(pipeline, name, None)) is not None:
            module.compile(backend=backend)
    pipeline.vae.decode = torch.compile(pipeline.vae.decode, backend=backend)


def _find_options(pipeline: Any, recipe: Recipe, *, frames: int) -> dict[str, Any]:
    """Returns arguments that only some pipelines take: negative prompt, frames, FLUX.2's prompt length and layers."""
    taken = inspect.signature(pipeline.__call__).parameters
    options: dict[str, Any] = {}
    if "negative_prompt" in taken:
        options["negative_prompt"] = recipe.negative_prompt or None
    if "num_frames" in taken:
        options["num_frames"] = frames
    if "text_encoder_out_layers" in taken:
        tokenizer = getattr(pipeline.tokenizer, "tokenizer", pipeline.tokenizer)
        options["max_sequence_length"] = min(512, tokenizer.model_max_length)
        text_config = pipeline.text_encoder.config.get_text_config()
        if (layers := getattr(text_config, "text_encoder_out_layers", None)) is not None:
            options["text_encoder_out_layers"] = tuple(layers)
    return options


def list_warm(recipe: Recipe, count: int) -> list[Recipe]:
    """Lists recipes for `count` outputs after the first, each with its own prompt and seed."""
    return [
        recipe.model_copy(update={"prompt": f"{recipe.prompt}, {number}", "seed": (recipe.seed or 0) + number})
        for number in range(1, count + 1)
    ]


def find_platforms(_task: dict[str, Any]) -> dict[str, str]:
    """Returns where each side would compute: cpu, gpu or tpu."""
    from pipelines.runtime.devices import platform

    platform.prepare_backend()
    import jax
    import torch

    return {"lumesh": jax.default_backend(), "diffusers": "gpu" if torch.cuda.is_available() else "cpu"}


def _find_model(task: dict[str, Any]) -> Model:
    """Returns the recipe's model, with the checkpoint at task["path"] in its place if that is set."""
    model = read_data_dir(Path(task["models_dir"]).parent).get(task["recipe"]["model"])
    return place_in(model, task["path"]) if task.get("path") else model


def read_cpu_name() -> str:
    """Returns the CPU's name from the system, or `CPU`."""
    lines = CPU_FACTS.read_text("utf-8").splitlines() if CPU_FACTS.exists() else []
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), "CPU")


def _read_peak_rss() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024  # kilobytes on Linux


RUN = {LUMESH: run_lumesh, EAGER: run_diffusers, COMPILED: run_diffusers, PLATFORMS: find_platforms}

if __name__ == "__main__":
    answer(lambda task: RUN[task["side"]](task))

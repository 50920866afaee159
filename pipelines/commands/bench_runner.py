"""One side of the bench, in a process of its own: reads its task as JSON on stdin, prints its figures as JSON."""

import time

STARTED = time.perf_counter()  # before any heavy import

import inspect  # noqa: E402
import json  # noqa: E402
import resource  # noqa: E402
import statistics  # noqa: E402
import sys  # noqa: E402
from pathlib import Path  # noqa: E402
from typing import Any  # noqa: E402

from pipelines.catalog import load_catalog  # noqa: E402
from pipelines.recipe import Recipe, read_recipe  # noqa: E402

EAGER, COMPILED = "diffusers", "diffusers, torch.compile"


def run_lumesh(task: dict[str, Any], recipe: Recipe) -> dict[str, float]:
    from pipelines import registry
    from pipelines.generate import generate

    registry.start_jax(Path(task["cache_dir"]))
    family = registry.load(
        load_catalog(Path(task["models_dir"])).get(recipe.model),
        mesh=task["mesh"],
        cache_dir=Path(task["cache_dir"]),
        on_progress=lambda _progress: None,
    )
    import_s = time.perf_counter() - STARTED - family.load_s
    first = generate(family, recipe)
    first_picture_s = time.perf_counter() - STARTED
    seconds = []
    for number in range(task["pictures"]):
        clock = time.perf_counter()
        generate(family, recipe.model_copy(update={"seed": (recipe.seed or 0) + number}))
        seconds.append(time.perf_counter() - clock)
    return {
        "first_picture_s": first_picture_s,
        "import_s": import_s,
        "load_s": family.load_s,
        "compile_s": first.timings.compile_s,
        "warm_s": statistics.median(seconds),
        "host_ms_per_chunk": family.host_ms_per_chunk,
        **_read_device_peak(),
    }


def _read_device_peak() -> dict[str, float]:
    """Bytes that XLA's allocator gave out at a time; the CPU does not count them."""
    import jax

    facts = jax.devices()[0].memory_stats() or {}
    return {"peak_device_mb": facts["peak_bytes_in_use"] / 1e6} if "peak_bytes_in_use" in facts else {}


def run_diffusers(task: dict[str, Any], recipe: Recipe) -> dict[str, float]:
    import torch
    from diffusers import DiffusionPipeline

    import_s = time.perf_counter() - STARTED
    model = load_catalog(Path(task["models_dir"])).get(recipe.model)
    device, dtype = choose_torch(has_cuda=torch.cuda.is_available())
    pipeline: Any = DiffusionPipeline.from_pretrained(model.path or model.repo, dtype=dtype).to(device)
    pipeline.set_progress_bar_config(disable=True)
    if task["side"] == COMPILED:
        compile_modules(pipeline)
    load_s = time.perf_counter() - STARTED - import_s
    shape = recipe.parsed_shape
    options = _find_options(pipeline, recipe, frames=shape.frames)

    def make(seed: int) -> None:
        pipeline(
            prompt=recipe.prompt,
            **options,
            width=shape.width,
            height=shape.height,
            num_inference_steps=recipe.steps or 1,
            guidance_scale=recipe.guidance_scale or 0.0,
            generator=torch.Generator("cpu").manual_seed(seed),
        )

    make(recipe.seed or 0)
    first_picture_s = time.perf_counter() - STARTED
    seconds = []
    for number in range(task["pictures"]):
        clock = time.perf_counter()
        make((recipe.seed or 0) + number)
        seconds.append(time.perf_counter() - clock)
    return {
        "first_picture_s": first_picture_s,
        "import_s": import_s,
        "load_s": load_s,
        "warm_s": statistics.median(seconds),
        **({"peak_device_mb": torch.cuda.max_memory_allocated() / 1e6} if device == "cuda" else {}),
    }


def choose_torch(*, has_cuda: bool) -> tuple[str, Any]:
    """Device and dtype of diffusers' side: what ours computes in on the same machine (runtime/components.py)."""
    import torch

    return ("cuda", torch.bfloat16) if has_cuda else ("cpu", torch.float32)


def compile_modules(pipeline: Any, *, backend: str = "inductor") -> None:
    """What runs at every step, and the decoder, through torch.compile; they compile when they are first called."""
    import torch

    for name in ("unet", "transformer", "transformer_2"):
        if (module := getattr(pipeline, name, None)) is not None:
            module.compile(backend=backend)
    pipeline.vae.decode = torch.compile(pipeline.vae.decode, backend=backend)


def _find_options(pipeline: Any, recipe: Recipe, *, frames: int) -> dict[str, Any]:
    """What only some pipelines take: a negative prompt; frames; FLUX.2's prompt length and the layers that are read."""
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


if __name__ == "__main__":
    found = json.load(sys.stdin)
    run = run_lumesh if found["side"] == "lumesh" else run_diffusers
    figures = run(found, read_recipe(found["recipe"]))
    figures["peak_rss_mb"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024  # kilobytes on Linux
    print(json.dumps(figures))  # noqa: T201 - the result, read by bench.py

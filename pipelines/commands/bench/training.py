"""`bench train`: pictures a second of a training here and of plain diffusers, on the same model, pictures and machine.

Diffusers' side is PyTorch run eagerly under accelerate, as its training scripts are: once with autoencoder and text
encoders in every step, as its script for LoRAs of SDXL has them, and once with latents and embeddings made before, as
its script for all weights has them and as training here does. All sides change the same layers with the same
optimizer, and each is a process of its own, one after the other.
"""

import os
import tempfile
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from PIL import Image
from rich.console import Console
from rich.table import Table

from pipelines.commands import options
from pipelines.commands.bench.compare import SizeOption, check_platforms, find_platforms, write_checkpoint
from pipelines.commands.bench.process import measure
from pipelines.commands.bench.training_runner import ENCODED_BEFORE, EVERY_STEP, FAMILIES, FEWEST, LUMESH, WARM_UP
from pipelines.errors import ModelError, RecipeError
from pipelines.messages import english
from pipelines.models.catalog import Catalog, Model
from pipelines.training.settings import Precision, Remat

RUNNER = "pipelines.commands.bench.training_runner"
PICTURES = 12
COLOURS = ("red", "green", "blue", "white", "yellow", "black")


def run(
    *,
    model: options.ModelId = "demo-sdxl",
    full: Annotated[bool, typer.Option("--full", help="All weights of the denoiser in place of a LoRA.")] = False,
    rank: Annotated[int, typer.Option(min=1, help="Of the LoRA.")] = 16,
    batch: Annotated[int, typer.Option(min=1, help="Pictures a step.")] = 8,
    steps: Annotated[int, typer.Option(min=FEWEST, help=f"In all; the first {WARM_UP} are not counted.")] = 30,
    mixed_precision: Annotated[
        Precision | None, typer.Option(help="What both sides compute in.", show_default="each side's own")
    ] = None,
    remat: Annotated[Remat, typer.Option(help="What Lumesh's side computes twice.")] = "auto",
    size: SizeOption = None,
    as_json: options.AsJson = False,
    data_dir: options.DataDir = options.DATA_DIR,
) -> None:
    """Measures a training's steps beside diffusers' and accelerate's.

    Example: python -m pipelines bench train --model demo-sdxl
    """
    found = _find_model(options.DataDirectory(data_dir=data_dir).catalog, model)
    platforms = find_platforms()
    warning = check_platforms(platforms["lumesh"], platforms["diffusers"])
    load_before = os.getloadavg()[0]
    with tempfile.TemporaryDirectory(prefix="lumesh-bench-") as folder:
        data = write_pictures(Path(folder) / "pictures", side=found.default_shape.width)
        task: dict[str, Any] = {
            "model": found.id,
            "models_dir": str(data_dir / "models"),
            "data": str(data),
            "folder": folder,
            "full": full,
            "rank": rank,
            "batch": batch,
            "steps": steps,
            "mixed_precision": mixed_precision,
            "remat": remat,
        }
        if size is not None:
            task["path"] = str(Path(folder) / "checkpoint")
            write_checkpoint(task["path"], found.id, size, task["models_dir"], platforms)
        sides = (LUMESH, EVERY_STEP, ENCODED_BEFORE)
        results = {side: measure(RUNNER, {**task, "side": side}, what=side) for side in sides}
    loads = (round(load_before, 1), round(os.getloadavg()[0], 1))
    if as_json:
        options.print_json({"task": task, "size": size, "load": loads, "warning": warning, "results": results})
        return
    of_size = f" with random weights, {size} size" if size else ""
    kind = "all weights" if full else f"a LoRA of rank {rank}"
    about = f"{kind}, {batch} pictures a step, load {loads[0]} before and {loads[1]} after"
    _print(results, title=f"{found.id}{of_size}, {about}")
    if warning:
        typer.echo(f"\n{warning}")


def write_pictures(folder: Path, *, side: int, count: int = PICTURES) -> Path:
    """Writes smooth random pictures with captions; what they show does not matter to how long they take."""
    rng = np.random.default_rng(0)
    folder.mkdir(parents=True)
    for number in range(count):
        coarse = Image.fromarray(rng.integers(0, 256, (4, 4, 3), np.uint8))
        coarse.resize((side, side), Image.Resampling.BICUBIC).save(folder / f"{number:02d}.png")
        colour = COLOURS[number % len(COLOURS)]
        (folder / f"{number:02d}.txt").write_text(f"A {colour} sailboat on the ocean, {number}", "utf-8")
    return folder


def _find_model(catalog: Catalog, model_id: str) -> Model:
    try:
        found = catalog.get(model_id)
    except ModelError as error:
        raise RecipeError({"model": error.whole}) from error
    if found.family not in FAMILIES:
        raise RecipeError({"model": english(f"{model_id} is not of {' or '.join(FAMILIES)}, which are compared here")})
    return found


def _print(results: dict[str, dict[str, Any]], *, title: str) -> None:
    table = Table(title=title, box=None, title_justify="left")
    table.add_column("")
    for name in results:
        table.add_column(name, justify="right")
    rows = {
        "precision": "{precision}",
        "process start to first step": "{first_step_s:.1f} s",
        "a step (mean)": "{step_s:.3f} s",
        "of which processor": "{step_cpu_s:.3f} s",
        "pictures a second": "{pictures_per_s:.2f}",
        "weights that learn": "{learnt}",
        "loss (mean)": "{loss:.4f}",
        "peak memory": "{peak_rss_mb:.0f} MB",
    }
    for label, pattern in rows.items():
        table.add_row(label, *(pattern.format(**one) for one in results.values()))
    if all("peak_device_mb" in one for one in results.values()):
        table.add_row("peak memory of the device", *(f"{one['peak_device_mb']:.0f} MB" for one in results.values()))
    Console().print(table)
    for side in (EVERY_STEP, ENCODED_BEFORE):
        ratios = [results[side][name] / results[LUMESH][name] for name in ("step_s", "step_cpu_s")]
        typer.echo(f"\n{ratios[0]:.2f}x the speed of {side}, by processor time {ratios[1]:.2f}x")

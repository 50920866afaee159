"""`bench`: seconds and memory, ours and plain diffusers' on the same weights and machine, each in a process of its own.

Processes take turns rather than run side by side, so that neither slows the other, and each is measured the same way:
load, first picture, then the median of the warm ones.
"""

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from pipelines.commands import options
from pipelines.errors import LumeshError, RecipeError

PROMPT = "A red sailboat on the ocean at sunset"
RUNNER = "pipelines.commands.bench_runner"


def run(
    *,
    model: options.ModelId = "demo-sdxl",
    shape: options.ShapeText = None,
    num_inference_steps: options.Steps = None,
    vs: Annotated[str | None, typer.Option(help="diffusers: PyTorch's own pipeline on the same weights.")] = None,
    pictures: Annotated[int, typer.Option(min=1, help="Warm pictures per side; the median counts.")] = 5,
    mesh: options.MeshText = None,
    as_json: options.AsJson = False,
    data_dir: options.DataDir = options.DATA_DIR,
) -> None:
    """Measures cold start, cached start and warm pictures.

    Example: python -m pipelines bench --vs diffusers
    """
    if vs not in (None, "diffusers"):
        raise RecipeError({"vs": f"{vs!r} is not known; allowed: diffusers"})
    place = options.Place(data_dir=data_dir)
    recipe = options.make_recipe(
        place.catalog,
        {"model": model, "prompt": PROMPT, "seed": 42, "shape": shape, "steps": num_inference_steps},
    )
    task = {"recipe": recipe.to_json(), "pictures": pictures, "mesh": mesh, "models_dir": str(data_dir / "models")}
    results = {}
    with tempfile.TemporaryDirectory() as cache:
        results["lumesh, cold"] = _run_one(task | {"side": "lumesh", "cache_dir": cache})
        results["lumesh, cached"] = _run_one(task | {"side": "lumesh", "cache_dir": cache})
    if vs:
        results["diffusers"] = _run_one(task | {"side": "diffusers"})
    if as_json:
        options.print_json({"recipe": recipe.to_json(), "results": results})
        return
    _print(results, title=f"{model} {recipe.shape}, {recipe.steps} steps, guidance {recipe.guidance_scale}")


def _run_one(task: dict[str, Any]) -> dict[str, float]:
    done = subprocess.run(
        [sys.executable, "-m", RUNNER],
        input=json.dumps(task),
        capture_output=True,
        text=True,
        check=False,
        cwd=Path(__file__).parents[2],
        env=os.environ | {"HF_HUB_DISABLE_PROGRESS_BARS": "1"},
    )
    if done.returncode:
        last = (done.stderr.strip().splitlines() or [f"exit code {done.returncode}"])[-1]
        raise LumeshError(f"The bench of {task['side']} failed: {last}", advice="An exit code of -9 is out of memory.")
    return json.loads(done.stdout.splitlines()[-1])


def _print(results: dict[str, dict[str, float]], *, title: str) -> None:
    table = Table(title=title, box=None, title_justify="left")
    table.add_column("")
    for name in results:
        table.add_column(name, justify="right")
    rows = {
        "process start to first picture": "first_picture_s",
        "of which imports": "import_s",
        "of which load": "load_s",
        "of which compile": "compile_s",
        "warm picture (median)": "warm_s",
        "host time a chunk": "host_ms_per_chunk",
        "peak memory": "peak_rss_mb",
    }
    units = {"_s": "s", "chunk": "ms", "_mb": "MB"}
    for label, field in rows.items():
        unit = next(unit for ending, unit in units.items() if field.endswith(ending))
        table.add_row(label, *(f"{one[field]:.2f} {unit}" if field in one else "-" for one in results.values()))
    Console().print(table)
    if "diffusers" in results:
        ratio = results["diffusers"]["warm_s"] / results["lumesh, cached"]["warm_s"]
        typer.echo(f"\nwarm: {ratio:.2f}x the speed of diffusers")

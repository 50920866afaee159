"""`bench`: seconds and memory, ours and plain diffusers' on the same weights and machine, each in a process of its own.

Diffusers runs as most people run it, eagerly; where there is a GPU, on it, and a second time through torch.compile.
Processes take turns rather than run side by side, so that neither slows the other, and each is measured the same way:
load, first picture, then the median of the warm ones.
"""

import tempfile
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from pipelines.commands import options
from pipelines.commands.bench_process import measure
from pipelines.commands.bench_runner import COMPILED, EAGER
from pipelines.errors import RecipeError
from pipelines.runtime.platform import has_gpu

PROMPT = "A red sailboat on the ocean at sunset"
RUNNER = "pipelines.commands.bench_runner"


def run(
    context: typer.Context,
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
    if context.invoked_subcommand is not None:
        return
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
        results["lumesh, cold"] = measure(RUNNER, task | {"side": "lumesh", "cache_dir": cache}, what="lumesh")
        results["lumesh, cached"] = measure(RUNNER, task | {"side": "lumesh", "cache_dir": cache}, what="lumesh")
    if vs:
        for side in list_diffusers_sides(has_gpu=has_gpu()):
            results[side] = measure(RUNNER, task | {"side": side}, what=side)
    if as_json:
        options.print_json({"recipe": recipe.to_json(), "results": results})
        return
    _print(results, title=f"{model} {recipe.shape}, {recipe.steps} steps, guidance {recipe.guidance_scale}")


def list_diffusers_sides(*, has_gpu: bool) -> list[str]:
    """Compiling pays on a GPU; for a CPU it needs a C++ compiler, and minutes."""
    return [EAGER, COMPILED] if has_gpu else [EAGER]


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
        "peak memory of the device": "peak_device_mb",
    }
    units = {"_s": "s", "chunk": "ms", "_mb": "MB"}
    for label, field in rows.items():
        unit = next(unit for ending, unit in units.items() if field.endswith(ending))
        table.add_row(label, *(f"{one[field]:.2f} {unit}" if field in one else "-" for one in results.values()))
    Console().print(table)
    for side in (EAGER, COMPILED):
        if side in results:
            ratio = results[side]["warm_s"] / results["lumesh, cached"]["warm_s"]
            typer.echo(f"\nwarm: {ratio:.2f}x the speed of {side}")

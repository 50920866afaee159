"""`bench`: time and memory of Lumesh and of plain diffusers, on the same weights and machine in separate processes.

Diffusers runs eagerly, as most people run it; if PyTorch has a GPU, on that, and a second time with torch.compile. Each
component has the same dtype on both sides. Processes run one after the other, so that neither slows the other, and each
is measured the same way: load, first picture, then the median of the warm ones.
"""

import enum
import tempfile
from collections import Counter
from collections.abc import Mapping
from importlib import metadata
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from pipelines.commands import asked, options
from pipelines.commands.bench.compare_runner import COMPILED, EAGER, LUMESH, PLATFORMS
from pipelines.commands.bench.process import measure
from pipelines.errors import LumeshError, RecipeError
from pipelines.messages import english

PROMPT = "A red sailboat on the ocean at sunset"
RUNNER = "pipelines.commands.bench.compare_runner"
CHECKPOINT_RUNNER = "pipelines.commands.bench.checkpoint"
TORCH_INDEX = "https://download.pytorch.org/whl/cu130"


class Size(enum.StrEnum):
    """Sizes of a checkpoint of random weights."""

    MID = "mid"
    FULL = "full"


SizeOption = Annotated[
    Size | None,
    typer.Option(
        help="Random weights in place of the model's, which need not be here: at its full size, or with a quarter of "
        "its layers."
    ),
]


def run(
    context: typer.Context,
    *,
    model: options.ModelId = "demo-sdxl",
    shape: options.ShapeText = None,
    num_inference_steps: options.Steps = None,
    vs: Annotated[str | None, typer.Option(help="diffusers: PyTorch's own pipeline on the same weights.")] = None,
    size: SizeOption = None,
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
        raise RecipeError({"vs": english(f"{vs!r} is not known; allowed: diffusers")})
    place = options.DataDirectory(data_dir=data_dir)
    recipe = asked.make_recipe(
        place.catalog,
        {"model": model, "prompt": PROMPT, "seed": 42, "shape": shape, "steps": num_inference_steps},
    )
    task: dict[str, Any] = {
        "recipe": recipe.to_json(),
        "pictures": pictures,
        "mesh": mesh,
        "models_dir": str(data_dir / "models"),
    }
    platforms = find_platforms() if vs or size else {}
    warning = check_platforms(platforms["lumesh"], platforms["diffusers"]) if vs else ""
    parameters: dict[str, int] = {}
    with tempfile.TemporaryDirectory(prefix="lumesh-bench-") as folder:
        if size is not None:
            task["path"] = str(Path(folder) / "checkpoint")
            parameters = write_checkpoint(task["path"], model, size, task["models_dir"], platforms)
        results = _measure_sides(task, cache_dir=Path(folder) / "cache", sides=_choose_sides(vs, platforms))
    if as_json:
        options.print_json(
            {"recipe": recipe.to_json(), "size": size, "parameters": parameters, "warning": warning, "results": results}
        )
        return
    of_size = f" with {sum(parameters.values()) / 1e9:.2f} billion random weights" if size else ""
    _print(results, title=f"{model}{of_size}, {recipe.shape}, {recipe.steps} steps, guidance {recipe.guidance_scale}")
    if warning:
        typer.echo(f"\n{warning}")


def find_platforms() -> dict[str, str]:
    """Returns where Lumesh and diffusers would compute, each: cpu, gpu or tpu."""
    return measure(RUNNER, {"side": PLATFORMS}, what="devices")


def write_checkpoint(
    folder: str, model_id: str, size: Size, models_dir: str, platforms: Mapping[str, str]
) -> dict[str, int]:
    """Writes random weights into `folder` and returns component -> number of parameters."""
    task = {
        "model": model_id,
        "models_dir": models_dir,
        "folder": folder,
        "is_cut": size is Size.MID,
        "on_gpu": platforms["lumesh"] == "gpu",
    }
    return measure(CHECKPOINT_RUNNER, task, what="random weights")


def _choose_sides(vs: str | None, platforms: Mapping[str, str]) -> list[str]:
    return list_diffusers_sides(has_gpu=platforms["diffusers"] == "gpu") if vs else []


def list_diffusers_sides(*, has_gpu: bool) -> list[str]:
    """Lists diffusers' variants; torch.compile only with a GPU, as on a CPU it takes a C++ compiler and minutes."""
    return [EAGER, COMPILED] if has_gpu else [EAGER]


def check_platforms(ours: str, theirs: str) -> str:
    """Returns a note if the sides use different kinds of device; raises LumeshError if installing a package helps."""
    if ours == theirs:
        return ""
    if theirs == "gpu":
        raise LumeshError(
            english(f"PyTorch would compute on the GPU, but JAX on the {ours.upper()}."),
            advice=english(
                f'Install JAX\'s CUDA build, pip install "jax[cuda13]=={metadata.version("jax")}" (cuda12 for a '
                "driver older than 580), and leave JAX_PLATFORMS unset; or measure without GPU: CUDA_VISIBLE_DEVICES= ."
            ),
        )
    if ours == "gpu":
        release = metadata.version("torch").partition("+")[0]
        raise LumeshError(
            english("JAX would compute on the GPU, but PyTorch on the CPU."),
            advice=english(
                f"Install PyTorch's CUDA build, pip install torch=={release} --index-url {TORCH_INDEX}, "
                "or measure without GPU: CUDA_VISIBLE_DEVICES= ."
            ),
        )
    return f"Lumesh computed on the {ours.upper()}, diffusers on the {theirs.upper()}: two machines are compared."


def _measure_sides(task: Mapping[str, Any], *, cache_dir: Path, sides: list[str]) -> dict[str, dict[str, Any]]:
    """Measures Lumesh twice, the second time with the programs that the first run compiled, and then these `sides`."""
    own = {**task, "side": LUMESH, "cache_dir": str(cache_dir)}
    results = {f"lumesh, {start}": measure(RUNNER, own, what="lumesh") for start in ("cold", "cached")}
    dtypes = results["lumesh, cached"]["dtypes"]
    return results | {side: measure(RUNNER, {**task, "side": side, "dtypes": dtypes}, what=side) for side in sides}


def describe_dtypes(dtypes: Mapping[str, str]) -> str:
    """Formats dtypes as `bfloat16, vae float32`: the one of most components, then the others."""
    ((main, _),) = Counter(dtypes.values()).most_common(1)
    return ", ".join([main, *(f"{name} {dtype}" for name, dtype in dtypes.items() if dtype != main)])


def _print(results: dict[str, dict[str, Any]], *, title: str) -> None:
    table = Table(title=title, box=None, title_justify="left")
    table.add_column("")
    for name in results:
        table.add_column(name, justify="right")
    table.add_row("device", *(one["device"] for one in results.values()))
    table.add_row("precision", *(describe_dtypes(one["dtypes"]) for one in results.values()))
    rows = {
        "process start to first picture": "first_picture_s",
        "of which imports": "import_s",
        "of which load": "load_s",
        "of which compile": "compile_s",
        "warm picture (median)": "warm_s",
        "of which its prompt, at least": "encode_ms",
        "host time a chunk": "host_ms_per_chunk",
        "peak memory": "peak_rss_mb",
        "peak memory of the device": "peak_device_mb",
    }
    units = {"_s": "s", "_ms": "ms", "chunk": "ms", "_mb": "MB"}
    for label, field in rows.items():
        unit = next(unit for ending, unit in units.items() if field.endswith(ending))
        table.add_row(label, *(f"{one[field]:.2f} {unit}" if field in one else "-" for one in results.values()))
    Console().print(table)
    for side in (EAGER, COMPILED):
        if side in results:
            ratio = results[side]["warm_s"] / results["lumesh, cached"]["warm_s"]
            typer.echo(f"\nwarm: {ratio:.2f}x the speed of {side}")

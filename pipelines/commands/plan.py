"""`plan`: what a model would need and take on a TPU, from the TPU compiler itself, on a machine without one."""

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from pipelines.catalog import Model, Shape
from pipelines.commands import options
from pipelines.commands.progress import LineProgress, TerminalProgress
from pipelines.errors import ModelError, RecipeError

Topology = Annotated[str, typer.Option(help="v4-8, v5e-1/4/8, v5p-8, v6e-1/4/8, or cpu-1/8.")]
Mode = Annotated[
    str, typer.Option(help="latency: one output on all chips. throughput: as many at once as there is room.")
]
DumpHlo = Annotated[
    Path | None, typer.Option("--dump-hlo", help="Write each stage's optimized HLO there, as MODEL_STAGE.hlo.")
]

AllModels = Annotated[bool, typer.Option("--all", help="Every model of the catalogue, each in its default shape.")]
Search = Annotated[
    str | None, typer.Option(help="attention: instead of a plan, how well the kernel's tiles fill the matrix units.")
]
ProgressJson = Annotated[bool, typer.Option("--progress-json", help="Progress for scripts: one JSON object a line.")]
Output = Annotated[Path | None, typer.Option(help="Also write the tables there, as one Markdown page.")]


def plan(
    *,
    model: options.ModelId = "demo-sdxl",
    topology: Topology = "v6e-8",
    shape: options.ShapeText = None,
    mode: Mode = "latency",
    mesh: options.MeshText = None,
    dump_hlo: DumpHlo = None,
    all_models: AllModels = False,
    search: Search = None,
    output: Output = None,
    as_json: options.AsJson = False,
    progress_json: ProgressJson = False,
    data_dir: options.DataDir = options.DATA_DIR,
) -> None:
    """Compiles every stage for chips that are not here: does it fit, how long would it take. Needs no weights.

    Example: python -m pipelines plan --model flux2-dev --topology v6e-8

    The first time a large model takes minutes; the answers are kept in the data directory.
    """
    from pipelines.plan.topologies import find_topology

    if search is not None:
        if all_models or shape or mesh or dump_hlo or output:
            raise RecipeError({"search": "goes with --json alone: it measures the kernel, not a model"})
        _search(search, as_json=as_json)
        return
    if output is not None and not output.parent.is_dir():
        raise RecipeError({"output": f"{output.parent} is not a folder"})
    place = options.Place(data_dir=data_dir)
    found = find_topology(topology)
    models = place.catalog.models if all_models else (_find_model(place, model),)
    if all_models and shape is not None:
        raise RecipeError({"shape": "--all takes every model in its default shape"})
    shapes = [_find_shape(one, shape) for one in models]
    if mode not in ("latency", "throughput"):
        raise RecipeError({"mode": f"{mode!r} is not known; allowed: latency, throughput"})
    from pipelines.runtime.platform import prepare_compiler

    prepare_compiler(cpu_devices=found.chips)
    from pipelines.plan.matrix import write_matrix
    from pipelines.plan.planner import make_plan, to_json
    from pipelines.plan.report import print_plan

    plans = []
    for one, size in zip(models, shapes, strict=True):
        with LineProgress() if progress_json else TerminalProgress(is_silent=as_json) as progress:
            made = make_plan(
                one,
                found,
                shape=size,
                mode=mode,
                mesh=mesh,
                cache_dir=place.plan_cache_dir,
                on_progress=progress,
                dump_dir=dump_hlo,
            )
        plans.append(made)
        if output is not None:  # after each, so that what took minutes is not lost with what comes after
            command = f"python -m pipelines plan {'--all' if all_models else f'--model {model}'} --topology {topology}"
            output.write_text(write_matrix(plans, command=command), "utf-8")
        if not as_json:
            print_plan(made, Console())
    if as_json:
        options.print_json([to_json(made) for made in plans] if all_models else to_json(plans[0]))


def _search(what: str, *, as_json: bool) -> None:
    """Heads of 128 features, as Wan's and FLUX.2's, and pairs of 64, as SDXL's."""
    if what != "attention":
        raise RecipeError({"search": f"{what!r} is not known; allowed: attention"})
    from pipelines.plan.schedule import TOPOLOGY, search

    found = []
    for heads, width in ((1, 128), (2, 64)):
        for busy in search(heads=heads, width=width):
            found.append({"width": width, **asdict(busy)})
            if not as_json:
                tiles = f"{busy.tiles.queries} queries, {busy.tiles.keys} keys, {busy.tiles.step} a step"
                Console().print(f"{TOPOLOGY}, heads of {width}: {tiles}: {busy.utilisation:.1%} of the peak")
    if as_json:
        options.print_json(found)


def _find_model(place: options.Place, model_id: str) -> Model:
    try:
        return place.catalog.get(model_id)
    except ModelError as error:
        raise RecipeError({"model": str(error)}) from error


def _find_shape(model: Model, text: str | None) -> Shape:
    if text is None:
        return model.default_shape
    if text not in map(str, model.shapes):
        raise RecipeError({"shape": f"{text} is not a shape of {model.id}; allowed: {model.shape_list()}"})
    return Shape.parse(text)

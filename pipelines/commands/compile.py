"""`compile`: compiles a model's programs for a machine that need not be here, into one file that its worker loads."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from pipelines.commands import asked, options
from pipelines.commands.problems import Problems
from pipelines.commands.progress import TerminalProgress
from pipelines.errors import ModelError, RecipeError
from pipelines.messages import english
from pipelines.models.catalog import Model, Shape
from pipelines.models.model import FULL
from pipelines.pictures.references import References, choose_programs

if TYPE_CHECKING:
    from pipelines.runtime.programs.aot_packs import Manifest

Topology = Annotated[
    str, typer.Option(callback=options.read_topology, help="v4-8, v5e-1/4/8, v5p-8, v6e-1/4/8, v7x-8, or cpu-1/8.")
]
Shapes = Annotated[
    list[str] | None,
    typer.Option(
        "--shape",
        help="Give it again for more, or all; 512x512+1 is with one input picture as large, for FLUX.2.",
        show_default="the model's default shape",
    ),
]
BatchSize = Annotated[int, typer.Option(min=1, help="Outputs at once.")]
Train = Annotated[
    bool, typer.Option("--train", help="A training's steps: options are those of train; compile --train --help.")
]
Output = Annotated[
    Path | None, typer.Option(help="The pack to write.", show_default="packs/MODEL-TOPOLOGY.pack in the data directory")
]


def compile_programs(
    *,
    model: options.ModelId,
    topology: Topology,
    shape: Shapes = None,
    batch_size: BatchSize = 1,
    train: Train = False,  # noqa: ARG001 - __main__.py has seen it, and called compile_training.py
    mesh: options.MeshText = None,
    weights: options.Weights = None,
    output: Output = None,
    kernels: options.Kernels = None,  # noqa: ARG001 - its callback has chosen
    as_json: options.AsJson = False,
    data_dir: options.DataDir = options.DATA_DIR,
) -> None:
    """Compiles a model's programs for a machine that need not be here, into a file that its worker loads.

    Example: python -m pipelines compile --model flux2-dev --topology v6e-8 --output flux2-dev.pack

    Example: python -m pipelines compile --train flux2-klein-4b --lora --topology v6e-8

    Needs neither a TPU nor weights. The worker finds the file in packs/ of its data directory, or through --pack, and
    uses it where jax, libtpu, chips, mesh and program are exactly the same. A pack is code: use only those you trust.
    """
    from pipelines.plan.topologies import find_topology

    place = options.DataDirectory(data_dir=data_dir)
    problems = Problems()
    target = problems.attempt(lambda: find_topology(topology))
    found = problems.attempt(lambda: asked.choose_weights(_find_model(place, model), weights))
    shapes = None
    if found is not None:
        shapes = problems.attempt(lambda: _find_shapes(found, shape or [str(found.default_shape)]))
        if batch_size > found.max_batch_size:
            problems.add("batch_size", english(f"{model} makes at most {found.max_batch_size} at once"))
    if output is not None:
        problems.attempt(lambda: check_output(output))
    problems.tell()
    assert target is not None and found is not None and shapes is not None
    name = f"{model}-{topology}" if found.weights == FULL else f"{model}-{found.weights}-{topology}"
    file = output or place.packs_dir / f"{name}.pack"
    check_output(file)
    tell_replaced(file)
    from pipelines.runtime.devices.platform import prepare_compiler

    prepare_compiler(cpu_devices=target.devices)
    from pipelines.plan.packing import make_pack

    with TerminalProgress(is_silent=as_json) as progress:
        manifest = make_pack(
            found, target, shapes=shapes, batch_size=batch_size, mesh=mesh, file=file, on_progress=progress
        )
    what = f"{len(manifest.programs)} programs of {model} ({', '.join(manifest.shapes)})"
    tell_pack(manifest, file, what, as_json=as_json)


def tell_pack(manifest: "Manifest", file: Path, what: str, *, as_json: bool, also: str = "") -> None:
    """Says what is in a pack that was written: the file on stdout, `what` it holds on stderr; or all of it as JSON."""
    if as_json:
        facts = manifest.model_dump(mode="json", exclude={"programs"})
        names = [entry.name for entry in manifest.programs]
        options.print_json({"output": str(file), "bytes": file.stat().st_size, "programs": names, **facts})
        return
    typer.echo(file)
    typer.echo(
        f"{what} for {manifest.target.devices}, mesh {manifest.target.mesh}{also}: {file.stat().st_size / 1e6:.1f} MB, "
        f"compiled in {manifest.compile_s:.1f} s",
        err=True,
    )


def tell_replaced(file: Path) -> None:
    """Says that a pack of this name is there, whose place the new one will take."""
    if file.exists():
        text = f"{file.name} will take the place of the pack that is there; --output names another"
        typer.echo(f"lumesh: {text}", err=True)


def check_output(file: Path) -> None:
    """Refuses an unusable output file before anything is compiled, which takes minutes; raises RecipeError."""
    if file.is_dir():
        raise RecipeError({"output": english(f"{file} is a folder; name a file in it")})
    if file.suffix != ".pack":
        raise RecipeError({"output": english(f"{file} should end in .pack, which is what workers look for")})
    options.make_folder("output", file.parent)


def _find_model(place: options.DataDirectory, model_id: str) -> Model:
    try:
        return place.catalog.get(model_id)
    except ModelError as error:
        raise RecipeError({"model": error.whole}) from error


def _find_shapes(model: Model, entries: list[str]) -> list[tuple[Shape, References | None]]:
    found = []
    for entry in entries:
        name, plus, pictures = entry.partition("+")
        chosen = choose_programs([entry], model) if not plus or pictures.isdecimal() else []
        if not chosen:
            what = f"{name} with input pictures" if plus else name
            raise RecipeError(
                {"shape": english(f"{what} is not a shape of {model.id}; allowed: {model.shape_list()}, all")}
            )
        found += [one for one in chosen if one not in found]
    return found

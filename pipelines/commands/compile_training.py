"""`compile --train`: compiles a training's steps ahead, so that `train` with the same options compiles none.

Options are those of `train`; of its data only the sizes of the pictures matter. Hidden behind `compile` (__main__.py).
"""

import inspect
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer

from pipelines.commands import options, train
from pipelines.commands.compile import check_output, tell_pack, tell_replaced
from pipelines.commands.problems import Problems
from pipelines.commands.progress import TerminalProgress
from pipelines.messages import english
from pipelines.models.catalog import Model, Shape
from pipelines.plan.topologies import find_topology
from pipelines.stages import Progress
from pipelines.training.first_lora import find_first_lora, take_rank
from pipelines.training.settings import TrainingSettings, read_name, read_settings
from pipelines.training.sizes import choose_size, find_multiple, find_size_problem, parse_size

_UNUSED = ("coordinator", "processes", "process", "check", "allow_cpu", "pack")


def compile_training(
    model: str | None,
    *,
    topology: str,
    shape: list[str] | None,
    config: Path | None,
    name: str | None,
    as_json: bool,
    data_dir: Path,
    output: Path | None,
    kernels: str | None,  # noqa: ARG001 - its callback has chosen
    **given: Any,
) -> None:
    """Compiles a training's steps for a machine that need not be here, into a file that `train` loads.

    Example: python -m pipelines compile --train sdxl-base --lora --data ./corgi --topology v6e-8

    Takes the options of `train`: the steps are the same only if all that they compute is. --data gives the sizes of the
    pictures and how many a step has; without it, --shape and --global_batch_size do.
    """
    place = options.DataDirectory(data_dir=data_dir)
    problems = Problems()
    machine = problems.attempt(lambda: find_topology(topology, trains=True))
    settings = problems.attempt(lambda: read_settings({"model": model, **given}, config, needs_data=False))
    name = name if name is not None else problems.attempt(lambda: read_name(config))
    text, revision = (settings.model, settings.revision) if settings is not None else (model, None)
    found = problems.attempt(lambda: train.find_model(place.catalog, text, revision=revision)) if text else None
    if shape and settings is not None and settings.data:
        problems.add("shape", english("sizes are those of the data; leave one of the two out"))
    if output is not None:
        problems.attempt(lambda: check_output(output))
    if settings is not None and found is not None:
        settings = take_rank(settings, found)
        problems.attempt(lambda: find_first_lora(settings, found))
    problems.tell()
    assert machine is not None and settings is not None and found is not None
    start = found.choose_start(revision=settings.revision, variant=settings.variant)
    file = output or place.packs_dir / f"train-{found.id}-{settings.kind}-{topology}.pack"
    check_output(file)
    tell_replaced(file)
    from pipelines.runtime.devices.platform import prepare_compiler

    prepare_compiler(cpu_devices=machine.devices)  # before jax is imported
    from pipelines.plan.topologies import find_devices
    from pipelines.runtime.devices.mesh import build_mesh
    from pipelines.training.packing import make_pack

    mesh = build_mesh(settings.mesh or f"dp={machine.devices}", devices=find_devices(machine))
    shapes, batch_size = _find_sizes(settings, found, shape, devices=mesh.shape["dp"], name=name)
    with TerminalProgress(is_silent=as_json) as progress:
        manifest = make_pack(
            settings, start, mesh, shapes=shapes, batch_size=batch_size,
            limit_bytes=machine.chip.hbm_bytes if machine.chip else None,
            device_count=machine.devices, topology=machine.name, file=file,
            on_compile=lambda shape, way: progress(
                Progress(phase="compiling", total=len(shapes), detail=f"{shape}, remat {way.remat}")
            ),
            on_refusal=lambda way, _next: typer.echo(
                f"lumesh: does not fit with --remat {way.remat} in {way.accumulate} parts", err=True
            ),
        )  # fmt: skip
    what = f"{', '.join(entry.name for entry in manifest.programs)} of {found.id}"
    tell_pack(manifest, file, what, as_json=as_json, also=f", {batch_size} pictures a step")


def _find_sizes(
    settings: TrainingSettings, model: Model, asked: list[str] | None, *, devices: int, name: str | None
) -> tuple[list[Shape], int]:
    """Returns the shapes, and the pictures a step: of the data, or as asked, or the model's default shape."""
    from pipelines import registry
    from pipelines.training.batch_size import choose_batch
    from pipelines.training.checks import check_first_lora, check_training
    from pipelines.training.refusals import find_strange

    if settings.data:
        spread = settings.model_copy(update={"mesh": f"dp={devices}"})
        checked = check_training(spread, model, registry.find_learner(model), name=name)
        return [Shape.parse(size) for size in checked.buckets], checked.batch_size
    problems = Problems()
    batch_size = choose_batch(settings, 0, devices)
    if batch_size % (devices * settings.accumulate):
        wanted = f"{devices} devices times {settings.accumulate} parts"
        problems.add("global_batch_size", english(f"{batch_size} is no multiple of {wanted}"))
    learner = registry.find_learner(model)
    for field, problem in find_strange(settings, model, learner).items():
        problems.add(field, problem)
    problems.attempt(lambda: check_first_lora(settings, model, learner))
    multiple = find_multiple(model, learner)
    chosen = choose_size(settings, model, ask_multiple=lambda: multiple)
    if not asked and chosen not in model.shapes and (problem := find_size_problem(chosen, model, multiple=multiple)):
        problems.add("resolution", problem)
    shapes: list[Shape] = []
    for text in asked or []:
        shape = problems.attempt(lambda text=text: _parse(text, settings, model))
        if shape is not None and (problem := find_size_problem(shape, model, multiple=multiple)):
            problems.add("shape", problem)
        elif shape is not None:
            shapes.append(shape)
    problems.tell()
    return [*dict.fromkeys(shapes)] or [chosen], batch_size


def _parse(text: str, settings: TrainingSettings, model: Model) -> Shape:
    shape = parse_size(text, model)
    return replace(shape, frames=settings.frames) if settings.frames is not None else shape


def build_command() -> Any:
    """Returns the command with `train`'s options, as typer reads functions."""
    trains = inspect.signature(train.build_command()).parameters
    own: dict[str, Any] = {
        "topology": Annotated[
            str, typer.Option(callback=options.read_topology, help="As of `plan --train`, such as v6e-8, or cpu-1/8.")
        ],
        "shape": Annotated[
            list[str] | None,
            typer.Option(help="Without --data; give it again for more.", show_default="the model's default shape"),
        ],
        "output": Annotated[
            Path | None,
            typer.Option(
                help="The pack to write.",
                show_default="packs/train-MODEL-lora-TOPOLOGY.pack, or -full-, in the data directory",
            ),
        ],
    }
    parameters = [one for title, one in trains.items() if title not in (*_UNUSED, *own)]
    parameters += [
        inspect.Parameter(
            title, inspect.Parameter.KEYWORD_ONLY, annotation=kind,
            default=inspect.Parameter.empty if title == "topology" else None,
        )
        for title, kind in own.items()
    ]  # fmt: skip

    def command(**given: Any) -> None:
        compile_training(given.pop("model"), **given)

    return train.declare(command, parameters, compile_training.__doc__)

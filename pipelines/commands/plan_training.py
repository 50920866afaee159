"""`plan --train`: memory, time and money of a training on chips that are not here, by the real TPU compiler.

pipelines.training builds the step, pipelines.plan compiles and estimates it; they meet here alone.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_args

import typer
from rich.console import Console

from pipelines.commands import options
from pipelines.commands.progress import TerminalProgress
from pipelines.errors import LumeshError, ModelError, RecipeError
from pipelines.messages import english, say
from pipelines.models.catalog import Catalog, Model, Shape
from pipelines.plan.topologies import find_topology
from pipelines.runtime.devices.platform import prepare_compiler
from pipelines.stages import Progress
from pipelines.training.settings import DEFAULT_STEPS, Remat, TrainingSettings


@dataclass(frozen=True, kw_only=True)
class Asked:
    """What `plan --train` was asked; None is a default."""

    model: str
    topology: str
    shape: str | None
    lora: bool
    full: bool
    batch: int | None
    rank: int | None
    accumulate: int
    remat: str
    steps: int | None
    chip_price: float | None
    again: bool
    answers: Path | None
    as_json: bool


def plan_training(asked: Asked, place: options.DataDirectory) -> None:
    """Prints the plan; raises RecipeError for what cannot be planned, and CompilerError."""
    machine = find_topology(asked.topology, trains=True)
    prepare_compiler(cpu_devices=machine.devices)  # before jax is imported
    from pipelines.plan import training

    model = _find_model(place.catalog, asked.model)
    settings = _make_settings(asked)
    batch_size = asked.batch or machine.devices
    if batch_size % (machine.devices * asked.accumulate):
        wanted = f"{machine.devices} chips times {asked.accumulate} parts"
        raise RecipeError({"batch": english(f"{batch_size} pictures are not a multiple of {wanted}")})
    question = training.TrainingQuestion(
        model=model.id,
        kind=settings.kind,
        topology=machine.name,
        shape=str(_find_shape(model, asked.shape)),
        batch_size=batch_size,
        rank=settings.rank if settings.lora else 0,
        accumulate=asked.accumulate,
        remat=asked.remat,
    )
    answer = _answer(question, model, asked, place)
    price = asked.chip_price if asked.chip_price is not None else machine.chip.hourly_price if machine.chip else 0.0
    steps = asked.steps or DEFAULT_STEPS[settings.kind]
    if asked.as_json:
        options.print_json(training.to_json(answer, machine, steps=steps, chip_price=price))
        return
    for line in training.describe(answer, machine, steps=steps, chip_price=price):
        Console().print(str(line), soft_wrap=True, markup=False, highlight=False)


def plan_page(asked: Asked, place: options.DataDirectory, *, models: Sequence[str] | None, output: Path | None) -> None:
    """Answers what the page of trainings asks of these models (None for all), and writes the page after each answer.

    A training that does not compile is told and left out.
    """
    prepare_compiler(cpu_devices=1)
    from pipelines.plan.training_matrix import list_trainings, write_page

    for question in list_trainings():
        model = next((model for model in place.catalog.models if model.id == question.model), None)
        if model is None or (models is not None and question.model not in models):
            continue
        try:
            _answer(question, model, asked, place)
        except LumeshError as error:
            typer.echo(f"{question.model}, {question.kind}, {question.topology}: {error.whole}", err=True)
        if output is not None and asked.answers is not None:
            words = f"--answers {asked.answers} --output {output}"
            page = write_page(asked.answers, command=f"python -m pipelines plan --train --matrix {words}")
            output.write_text(page, "utf-8")


def _answer(question: Any, model: Model, asked: Asked, place: options.DataDirectory) -> Any:
    """Returns the kept answer, or compiles and keeps it."""
    from pipelines.plan import training

    own_file = place.plan_cache_dir / "training.jsonl"
    files = (asked.answers,) if asked.answers is not None else (own_file, training.SHIPPED)
    kept = (training.find(file, question) for file in files)
    answer = None if asked.again else next((found for found in kept if found is not None), None)
    if answer is None:
        answer = _compile(question, model, place, is_silent=asked.as_json)
        training.keep(files[0], answer)
    return answer


def _compile(question: Any, model: Model, place: options.DataDirectory, *, is_silent: bool) -> Any:
    machine = find_topology(question.topology, trains=True)
    from pipelines.plan import training
    from pipelines.plan.compiler import Compiler
    from pipelines.runtime.devices.mesh import describe_mesh
    from pipelines.training.engine.step import list_remats

    with TerminalProgress(is_silent=is_silent) as progress:
        progress(Progress(phase="tracing"))
        step = describe_asked(question, model)
        return training.ask(
            question,
            build=step.program,
            remats=list_remats(question.remat, step.plan),
            topology=machine,
            mesh=describe_mesh(step.plan.mesh),
            learnt=step.learnt,
            weights_bytes=step.weights_bytes,
            compiler=Compiler(machine, cache_dir=place.plan_cache_dir),
            on_compile=lambda remat: progress(Progress(phase="compiling", done=0, total=1, detail=f"train, {remat}")),
        )


def describe_asked(question: Any, model: Model) -> Any:
    """Returns the TrainingStep that a TrainingQuestion is about, on devices that need not be here."""
    from pipelines.plan.topologies import find_devices
    from pipelines.runtime.devices.mesh import build_mesh
    from pipelines.training.planning import describe_step

    machine = find_topology(question.topology, trains=True)
    settings = TrainingSettings(
        model=model.id,
        lora=question.kind == "lora",
        full=question.kind == "full",
        accumulate=question.accumulate,
        **({"rank": question.rank} if question.rank else {}),
    )
    mesh = build_mesh(f"dp={machine.devices}", devices=find_devices(machine))
    return describe_step(
        settings, model, mesh, shape=Shape.parse(question.shape), batch_size=question.batch_size,
        limit_bytes=machine.chip.hbm_bytes if machine.chip else None,
    )  # fmt: skip


def _make_settings(asked: Asked) -> TrainingSettings:
    if asked.lora and asked.full:
        raise RecipeError({"lora": say("choose one: a LoRA, or full for all weights")})
    if asked.full and asked.rank is not None:
        raise RecipeError({"rank": say("is of a LoRA; leave it out with full")})
    allowed = get_args(Remat)
    if asked.remat not in allowed:
        raise RecipeError({"remat": english(f"{asked.remat!r} is not known; allowed: {', '.join(allowed)}")})
    fields: dict[str, Any] = {"model": asked.model, "full": asked.full, "lora": not asked.full}
    if asked.rank is not None:
        fields["rank"] = asked.rank
    return TrainingSettings(**fields, accumulate=asked.accumulate)


def _find_model(catalog: Catalog, model_id: str) -> Model:
    try:
        return catalog.get(model_id)
    except ModelError as error:
        raise RecipeError({"model": error.whole}) from error


def _find_shape(model: Model, text: str | None) -> Shape:
    if text is None:
        return model.default_shape
    try:
        return Shape.parse(text)
    except ValueError as error:
        raise RecipeError({"shape": english(f"{text} is no size, such as {model.default_shape}")}) from error


Train = typer.Option("--train", help="A training's step in place of a model's stages.")
Lora = typer.Option("--lora", help="With --train: a LoRA; the default.")
Full = typer.Option("--full", help="With --train: all weights of the denoiser.")
Batch = typer.Option(min=1, max=65_536, help="With --train: pictures a step on all chips; one a chip if left out.")
Rank = typer.Option(min=1, max=1024, help="With --train: the LoRA's.", show_default="16")
Accumulate = typer.Option(min=1, max=1024, help="With --train: parts of a batch that are computed one by one.")
RematOption = typer.Option(
    help="With --train: auto, none, layers, narrow, attention or full: what is computed twice to save memory."
)
Steps = typer.Option(
    min=1, help="With --train: how many, for hours and dollars.", show_default="800, or 2000 with full"
)
ChipPrice = typer.Option(min=0, help="With --train: US dollars for a chip and an hour.", show_default="a list price")
Again = typer.Option("--again", help="With --train: compile, whatever is known.")

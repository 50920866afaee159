"""`plan --train`: memory, time and money of a training on chips that are not here, by the real TPU compiler.

pipelines.training builds the step, pipelines.plan compiles and estimates it; they meet here alone. What is known is
answered without jax.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import typer
from rich.console import Console

from pipelines.commands import options
from pipelines.commands.known_plans import find_kept, fingerprint, make_question, name_own_file
from pipelines.commands.problems import Problems
from pipelines.commands.progress import TerminalProgress
from pipelines.commands.train import find_model
from pipelines.errors import LumeshError, RecipeError
from pipelines.messages import Message, english, join
from pipelines.models.catalog import Model, Shape
from pipelines.plan import training, training_report
from pipelines.plan.topologies import Topology, find_topology
from pipelines.runtime.devices.platform import prepare_compiler
from pipelines.stages import Progress
from pipelines.training.first_lora import find_first_lora, take_rank
from pipelines.training.settings import DEFAULT_STEPS, TrainingSettings, read_settings
from pipelines.training.sizes import choose_size, find_multiple, find_size_problem, parse_size


@dataclass(frozen=True, kw_only=True)
class Asked:
    """What `plan --train` was asked; None is a default. `given` are fields of TrainingSettings."""

    model: str | None
    topology: str
    shape: str | None
    given: Mapping[str, Any]
    config: Path | None
    chip_price: float | None
    again: bool
    answers: Path | None
    as_json: bool


@dataclass(frozen=True, kw_only=True)
class _Checked:
    """A training that can be planned."""

    question: training.TrainingQuestion
    settings: TrainingSettings
    model: Model
    machine: Topology


def plan_training(asked: Asked, place: options.DataDirectory) -> None:
    """Prints the plan; raises RecipeError for what cannot be planned, and CompilerError."""
    checked = _check(asked, place)
    answer = _answer(checked.question, checked.model, asked, place)
    steps = checked.settings.steps or DEFAULT_STEPS[checked.settings.kind]
    if asked.as_json:
        options.print_json(_to_json(answer, checked.machine, asked, steps=steps))
        return
    _print(answer, checked.machine, asked, steps=steps)


def plan_page(asked: Asked, place: options.DataDirectory, *, models: Sequence[str] | None, output: Path | None) -> None:
    """Answers what the page of trainings asks of these models (None for all), and writes the page after each answer.

    A training that does not compile is left out, and told at the end.
    """
    from pipelines.plan.training_matrix import STEPS, list_trainings, write_page

    questions = [one for one in list_trainings() if models is None or one.model in models]
    if not questions:
        raise RecipeError({"model": english(f"the page has no training of {', '.join(models or ())}")})
    found: list[dict[str, Any]] = []
    failures: list[Message] = []
    for question in questions:
        model = next((model for model in place.catalog.models if model.id == question.model), None)
        if model is None:
            failures.append(english(f"{question.model} is not in the catalogue."))
            continue
        machine = find_topology(question.topology, trains=True)
        try:
            answer = _answer(question, model, asked, place)
        except LumeshError as error:
            failures.append(english(f"{question.model}, {question.kind}, {question.topology}: {error.whole}"))
            continue
        found.append(_to_json(answer, machine, asked, steps=STEPS))
        if not asked.as_json:
            _print(answer, machine, asked, steps=STEPS)
        if output is not None and asked.answers is not None:
            words = f"--answers {asked.answers} --output {output}"
            page = write_page(asked.answers, command=f"python -m pipelines plan --train --matrix {words}")
            output.write_text(page, "utf-8")
    if asked.as_json:
        options.print_json(found)
    if failures:
        raise LumeshError(join(failures))


def _print(answer: training.TrainingAnswer, machine: Topology, asked: Asked, *, steps: int) -> None:
    for line in training_report.describe(answer, machine, steps=steps, chip_price=_find_price(asked, machine)):
        Console().print(str(line), soft_wrap=True, markup=False, highlight=False)


def _to_json(answer: training.TrainingAnswer, machine: Topology, asked: Asked, *, steps: int) -> dict[str, Any]:
    return training_report.to_json(answer, machine, steps=steps, chip_price=_find_price(asked, machine))


def _find_price(asked: Asked, machine: Topology) -> float | None:
    if asked.chip_price is not None:
        return asked.chip_price
    return machine.chip.hourly_price if machine.chip else None


def _check(asked: Asked, place: options.DataDirectory) -> _Checked:
    """Returns what is to be planned; raises RecipeError with a message for everything that is wrong."""
    problems = Problems()
    machine = problems.attempt(lambda: find_topology(asked.topology, trains=True))
    settings = problems.attempt(lambda: _read_settings(asked))
    text = settings.model if settings is not None else asked.model
    revision = settings.revision if settings is not None else None
    model = problems.attempt(lambda: find_model(place.catalog, text, revision=revision)) if text is not None else None
    shape = _find_shape(asked, settings, model, machine, problems) if model is not None else None
    batch_size = None
    if settings is not None and machine is not None:
        batch_size = _choose_batch(settings, machine, problems)
    if asked.chip_price is not None and not math.isfinite(asked.chip_price):
        problems.add("chip_price", english(f"{asked.chip_price} is no price"))
    if settings is not None and model is not None:
        settings = take_rank(settings, model)
        problems.attempt(lambda: find_first_lora(settings, model))
    problems.tell()
    assert settings is not None and machine is not None and model is not None and shape is not None
    assert batch_size is not None
    question = make_question(settings, model, machine, shape=shape, batch_size=batch_size)
    return _Checked(question=question, settings=settings, model=model, machine=machine)


def _read_settings(asked: Asked) -> TrainingSettings:
    """Returns the settings of the options and of a file; a LoRA where neither says what learns."""
    given = {"model": asked.model, **asked.given}
    if asked.given.get("preserve"):
        given["trigger"] = "-"  # which word it is changes nothing
    if asked.config is None:
        given["lora"] = asked.given.get("lora") or not asked.given.get("full")
    settings = read_settings(given, asked.config, needs_data=False)
    problems = Problems()
    if settings.epochs is not None:
        problems.add("epochs", english("there are no pictures here to count; say --steps"))
    if settings.mesh is not None:
        problems.add("mesh", english("a plan is for all devices of the topology, each with pictures of its own"))
    problems.tell()
    return settings


def _find_shape(
    asked: Asked,
    settings: TrainingSettings | None,
    model: Model,
    machine: Topology | None,
    problems: Problems,
) -> Shape | None:
    """Returns the size to plan for: as asked, or of the settings' resolution and frames, or the model's default."""

    def ask_multiple() -> int:
        # Only a family's code for training knows which other sizes it takes, and that imports jax.
        prepare_compiler(cpu_devices=machine.devices if machine is not None else 1)
        from pipelines.registry import find_learner

        return find_multiple(model, find_learner(model))

    shape, name = model.default_shape, "shape"
    if asked.shape is not None:
        text = asked.shape
        shape = problems.attempt(lambda: parse_size(text, model))
        if shape is None:
            return None
    elif settings is not None:
        shape, name = choose_size(settings, model, ask_multiple=ask_multiple), "resolution"
    if shape in model.shapes:
        return shape
    if problem := find_size_problem(shape, model, multiple=ask_multiple()):
        problems.add(name, problem)
        return None
    return shape


def _choose_batch(settings: TrainingSettings, machine: Topology, problems: Problems) -> int:
    unit = machine.devices * settings.accumulate
    if settings.global_batch_size is None:
        return unit
    batch_size = settings.global_batch_size
    if batch_size % unit:
        below, above = batch_size // unit * unit, -(-batch_size // unit) * unit
        near = f"{below} or {above}" if below else str(above)
        devices = f"{machine.devices} {'device' if machine.devices == 1 else 'devices'} of {machine.name}"
        parts = f" times {settings.accumulate} parts" if settings.accumulate > 1 else ""
        problems.add("batch", english(f"{batch_size} is no multiple of {devices}{parts}; take {near}"))
    return batch_size


def _answer(
    question: training.TrainingQuestion, model: Model, asked: Asked, place: options.DataDirectory
) -> training.TrainingAnswer:
    """Returns the kept answer, or compiles and keeps it."""
    made_of = "" if asked.answers is not None else fingerprint(model)
    if asked.answers is not None:
        try:
            kept = training.find(asked.answers, question)
        except (ValueError, KeyError, TypeError) as error:
            text = f"{asked.answers} holds something else than answers of this command"
            raise RecipeError({"answers": english(text)}) from error
    else:
        kept = find_kept(question, model, place)
    if kept is not None and not asked.again:
        return kept
    answer = _compile(question, model, place, made_of=made_of, is_silent=asked.as_json, is_anew=asked.again)
    if asked.answers is not None:
        training.keep(asked.answers, answer)
        return answer
    try:
        training.keep(name_own_file(place), answer)
    except OSError as error:  # what took minutes is told all the same
        typer.echo(f"lumesh: the answer cannot be kept, and would be compiled again: {error}", err=True)
    return answer


def _compile(
    question: training.TrainingQuestion,
    model: Model,
    place: options.DataDirectory,
    *,
    made_of: str,
    is_silent: bool,
    is_anew: bool,
) -> training.TrainingAnswer:
    machine = find_topology(question.topology, trains=True)
    prepare_compiler(cpu_devices=machine.devices)  # before jax is imported
    from pipelines.plan.compiler import Compiler
    from pipelines.runtime.devices.mesh import describe_mesh
    from pipelines.training.engine.step import list_ways
    from pipelines.training.planning import count_rounds

    with TerminalProgress(is_silent=is_silent) as progress:
        progress(Progress(phase="tracing"))
        _check_model(question, model)
        step = describe_asked(question, model)
        is_strict = bool(question.others.get("strict"))
        ways = list_ways(question.remat, step.plan, batch_size=step.rows["weight"].shape[0], is_strict=is_strict)
        return training.ask(
            question,
            training.Described(
                build=step.program,
                ways=[(way.remat, way.accumulate) for way in ways],
                mesh=describe_mesh(step.plan.mesh),
                learnt=step.learnt,
                weights_bytes=step.weights_bytes,
                rounds=count_rounds(_settings_of(question), model),
            ),
            topology=machine,
            compiler=Compiler(machine, cache_dir=place.plan_cache_dir, is_anew=is_anew),
            made_of=made_of,
            on_compile=lambda name: progress(Progress(phase="compiling", done=0, total=1, detail=f"train, {name}")),
        )


def _check_model(question: training.TrainingQuestion, model: Model) -> None:
    """Refuses what a training of this model refuses: raises RecipeError, and ModelError for one that cannot learn."""
    from pipelines.registry import find_learner
    from pipelines.training.refusals import find_strange

    if problems := find_strange(_settings_of(question), model, find_learner(model)):
        raise RecipeError(problems)


def describe_asked(question: training.TrainingQuestion, model: Model) -> Any:
    """Returns the TrainingStep that a question is about, on devices that need not be here."""
    from pipelines.plan.topologies import find_devices
    from pipelines.runtime.devices.mesh import build_mesh
    from pipelines.training.planning import describe_step

    machine = find_topology(question.topology, trains=True)
    mesh = build_mesh(f"dp={machine.devices}", devices=find_devices(machine))
    return describe_step(
        _settings_of(question), model, mesh, shape=Shape.parse(question.shape), batch_size=question.batch_size,
        limit_bytes=machine.chip.hbm_bytes if machine.chip else None,
    )  # fmt: skip


def _settings_of(question: training.TrainingQuestion) -> TrainingSettings:
    fields = {"model": question.model, question.kind: True, "accumulate": question.accumulate, **question.others}
    return TrainingSettings.model_validate(fields | ({"rank": question.rank} if question.rank else {}))

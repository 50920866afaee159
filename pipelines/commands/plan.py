"""`plan`: tells what memory and time a model would take on a TPU, by the TPU compiler, on a machine without one."""

import json
from collections.abc import Callable, Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from pipelines.commands import asked, options, plan_training, plan_training_options
from pipelines.commands.problems import Problems
from pipelines.commands.progress import LineProgress, TerminalProgress
from pipelines.errors import ModelError, RecipeError
from pipelines.messages import NOTHING, Message, add_codes, english, join, say
from pipelines.models.catalog import Model, Shape, load_catalog
from pipelines.recipes.step_cache import OFF

Topology = Annotated[
    str,
    typer.Option(
        callback=options.read_topology,
        help="v4-8, v5e-1/4/8, v5p-8, v6e-1/4/8, v7x-8, or cpu-1/8; `tpu` for all but CPU. With --train one of these, "
        "or of several hosts: v5e-16, v6e-16/32, v5p-16/64.",
    ),
]
Mode = Annotated[
    str, typer.Option(help="latency: one output on all chips. throughput: as many at once as there is room.")
]
DumpHlo = Annotated[
    Path | None, typer.Option("--dump-hlo", help="Write each stage's optimized HLO there, as MODEL_STAGE.hlo.")
]

AllModels = Annotated[bool, typer.Option("--all", help="Every model of the catalogue, each in its default shape.")]
Matrix = Annotated[
    bool,
    typer.Option(
        "--matrix",
        help="All that the page of plans holds: models, shapes, topologies and modes. With --answers, hours.",
    ),
]
AllShapes = Annotated[bool, typer.Option("--all-shapes", help="Every shape that a model has.")]
Search = Annotated[
    str | None, typer.Option(help="attention: instead of a plan, how well the kernel's tiles fill the matrix units.")
]
ProgressJson = Annotated[bool, typer.Option("--progress-json", help="Progress for scripts: one JSON object a line.")]
Output = Annotated[Path | None, typer.Option(help="Also write what was planned there, as one Markdown page.")]
Answers = Annotated[
    Path | None,
    typer.Option(
        help="Also keep what the compiler said in this file, and write all that is in it to --output. "
        "Without it, answers that come with Lumesh count as known."
    ),
]


_NAMED = ("model", "topology", "shape", "mode", "mesh", "step_cache", "weights")
_OF_TRAINING = (
    *("lora", "full", "batch", "rank", "accumulate", "remat", "optimizer", "ema", "preserve", "targets"),
    *("convolutions", "expert", "mixed_precision", "strict", "config", "steps", "chip_price", "again"),
)
_OF_STAGES = (
    "mode",
    "guidance_scale",
    "mesh",
    "step_cache",
    "weights",
    "dump_hlo",
    "all_models",
    "all_shapes",
    "search",
    "progress_json",
)


def plan(
    context: typer.Context,
    *,
    model: options.ModelId = "demo-sdxl",
    topology: Topology = "v6e-8",
    shape: options.ShapeText = None,
    mode: Mode = "latency",
    guidance_scale: options.GuidanceScale = None,
    mesh: options.MeshText = None,
    step_cache: options.StepCacheText = None,
    weights: options.Weights = None,
    dump_hlo: DumpHlo = None,
    all_models: AllModels = False,
    all_shapes: AllShapes = False,
    matrix: Matrix = False,
    search: Search = None,
    output: Output = None,
    answers: Answers = None,
    train: Annotated[bool, plan_training_options.Train] = False,
    lora: Annotated[bool, plan_training_options.Lora] = False,
    full: Annotated[bool, plan_training_options.Full] = False,
    batch: Annotated[int | None, plan_training_options.Batch] = None,
    rank: Annotated[int | None, plan_training_options.Rank] = None,
    accumulate: Annotated[int | None, plan_training_options.Accumulate] = None,
    remat: Annotated[str | None, plan_training_options.RematOption] = None,
    optimizer: Annotated[str | None, plan_training_options.OptimizerOption] = None,
    ema: Annotated[float | None, plan_training_options.Ema] = None,
    preserve: Annotated[float | None, plan_training_options.Preserve] = None,
    targets: Annotated[str | None, plan_training_options.Targets] = None,
    convolutions: Annotated[bool, plan_training_options.Convolutions] = False,
    expert: Annotated[str | None, plan_training_options.ExpertOption] = None,
    mixed_precision: Annotated[str | None, plan_training_options.Precision] = None,
    strict: Annotated[bool, plan_training_options.Strict] = False,
    config: Annotated[Path | None, plan_training_options.Config] = None,
    steps: Annotated[int | None, plan_training_options.Steps] = None,
    chip_price: Annotated[float | None, plan_training_options.ChipPrice] = None,
    again: Annotated[bool, plan_training_options.Again] = False,
    as_json: options.AsJson = False,
    progress_json: ProgressJson = False,
    data_dir: options.DataDir = options.DATA_DIR,
) -> None:
    """Compiles every stage for chips that are not here: does it fit, how long would it take. Needs no weights.

    Example: python -m pipelines plan --model flux2-dev --topology v6e-8

    Example: python -m pipelines plan --train --model sdxl-base --lora --topology v6e-8 --batch 8

    What is not known yet takes minutes for a large model; the answers are kept in the data directory.
    """
    from pipelines.plan.questions import MODES, Question, list_matrix
    from pipelines.plan.topologies import TOPOLOGIES, find_topology

    def given(name: str) -> bool:
        return str(context.get_parameter_source(name)).endswith("COMMANDLINE")

    if search is not None:
        others = {*context.params} - {"search", "topology", "as_json", "progress_json", "data_dir"}
        if any(map(given, others)):
            raise RecipeError(
                {"search": english("goes with --topology and --json alone: it measures the kernel, not a model")}
            )
        is_given = str(context.get_parameter_source("topology")).endswith("COMMANDLINE")
        _search(search, topology if is_given else "v6e-1", as_json=as_json)
        return
    for name, file in (("output", output), ("answers", answers)):
        if file is not None and not file.parent.is_dir():
            raise RecipeError({name: english(f"{file.parent} is not a folder")})
        if file is not None and file.is_dir():
            raise RecipeError({name: english(f"{file} is a folder; name a file in it")})
    if dump_hlo is not None:
        options.make_folder("dump_hlo", dump_hlo)
    place = options.DataDirectory(data_dir=data_dir)
    options.make_folder("data_dir", place.plan_cache_dir)
    alone = [name for name in _OF_STAGES if given(name)] if train else [name for name in _OF_TRAINING if given(name)]
    if alone:
        raise RecipeError(dict.fromkeys(alone, english(f"goes {'without' if train else 'with'} --train")))
    if train:
        settings = {
            "lora": lora or None, "full": full or None, "global_batch_size": batch, "rank": rank,
            "accumulate": accumulate, "remat": remat, "optimizer": optimizer, "ema": ema, "preserve": preserve,
            "targets": targets, "convolutions": convolutions or None, "expert": expert, "steps": steps,
            "mixed_precision": mixed_precision, "strict": strict or None,
        }  # fmt: skip
        of_training = plan_training.Asked(
            model=model if given("model") or config is None else None, topology=topology, shape=shape, given=settings,
            config=config, chip_price=chip_price, again=again, answers=answers, as_json=as_json,
        )  # fmt: skip
        _check_page(context.params, given, answers)
        if matrix:
            plan_training.plan_page(of_training, place, models=[model] if given("model") else None, output=output)
        else:
            plan_training.plan_training(of_training, place)
        return
    if matrix:
        own = (
            *("model", "topology", "shape", "mode", "mesh", "step_cache", "weights", "guidance_scale"),
            *("all_models", "all_shapes"),
        )
        if any(map(given, own)):
            raise RecipeError({"matrix": english("chooses models, shapes, topologies and modes itself")})
        wanted = [*list_matrix(load_catalog().models)]
    else:
        problems = Problems()
        found = [one for one in TOPOLOGIES.values() if one.chip]
        if topology != "tpu":
            found = problems.attempt(lambda: [find_topology(topology)])
        models = place.catalog.models if all_models else problems.attempt(lambda: (_find_model(place, model),))
        if shape is not None and (all_models or all_shapes):
            problems.add("shape", english("--all takes every model in its default shape, --all-shapes every shape"))
        elif models is not None:
            problems.attempt(lambda: [_find_shape(one, shape) for one in models])
        if guidance_scale is not None:
            if answers is not None:
                problems.add("guidance_scale", english("goes without --answers, which hold the models' own"))
            models = models and [replace(one, guidance_scale=guidance_scale) for one in models]
        models = problems.attempt(lambda: [asked.choose_weights(one, weights) for one in models or ()])
        if mode not in MODES:
            problems.add("mode", english(f"{mode!r} is not known; allowed: {', '.join(MODES)}"))
        problems.tell()
        wanted = [
            Question(model=one, shape=size, topology=machine, mode=mode)
            for one in models or ()
            for size in (one.shapes if all_shapes else [_find_shape(one, shape)])
            for machine in found or ()
        ]
    from pipelines.runtime.devices.platform import prepare_compiler

    prepare_compiler(cpu_devices=max(one.topology.devices for one in wanted))
    import jax

    from pipelines.plan.answers import SHIPPED, add_lines, collect_verdicts, describe
    from pipelines.plan.compiler import CompilerError
    from pipelines.plan.lines import read_lines
    from pipelines.plan.matrix import write_matrix
    from pipelines.plan.planner import make_plan, to_json
    from pipelines.plan.report import print_plan

    try:
        known = collect_verdicts(read_lines(answers or SHIPPED))
    except (ValueError, KeyError, TypeError) as error:
        raise RecipeError(
            {"answers": english(f"{answers} holds something else than answers of this command")}
        ) from error
    plans, failures, advice = [], list[Message](), NOTHING
    for one in wanted:
        with LineProgress() if progress_json else TerminalProgress(is_silent=as_json) as progress:
            try:
                made = make_plan(
                    one.model,
                    one.topology,
                    shape=one.shape,
                    mode=one.mode,
                    mesh=mesh,
                    step_cache=step_cache or OFF,
                    cache_dir=place.plan_cache_dir,
                    on_progress=progress,
                    known=known,
                    dump_dir=dump_hlo,
                )
            except CompilerError as error:  # only this one fails; the others are still planned
                failures.append(
                    say(
                        "{model} {shape} on {topology}: {text}",
                        model=one.model.id,
                        shape=one.shape,
                        topology=one.topology.name,
                        text=error.detail,
                    )
                )
                advice = error.advice
                continue
        plans.append(made)
        jax.clear_caches()  # cached traces would add up to gigabytes
        # Written after each plan, so that minutes of work are not lost if a later one fails.
        lines = add_lines(answers, [describe(made)]) if answers is not None else list(map(describe, plans))
        if output is not None:
            output.write_text(write_matrix(lines, command=_name_command(context.params, given)), "utf-8")
        if not as_json:
            print_plan(made, Console())
    if as_json and plans:
        options.print_json([to_json(made) for made in plans] if len(wanted) > 1 else to_json(plans[0]))
    if failures:
        failure = CompilerError(join(failures), advice=advice)
        if progress_json:  # for the studio, which shows it in the visitor's language
            typer.echo(json.dumps(add_codes({"error": failure.whole})), err=True)
        raise failure


def _check_page(params: Mapping[str, Any], given: Callable[[str], bool], answers: Path | None) -> None:
    """Refuses what the page of trainings would pass over; raises RecipeError."""
    problems: dict[str, Message] = {}
    if params["matrix"]:
        others = (*_OF_TRAINING, "topology", "shape")
        text = english("--matrix chooses trainings and machines itself; only --model chooses among them")
        problems |= {name: text for name in others if given(name) and name != "again"}
        if params["output"] is not None and answers is None:
            problems["output"] = english("the page is made of what is in a file: say --answers")
    elif params["output"] is not None:
        problems["output"] = english("is of the page of all trainings: say --matrix")
    if problems:
        raise RecipeError(problems)


def _name_command(params: Mapping[str, Any], given: Callable[[str], bool]) -> str:
    """Returns the command that makes these plans, without the options that only say where to write them."""
    flags = {"all_models": "all", "matrix": "matrix", "all_shapes": "all-shapes"}
    words = [f"--{flag}" for name, flag in flags.items() if params[name]]
    words += [f"--{name.replace('_', '-')} {params[name]}" for name in _NAMED if given(name)]
    return " ".join(("python -m pipelines plan", *words))


def _search(what: str, topology: str, *, as_json: bool) -> None:
    """Searches tiles for heads of 128 features (Wan, FLUX.2) and of 64 in pairs (SDXL), and prints the results."""
    if what != "attention":
        raise RecipeError({"search": english(f"{what!r} is not known; allowed: attention")})
    from pipelines.plan.schedule import search
    from pipelines.plan.topologies import find_topology

    machine = find_topology(topology)
    if machine.chip is None:
        raise RecipeError(
            {"topology": english(f"{topology} has no matrix units; allowed: v4-8, v5e-1, v5p-8, v6e-1, v7x-8")}
        )
    found = []
    for heads, width in ((1, 128), (2, 64)):
        for busy in search(heads=heads, width=width, topology=machine):
            found.append({"width": width, **asdict(busy), "is_bound_by_units": busy.is_bound_by_units})
            if not as_json:
                tiles = f"{busy.tiles.queries} queries, {busy.tiles.keys} keys, {busy.tiles.step} a step"
                share = f"{busy.utilisation:.1%} of the peak"
                if busy.is_bound_by_units:
                    share = f"bound by the matrix units, which allow {min(1.0, busy.most):.0%} of the peak"
                else:
                    share += f", {busy.small_utilisation:.1%} where logits are small"
                Console().print(f"{topology}, heads of {width}: {tiles}: {share}", soft_wrap=True)
    if as_json:
        options.print_json(found)


def _find_model(place: options.DataDirectory, model_id: str) -> Model:
    try:
        return place.catalog.get(model_id)
    except ModelError as error:
        raise RecipeError({"model": error.whole}) from error


def _find_shape(model: Model, text: str | None) -> Shape:
    if text is None:
        return model.default_shape
    if text not in map(str, model.shapes):
        raise RecipeError({"shape": english(f"{text} is not a shape of {model.id}; allowed: {model.shape_list()}")})
    return Shape.parse(text)

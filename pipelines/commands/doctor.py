"""`doctor`: whether this machine, its chips and our kernels on them do what they should."""

import json
import time
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from pipelines.commands import options
from pipelines.commands.bench.process import measure as run_apart
from pipelines.doctor.examination import CHECK_LIMIT_S, Limits, examine
from pipelines.doctor.report import print_lines
from pipelines.errors import ModelError, RecipeError
from pipelines.files.whole import write_whole
from pipelines.messages import english

RUNNER = "pipelines.commands.bench.programs_runner"
PRETENDED = ("wrong", "refused", "hung", "ended")  # of a check, by child.py

Checks = Annotated[
    list[str] | None,
    typer.Option("--check", help="Run this check alone, such as flash; give it again for more.", show_default="all"),
]
Pretend = Annotated[
    list[str] | None,
    typer.Option(
        metavar="CHECK=wrong|refused|hung|ended",
        help="Make a check fail on purpose, to see what follows; nothing of it is kept.",
    ),
]
CheckLimit = Annotated[float, typer.Option(min=1, help="Seconds that one kernel may take before it counts as hanging.")]


def examine_machine(
    *,
    check: Checks = None,
    pretend: Pretend = None,
    check_limit: CheckLimit = CHECK_LIMIT_S,
    measure: Annotated[
        bool,
        typer.Option("--measure", help="Then run a model's programs on random weights, and time each."),
    ] = False,
    model: options.ModelId = "demo-sdxl",
    shape: options.ShapeText = None,
    mesh: options.MeshText = None,
    repeats: Annotated[int, typer.Option(min=1, help="With --measure: timed runs a program; the median counts.")] = 5,
    report: Annotated[
        Path | None,
        typer.Option(
            help="With --measure: the file to write, to be sent to us; it names no folder, user or prompt.",
            show_default="doctor-{timestamp}.json in the data directory",
        ),
    ] = None,
    allow_cpu: options.AllowCpu = False,
    as_json: options.AsJson = False,
    data_dir: options.DataDir = options.DATA_DIR,
) -> int:
    """Checks versions, devices, memory, disk, each kernel against plain XLA, a known picture, and the collectives.

    Example: python -m pipelines doctor

    A kernel that is wrong, refused or hangs is not used any more on this kind of chip with these versions. The exit
    code is 1 if anything is wrong.
    """
    pretends = _read_pretended(pretend or ())
    place = options.DataDirectory(data_dir=data_dir)
    if measure:
        _check_measured(place, model, shape)
    found = examine(
        data_dir,
        cache_dir=place.cache_dir,
        allow_cpu=allow_cpu,
        limits=Limits(check_s=check_limit),
        only=check,
        pretends=pretends,
        on_check=(lambda _name: None) if as_json else (lambda name: typer.echo(f"checking {name} ...", err=True)),
        is_kept=not pretends,
    )
    if found.devices and (unknown := [name for name in check or () if name not in found.checks]):
        raise RecipeError({"check": english(f"there is no {', '.join(unknown)} on these devices")})
    whole = found.to_json()
    if not as_json:
        typer.echo("\n".join(print_lines(found)))
        if pretends:
            typer.echo("Some of it was pretended, so nothing of it is kept.")
    if measure and found.devices:
        task = {"model": model, "shape": shape, "mesh": mesh, "repeats": repeats, "allow_cpu": allow_cpu}
        whole["measured"] = _measure(place, task, is_silent=as_json)
        file = report or data_dir / f"doctor-{time.strftime('%Y%m%d-%H%M%S')}.json"
        write_whole(file, json.dumps(_leave_out_own(whole), indent=1).encode())
        whole["report"] = str(file)
        if not as_json:
            typer.echo(f"Written to {file}: please send it to us.")
    if as_json:
        options.print_json(whole)
    return 1 if found.problems else 0


def _check_measured(place: options.DataDirectory, model_id: str, shape: str | None) -> None:
    """Refuses a model or a shape that is not there, before minutes of checks; raises RecipeError."""
    try:
        model = place.catalog.get(model_id)
    except ModelError as error:
        raise RecipeError({"model": error.whole}) from error
    if shape is not None and shape not in map(str, model.shapes):
        raise RecipeError({"shape": english(f"{shape} is not a shape of {model.id}; allowed: {model.shape_list()}")})


def _measure(place: options.DataDirectory, task: dict[str, Any], *, is_silent: bool) -> list[dict[str, Any]]:
    """Measures a model's programs in a process of their own, keeps the figures for plans, and prints them."""
    from pipelines.plan import measured  # here: the other commands' start need not wait for it

    folders = {"data_dir": str(place.data_dir), "cache_dir": str(place.cache_dir)}
    lines: list[dict[str, Any]] = run_apart(RUNNER, {**task, **folders}, what=f"{task['model']}'s programs")
    measured.keep(place.plan_cache_dir, [measured.Measured(**line) for line in lines])
    if not is_silent:
        typer.echo(f"\n{_name_run(lines[0])}")
        table = Table(box=None, pad_edge=False)
        for name in ("program", "measured", "estimated", "ratio", "compiled in"):
            table.add_column(name, justify="left" if name == "program" else "right")
        for line in lines:
            table.add_row(*_describe(line))
        Console().print(table)
    return lines


def _name_run(line: dict[str, Any]) -> str:
    devices = f"{line['devices']} x {line['kind']}"
    return f"{line['model']} {line['shape']}, random weights, mesh {line['mesh']}, {devices}; a step of denoise"


def _describe(line: dict[str, Any]) -> list[str]:
    if line["ms"] is None:
        return [line["stage"], "refused", line["refusal"], "", f"{line['compile_s']:.0f} s"]
    estimated = line["estimated_ms"]
    beside = ["-", "-"] if not estimated else [f"{estimated:.2f} ms", f"{line['ms'] / estimated:.2f}"]
    return [line["stage"], f"{line['ms']:.2f} ms", *beside, f"{line['compile_s']:.0f} s"]


def _leave_out_own(whole: dict[str, Any]) -> dict[str, Any]:
    """Returns the report without what tells of its owner: folders, and other processes' commands."""
    disk = {name: value for name, value in whole["disk"].items() if name not in ("folder", "unwritable")}
    access = {name: len(value) if isinstance(value, tuple | list) else value for name, value in whole["access"].items()}
    others = {name: value for name, value in whole.items() if name not in ("remembered", "problems")}
    return {**others, "disk": disk, "access": access}


def _read_pretended(given: list[str] | tuple[str, ...]) -> dict[str, str]:
    found: dict[str, str] = {}
    for text in given:
        name, _, how = text.partition("=")
        if how not in PRETENDED:
            raise RecipeError({"pretend": english(f"{text!r}: write CHECK={'|'.join(PRETENDED)}")})
        found[name] = how
    return found

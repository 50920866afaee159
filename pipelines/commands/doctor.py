"""`doctor`: whether this machine, its chips and our kernels on them do what they should."""

from typing import Annotated

import typer

from pipelines.commands import options
from pipelines.doctor.examination import CHECK_LIMIT_S, Limits, examine
from pipelines.doctor.report import print_lines
from pipelines.errors import RecipeError
from pipelines.messages import english

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
    report = examine(
        data_dir,
        cache_dir=options.DataDirectory(data_dir=data_dir).cache_dir,
        allow_cpu=allow_cpu,
        limits=Limits(check_s=check_limit),
        only=check,
        pretends=pretends,
        on_check=(lambda _name: None) if as_json else (lambda name: typer.echo(f"checking {name} ...", err=True)),
        is_kept=not pretends,
    )
    if report.devices and (unknown := [name for name in check or () if name not in report.checks]):
        raise RecipeError({"check": english(f"there is no {', '.join(unknown)} on these devices")})
    if as_json:
        options.print_json(report.to_json())
    else:
        typer.echo("\n".join(print_lines(report)))
    return 1 if report.problems else 0


def _read_pretended(given: list[str] | tuple[str, ...]) -> dict[str, str]:
    found: dict[str, str] = {}
    for text in given:
        name, _, how = text.partition("=")
        if how not in PRETENDED:
            raise RecipeError({"pretend": english(f"{text!r}: write CHECK={'|'.join(PRETENDED)}")})
        found[name] = how
    return found

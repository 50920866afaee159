"""`bench load`: how fast a checkpoint becomes arrays on the mesh, compared with a plain read of the same files.

The checkpoint is generated and removed afterwards: FLUX.2 klein's transformer with random weights, in several files,
because it has everything that makes loading more than reading: fused projections that are permuted for the devices,
weights split by columns, and layers stacked for a scan.
"""

import enum
import tempfile
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from pipelines.commands import options
from pipelines.commands.bench.process import measure

RUNNER = "pipelines.commands.bench.load_runner"


class Stored(enum.StrEnum):
    """The precisions in which checkpoints are published."""

    BF16 = "bf16"
    FP32 = "fp32"


def run(
    *,
    gigabytes: Annotated[float, typer.Option(min=0.02, max=64, help="Size of the checkpoint.")] = 4.0,
    rounds: Annotated[int, typer.Option(min=1, help="The median counts.")] = 4,
    stored: Annotated[Stored, typer.Option(help="Precision of the checkpoint; computed is in bf16.")] = Stored.BF16,
    mesh: options.MeshText = None,
    folder: Annotated[
        Path | None,
        typer.Option(
            exists=True, file_okay=False, help="On the disk to measure.", show_default="the system's temporary folder"
        ),
    ] = None,
    as_json: options.AsJson = False,
) -> None:
    """Loads a checkpoint made of random numbers, from a cold disk, and says what a plain read would have taken.

    Example: python -m pipelines bench load --gigabytes 4
    """
    with tempfile.TemporaryDirectory(dir=folder, prefix="lumesh-bench-") as place:
        task = {"folder": place, "gigabytes": gigabytes, "rounds": rounds, "mesh": mesh, "stored": stored.value}
        found = measure(RUNNER, task, what="loads")
    if as_json:
        options.print_json(found)
        return
    _print(found)


def _print(found: dict[str, Any]) -> None:
    what = f"{found['gb']:.2f} GB of {found['stored']} in {found['files']} files"
    title = f"{what}, {found['mesh']}, median of {len(found['rounds'])}"
    table = Table(title=title, box=None, title_justify="left")
    for name in ("", "seconds", "GB/s", "of a plain read"):
        table.add_column(name, justify="right" if name else "left")
    for label, field in (
        ("plain read, through one small buffer", "plain_s"),
        ("plain read, into memory of its own", "copied_s"),
        ("loaded", "load_s"),
        (f"loaded from the layout that was kept, {found['kept_gb']:.2f} GB", "kept_s"),
    ):
        seconds = found[field]
        table.add_row(label, f"{seconds:.2f} s", f"{found['gb'] / seconds:.2f}", f"{found['plain_s'] / seconds:.0%}")
    Console().print(table)
    share = found["beyond_mb"] / 1000 / found["gb"]
    typer.echo(f"\nhost memory beyond the arrays, at its peak: {found['beyond_mb']:.0f} MB, {share:.1%} of the size")

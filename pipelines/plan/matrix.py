"""Writes many plans as one Markdown page: a table per topology, with a row per model and shape."""

from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby
from typing import Any

from pipelines.plan.placement import HOST_BYTES_PER_S
from pipelines.plan.report import show_bytes
from pipelines.plan.topologies import TOPOLOGIES, TPU_SOURCE
from pipelines.plan.verdicts import read_versions

_EARLIER = "†"
_COLUMNS = (
    *("model", "shape", "mesh", "what stays loaded", "a chip", "encode", "a step", "decode"),
    *("moves", "in all", "compile"),
)


def write_matrix(lines: Iterable[Mapping[str, Any]], *, command: str) -> str:
    """Returns the page made of answers.py's lines; `command` is the command that made it."""
    versions = ", ".join(f"{name} {version}" for name, version in read_versions().items())
    order = list(TOPOLOGIES)
    lines = sorted(lines, key=lambda line: order.index(line["topology"]))  # stable: models stay in order
    earlier = f"{_EARLIER} One of its programs has changed a little since: `plan` compiles that one."
    page = [
        "# Plans",
        "",
        f"{TPU_SOURCE} ({versions}); nothing was run. Made by `{command}`.",
        "Bytes are the most that a chip holds at a time. Of what runs several times a step or a run is given, and *in",
        "all* is one output with a prompt of its own, from prompt to file. *Moves* are components that come back for",
        f"it from the host's memory where not all have room at once, at {HOST_BYTES_PER_S / 1e9:.0f} GB/s a chip, an",
        "assumption. Compiling is counted in seconds by the clock of the machine that made this page, which may have",
        "had other work. The kernels for attention and convolutions are counted at 56 % of a chip's peak, which their",
        "schedules say for v6e; on v5p, as theirs say, at 95 % for attention, 89 for convolutions and 80 for those of",
        "fewer than 320 outputs; for other chips 56 % is an assumption, on the careful side. With a step cache a step",
        "is a computed one; *in all* counts those that reuse it.",
        *(["", earlier] if any(map(_is_earlier, lines)) else []),
    ]
    for name, own in groupby(lines, key=lambda line: line["topology"]):
        found = list(own)
        page += ["", f"## {name}: {TOPOLOGIES[name].title}", ""]
        page += _make_table(_COLUMNS, [_summarise(line) for line in found])
        for line in found:
            refused = (stage for stage in line["stages"] if not stage["fits"])
            page += [f"\n{_name(line)}: {line['placement']['advice']} {_refuse(stage)}" for stage in refused]
    return "\n".join(page) + "\n"


def _is_earlier(line: Mapping[str, Any]) -> bool:
    return bool(line.get("is_earlier"))


def _summarise(line: Mapping[str, Any]) -> list[str]:
    stages = {stage["stage"]: stage for stage in line["stages"]}
    moves_s, total_s = line.get("estimated_moves_s"), line["estimated_total_s"]  # earlier lines have no moves
    return [
        f"{line['model']} {line['weights']}" if "weights" in line else line["model"],
        line["shape"] + (f" {_EARLIER}" if _is_earlier(line) else ""),
        line["mesh"]
        + (f", {line['batch_size']} at once" if line["batch_size"] > 1 else "")
        + (f", step cache {line['step_cache']}" if "step_cache" in line else ""),
        line["placement"]["kind"].replace("_", " "),
        show_bytes(line["placement"]["resident_bytes"]),
        *(_show_run(stages.get(name)) for name in ("encode", "denoise", "decode")),
        f"{moves_s:.2g} s" if moves_s else "-",
        "-" if total_s is None else f"{total_s:.3g} s",
        f"{sum(stage['answer']['compile_s'] for stage in line['stages']):.0f} s",
    ]


def _show_run(stage: Mapping[str, Any] | None) -> str:
    if stage is None or stage["estimate"] is None:
        return "-"
    run = stage["estimate"]["run"]
    seconds = run["compute_s"] + run["attention_s"] + run["convolution_s"] + run["exposed_s"]
    return f"{seconds:.3g} s" if seconds >= 1 else f"{1000 * seconds:.3g} ms"


def _name(line: Mapping[str, Any]) -> str:
    return f"`{line['model']}` {line['shape']}"


def _refuse(stage: Mapping[str, Any]) -> str:
    return f"`{stage['stage']}`: {stage['answer']['refusal'] or 'more than a chip holds'}"


def _make_table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    return [f"| {' | '.join(cells)} |" for cells in (columns, ["---"] * len(columns), *rows)]

"""Files of kept answers, one a line of JSON, and estimates in them. Read without jax."""

import json
import os
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pipelines.plan.estimate import Cost, Estimate


def read_lines(file: Path) -> list[dict[str, Any]]:
    """Reads all lines, none if there is no file. Raises ValueError for malformed lines."""
    return [json.loads(line) for line in file.read_text("utf-8").splitlines()] if file.exists() else []


def read_sound_lines(file: Path) -> tuple[list[dict[str, Any]], int]:
    """Reads the lines that hold an answer to a question, none if there is no file, and counts the others."""
    if not file.exists():
        return [], 0
    lines: list[dict[str, Any]] = []
    texts = file.read_text("utf-8", errors="replace").splitlines()
    for text in texts:
        try:
            line = json.loads(text)
        except (ValueError, RecursionError):  # such as what an ended process has written by half
            continue
        if isinstance(line, dict) and isinstance(line.get("question"), dict):
            lines.append(line)
    return lines, len(texts) - len(lines)


def write_lines(file: Path, lines: Sequence[Mapping[str, Any]]) -> None:
    """Writes these lines in place of the file's, all or none."""
    partial = file.with_name(f"{file.name}.{os.getpid()}.partial")
    partial.write_text("".join(f"{json.dumps(line, separators=(',', ':'))}\n" for line in lines), "utf-8")
    partial.replace(file)


def write_estimate(found: Estimate) -> dict[str, dict[str, Any]]:
    """Returns the estimate for JSON; `asdict` would turn a Counter into pairs of keys and counts."""
    return {part: dict(vars(cost)) for part, cost in vars(found).items() if cost is not None}


def read_estimate(saved: Mapping[str, Mapping[str, Any]]) -> Estimate:
    return Estimate(**{part: _read_cost(cost) for part, cost in saved.items()})


def _read_cost(saved: Mapping[str, Any]) -> Cost:
    fields = dict(saved)
    fields |= {name: Counter(saved[name]) for name in ("counts", "moved_bytes")}
    return Cost(**fields)

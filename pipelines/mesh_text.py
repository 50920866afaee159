"""Parses a mesh as people write it. Importable without jax, so that a wrong one is refused before anything starts."""

import re

from pipelines.errors import MeshError
from pipelines.messages import english

AXES = ("dp", "sp", "tp")
THROUGHPUT = "throughput"  # instead of axes: one output per chip, or per as few chips as hold the weights


def parse_mesh(text: str) -> dict[str, int]:
    """Reads `dp=2,tp=4`; raises MeshError for unknown axes and sizes below 1."""
    sizes: dict[str, int] = {}
    for part in text.split(","):
        match = re.fullmatch(r"\s*(\w+)\s*=\s*(\d+)\s*", part)
        if match is None or match[1] not in AXES or match[1] in sizes or int(match[2]) < 1:
            raise MeshError(
                english(f"{text!r} is not a mesh."),
                advice=english(
                    f"Write axes and sizes such as dp=2,sp=4 (the axes are {', '.join(AXES)}), or {THROUGHPUT}."
                ),
            )
        sizes[match[1]] = int(match[2])
    return sizes


def check_mesh(text: str | None) -> str | None:
    """Returns the text unchanged if it is a mesh, `throughput` or empty; raises MeshError otherwise."""
    if text and not asks_for_many(text):
        parse_mesh(text)
    return text


def asks_for_many(mesh: str | None) -> bool:
    """Returns whether chips are to make outputs of their own (data parallelism)."""
    return mesh == THROUGHPUT

"""Entries of a data directory's models.toml, added and removed without a change to the text around them."""

import json
import tomllib
from collections.abc import Iterator
from pathlib import Path

from pipelines.files.locked import hold_file
from pipelines.files.whole import write_whole


def append_entry(file: Path, fields: dict[str, str]) -> None:
    """Adds an entry at the end of a models.toml, whose text is otherwise left as it is."""
    lines = ["[[model]]", *(f"{name} = {json.dumps(value)}" for name, value in fields.items()), ""]
    with hold_file(file):
        before = file.read_text("utf-8") if file.exists() else ""
        write_whole(file, "\n".join([*([before.rstrip("\n"), ""] if before.strip() else []), *lines]).encode())


def drop_entry(file: Path, model_id: str) -> bool:
    """Removes an entry from a models.toml, whose text is otherwise left as it is; tells whether it was there."""
    if not file.exists():
        return False
    with hold_file(file):
        pieces = [*_split_entries(file.read_text("utf-8"))]
        kept = [piece for piece in pieces if _read_id(piece) != model_id]
        if len(kept) == len(pieces):
            return False
        write_whole(file, "".join(kept).encode())
        return True


def _split_entries(text: str) -> Iterator[str]:
    piece: list[str] = []
    for line in text.splitlines(keepends=True):
        if line.strip().startswith("[[model]]") and piece:
            yield "".join(piece)
            piece = []
        piece.append(line)
    yield "".join(piece)


def _read_id(piece: str) -> str | None:
    try:
        entries = tomllib.loads(piece).get("model", [])
    except tomllib.TOMLDecodeError:
        return None
    return next((entry.get("id") for entry in entries), None)

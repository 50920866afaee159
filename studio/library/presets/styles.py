"""Styles: templates that combine with any prompt, read from presets/styles.toml.

A style is applied before a recipe is queued (static/js/create/styles.js), so the recipe holds the whole prompt and
means the same everywhere, with or without the style.
"""

import functools
import tomllib
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from pipelines.models.catalog import PRESETS_DIR

STYLES_FILE = PRESETS_DIR / "styles.toml"
PLACE = "{prompt}"


@dataclass(frozen=True, kw_only=True)
class Style:
    """A style: `prompt` has one placeholder for the prompt; `negative_prompt` is added to the negative one.

    `fits_demo` marks styles that the demo models, with their few words, understand.
    """

    id: str
    title: str
    prompt: str
    negative_prompt: str = ""
    fits_demo: bool = False

    def __post_init__(self) -> None:
        assert self.prompt.count(PLACE) == 1, f"{self.id}: {PLACE} must stand in it once"

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


@functools.cache
def read_styles(file: Path = STYLES_FILE) -> tuple[Style, ...]:
    """Reads the styles in the order in which they are shown."""
    return tuple(Style(**entry) for entry in tomllib.loads(file.read_text("utf-8"))["style"])

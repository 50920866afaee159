"""`python -m studio.library.presets`: keeps shipped files in step with the models and the format.

`redraw` regenerates the pictures of the demo models' presets and examples, each by the command line that a user would
type, so that a card shows only what its model made; `schema` writes the format's JSON Schema.
"""

import argparse
import json
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from PIL import Image
from rich.console import Console

from pipelines.files.video import read_mp4
from pipelines.models.catalog import PRESETS_DIR, Shape, load_catalog
from studio.library.examples import EXAMPLES_DIR, picture_of
from studio.library.presets.files import draw_thumbnail
from studio.library.presets.preset import make_schema
from studio.library.presets.shipped import read_shipped, thumb_of

SCHEMA_FILE = PRESETS_DIR / "preset.schema.json"
REPOSITORY = PRESETS_DIR.parent
FLAGS = {
    "model": "--model",
    "shape": "--shape",
    "prompt": "--prompt",
    "negative_prompt": "--negative_prompt",
    "seed": "--seed",
    "steps": "--num_inference_steps",
    "guidance_scale": "--guidance_scale",
    "scheduler": "--scheduler",
    "sigmas": "--sigmas",
}

console = Console(highlight=False, soft_wrap=True)


@dataclass(frozen=True, kw_only=True)
class Drawing:
    """A picture to draw: the settings that make it, and its file."""

    settings: Mapping[str, Any]
    file: Path


def main(arguments: Sequence[str]) -> int:
    """Runs the command; returns the number of pictures that could not be drawn."""
    parser = argparse.ArgumentParser(prog="python -m studio.library.presets", description="Keeps shipped presets true.")
    commands = parser.add_subparsers(dest="command", required=True)
    redraw = commands.add_parser("redraw", help="make the demo models' pictures again")
    redraw.add_argument("names", nargs="*", help="presets, or examples as model/place (default: all with weights here)")
    redraw.add_argument("--to", type=Path, help="folder of the pictures (default: where they are shipped)")
    commands.add_parser("schema", help=f"write {SCHEMA_FILE.name}")
    found = parser.parse_args(arguments)
    if found.command == "schema":
        SCHEMA_FILE.write_text(format_schema(), "utf-8")
        return 0
    drawings = {name: drawing for name, drawing in list_drawings().items() if name in (found.names or [name])}
    failed = [name for name, drawing in drawings.items() if not _draw(name, drawing, found.to)]
    if not found.names and found.to is None:
        _remove_stale({drawing.file for drawing in drawings.values()})
    return len(failed) + len({*found.names} - drawings.keys())


def format_schema() -> str:
    """Returns the JSON Schema as it is committed."""
    return json.dumps(make_schema(), indent=2) + "\n"


def list_drawings() -> dict[str, Drawing]:
    """Lists, by name, the presets and the examples with a seed whose model's weights are part of the repository."""
    drawable = {model.id: model for model in load_catalog().models if model.is_demo}
    presets = {
        preset_id: Drawing(settings=preset.recipe.model_dump(exclude_none=True), file=thumb_of(preset_id))
        for preset_id, preset in read_shipped().items()
        if preset.recipe.model in drawable
    }
    examples = {
        f"{model.id}/{place}": Drawing(
            settings={"model": model.id, "prompt": example.prompt, "seed": example.seed},
            file=picture_of(model, example),
        )
        for model in drawable.values()
        for place, example in enumerate(model.examples)
        if example.seed is not None
    }
    return presets | examples


def _draw(name: str, drawing: Drawing, folder: Path | None) -> bool:
    model = load_catalog().get(drawing.settings["model"])
    shape = Shape.parse(drawing.settings.get("shape") or str(model.default_shape))
    with tempfile.TemporaryDirectory() as temporary:
        file = Path(temporary) / f"output.{'mp4' if model.is_video else 'png'}"
        # FLAGS has no batch size: a card shows one picture.
        flags = [
            part
            for key, flag in FLAGS.items()
            if key in drawing.settings
            for part in (flag, str(drawing.settings[key]))
        ]
        command = [sys.executable, "-m", "pipelines", "generate", *flags, "--output", str(file)]
        run = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, check=False)
        if run.returncode != 0:
            console.print(f"{name}: {run.stderr.strip()[-400:]}", markup=False)
            return False
        if model.is_video:
            frames = read_mp4(file, width=shape.width, height=shape.height)
            webp = draw_thumbnail(Image.fromarray(frames[len(frames) // 2]))
        else:
            with Image.open(file) as picture:
                webp = draw_thumbnail(picture)
    target = drawing.file if folder is None else folder / drawing.file.name
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_bytes(webp)
    console.print(f"{name}: {len(webp) / 1000:.1f} kB")
    return True


def _remove_stale(kept: set[Path]) -> None:
    """Deletes the pictures of examples that are no longer in the catalogue."""
    for file in EXAMPLES_DIR.rglob("*.webp"):
        if file not in kept:
            file.unlink()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

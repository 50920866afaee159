"""`python -m studio.library.presets`: keeps shipped files in step with the models and the format.

`redraw` regenerates the thumbnails of the demo models' presets, each by the command line that a user would type, so
that a card shows only what its model made; `schema` writes the format's JSON Schema.
"""

import argparse
import json
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from PIL import Image
from rich.console import Console

from pipelines.catalog import PRESETS_DIR, Shape, load_catalog
from pipelines.files.video import read_mp4
from studio.library.presets.files import draw_thumbnail
from studio.library.presets.preset import Preset, make_schema
from studio.library.presets.shipped import GALLERY_DIR, read_shipped, thumb_of

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
}

console = Console(highlight=False, soft_wrap=True)


def main(arguments: Sequence[str]) -> int:
    """Runs the command; returns the number of presets that could not be drawn."""
    parser = argparse.ArgumentParser(prog="python -m studio.library.presets", description="Keeps shipped presets true.")
    commands = parser.add_subparsers(dest="command", required=True)
    redraw = commands.add_parser("redraw", help="make the demo models' thumbnails again")
    redraw.add_argument("ids", nargs="*", help="presets to redraw (default: all that have weights here)")
    redraw.add_argument("--to", type=Path, default=GALLERY_DIR, help="folder of the thumbnails (default: the gallery)")
    commands.add_parser("schema", help=f"write {SCHEMA_FILE.name}")
    found = parser.parse_args(arguments)
    if found.command == "schema":
        SCHEMA_FILE.write_text(format_schema(), "utf-8")
        return 0
    failed = [preset_id for preset_id in found.ids or list_drawable() if not _redraw(preset_id, found.to)]
    return len(failed)


def format_schema() -> str:
    """Returns the JSON Schema as it is committed."""
    return json.dumps(make_schema(), indent=2) + "\n"


def list_drawable() -> list[str]:
    """Lists the shipped presets whose weights are part of the repository."""
    drawable = {model.id for model in load_catalog().models if model.is_demo}
    return [preset_id for preset_id, preset in read_shipped().items() if preset.recipe.model in drawable]


def _redraw(preset_id: str, folder: Path) -> bool:
    preset = read_shipped()[preset_id]
    model = load_catalog().get(preset.recipe.model)
    shape = Shape.parse(preset.recipe.shape) if preset.recipe.shape else model.default_shape
    with tempfile.TemporaryDirectory() as temporary:
        file = Path(temporary) / f"output.{'mp4' if model.is_video else 'png'}"
        command = [sys.executable, "-m", "pipelines", "generate", *_make_flags(preset), "--output", str(file)]
        run = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, check=False)
        if run.returncode != 0:
            console.print(f"{preset_id}: {run.stderr.strip()[-400:]}", markup=False)
            return False
        if model.is_video:
            frames = read_mp4(file, width=shape.width, height=shape.height)
            webp = draw_thumbnail(Image.fromarray(frames[len(frames) // 2]))
        else:
            with Image.open(file) as picture:
                webp = draw_thumbnail(picture)
    (folder / thumb_of(preset_id).name).write_bytes(webp)
    console.print(f"{preset_id}: {len(webp) / 1000:.1f} kB")
    return True


def _make_flags(preset: Preset) -> list[str]:
    """Returns the command-line flags that draw a preset's thumbnail; of a batch only the first picture."""
    values = preset.recipe.model_dump(exclude_none=True)
    return [part for name, flag in FLAGS.items() if name in values for part in (flag, str(values[name]))]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

"""The files that pictures and videos are saved as outside of the studio, each with its recipe inside."""

from pathlib import Path
from typing import Any

from PIL import Image

from pipelines.files.metadata import make_png_chunks
from pipelines.files.video import write_mp4
from pipelines.models.catalog import Model
from pipelines.recipes.recipe import Recipe


def suffix_of(model: Model) -> str:
    """Returns the suffix of this model's output files."""
    return ".mp4" if model.is_video else ".png"


def save_outputs(pixels: Any, recipe: Recipe, output: Path) -> list[Path]:
    """Writes PNG or MP4 files with the recipe inside; output n of a batch carries its own seed.

    Of input pictures and LoRAs the recipe keeps only the names, not their paths on this machine.
    """
    images = tuple(Path(image).name for image in recipe.images)
    loras = tuple(
        lora.model_copy(update={"ref": Path(lora.ref).name}) if Path(lora.ref).is_absolute() else lora
        for lora in recipe.loras
    )
    recipe = recipe.model_copy(update={"images": images, "loras": loras})
    output.parent.mkdir(parents=True, exist_ok=True)
    files = []
    for index, one in enumerate(pixels):
        file = output if len(pixels) == 1 else output.with_stem(f"{output.stem}-{index}")
        if file.suffix.lower() == ".mp4":
            write_mp4(file, one, recipe.of_picture(index))
        else:
            Image.fromarray(one).save(file, "PNG", pnginfo=make_png_chunks(recipe.of_picture(index)))
        files.append(file)
    return files

"""Options that several commands share, and the one way in which they become a recipe and a loaded family."""

import contextlib
import json
import os
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any

import platformdirs
import typer

from pipelines.catalog import VIDEO_STRIDE, Catalog, Shape, load_catalog
from pipelines.errors import RecipeError
from pipelines.families import name_families
from pipelines.loras import SUFFIX, LoraFile, read_lora
from pipelines.mesh_text import check_mesh
from pipelines.messages import english
from pipelines.recipe import Recipe, read_recipe, resolve

DataDir = Annotated[
    Path,
    typer.Option(
        envvar="LUMESH_DATA_DIR",
        help="Models, compilation cache and outputs.",
        show_default="the system's folder for application data",
    ),
]
DATA_DIR = platformdirs.user_data_path("lumesh")

ModelId = Annotated[str, typer.Option(help="A model of the catalogue; `models` lists them.")]
Prompt = Annotated[str, typer.Option(help="What the picture shows.")]
NegativePrompt = Annotated[str | None, typer.Option(help="What it must not show.")]
ShapeText = Annotated[str | None, typer.Option(help="WIDTHxHEIGHT[xFRAMES], one of the model's shapes.")]
Height = Annotated[int | None, typer.Option(help="Pixels; with --width instead of --shape.")]
Width = Annotated[int | None, typer.Option(help="Pixels; with --height instead of --shape.")]
Frames = Annotated[int | None, typer.Option(help="Of a video, 4n+1; with --width and --height.")]
FlowShift = Annotated[float | None, typer.Option(help="Moves the steps of flow models towards the noise.")]
Fps = Annotated[int | None, typer.Option(help="Frames a second of a video.")]
Steps = Annotated[int | None, typer.Option(help="Denoising steps.")]
GuidanceScale = Annotated[float | None, typer.Option(help="Classifier-free guidance; 1 or less turns it off.")]
GuidanceScale2 = Annotated[float | None, typer.Option(help="Of a second expert; the first one's when left out.")]
Scheduler = Annotated[str | None, typer.Option(help="One of the model's schedulers; `models --json` lists them.")]
Seed = Annotated[int | None, typer.Option(help="Same seed, same picture (as in diffusers); drawn when left out.")]
BatchSize = Annotated[int, typer.Option(help="Pictures at once, with seeds seed, seed+1, ...")]
MeshText = Annotated[
    str | None,
    typer.Option(
        callback=check_mesh,
        help="Devices per axis, such as dp=2,sp=4; `throughput` for an output a chip; chosen for one when left out.",
    ),
]
TextEncoderUrl = Annotated[
    str | None,
    typer.Option(
        "--text-encoder-url",
        "--remote-url",
        help="Let another machine read the prompt: http://host:port of an encoder-server, or a public FLUX.2 encoder.",
    ),
]
TextEncoderToken = Annotated[
    str | None, typer.Option(envvar="LUMESH_TEXT_ENCODER_TOKEN", help="Bearer token for --text_encoder_url.")
]
Images = Annotated[
    list[Path] | None,
    typer.Option(
        "--image", help="Picture to start from or to refer to; give it again for more, where a model takes more."
    ),
]
Strength = Annotated[
    float | None,
    typer.Option(
        help="With --image where a model starts from it: how much is made anew, up to 1 for nearly all of it."
    ),
]
Loras = Annotated[
    list[str] | None,
    typer.Option(
        "--lora",
        metavar="REF[:SCALE]",
        help="LoRA of the data directory's loras folder, or a .safetensors file; give it again for more. A scale of 0 "
        "leaves it out.",
    ),
]
PackPaths = Annotated[
    list[Path] | None,
    typer.Option(
        "--pack",
        envvar="LUMESH_PACKS",
        exists=True,
        help="Compiled programs to load, or a folder of such packs; packs/ in the data directory is always looked "
        "into. A pack is code: use only those you trust.",
    ),
]
VerifyWeights = Annotated[
    bool,
    typer.Option(
        "--verify-weights", help="Compare the weights' SHA-256 with the hub's or with the folder's SHA256SUMS."
    ),
]
KeepLayouts = Annotated[
    bool,
    typer.Option(
        "--keep-layouts",
        help="Keep a copy of the weights as they lie on the mesh: the next load reads that, half the bytes of a "
        "checkpoint in fp32.",
    ),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON object for scripts, and no progress.")]


@dataclass(frozen=True, kw_only=True)
class DataDirectory:
    """The data directory's parts that the command line uses."""

    data_dir: Path

    @property
    def cache_dir(self) -> Path:
        return self.data_dir / "cache" / "jax"

    @property
    def plan_cache_dir(self) -> Path:
        """Returns the cache of compilers' answers about programs for other machines."""
        return self.data_dir / "cache" / "plan"

    @property
    def packs_dir(self) -> Path:
        return self.data_dir / "packs"

    def list_packs(self, given: Sequence[Path] | None) -> list[Path]:
        """Lists files and folders that may hold compiled programs."""
        return [*(given or ()), *([self.packs_dir] if self.packs_dir.is_dir() else [])]

    @property
    def catalog(self) -> Catalog:
        return load_catalog(self.data_dir / "models", self.data_dir / "loras")


def make_folder(option: str, folder: Path) -> None:
    """Makes a folder that is written to after minutes of work; raises RecipeError if that cannot work."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise RecipeError({option: english(f"{folder} cannot be a folder to write to: {error.strerror}")}) from error
    if not os.access(folder, os.W_OK):
        raise RecipeError({option: english(f"{folder} may not be written")})


def choose_shape(shape: str | None, width: int | None, height: int | None, frames: int | None = None) -> str | None:
    """Returns `--shape`, or `--width` and `--height` [and `--frames`] as a shape; raises RecipeError otherwise."""
    if (width is None) != (height is None):
        raise RecipeError({"shape": english("--width and --height go together")})
    if width is None or height is None:
        if frames is not None:
            raise RecipeError(
                {"shape": english("--frames goes with --width and --height; --shape has its own: 832x480x33")}
            )
        return shape
    if width < 1 or height < 1:
        raise RecipeError({"shape": english(f"{width}x{height} is not a size in pixels")})
    if frames is not None and (frames < 1 or frames % VIDEO_STRIDE != 1):
        raise RecipeError({"shape": english(f"{frames} frames: a video has 4n+1 of them, such as 17, 33 or 81")})
    size = str(Shape(width=width, height=height, frames=frames or 1))
    if shape is not None and shape != size:
        raise RecipeError(
            {"shape": english(f"--shape {shape} contradicts --width, --height and --frames, which say {size}")}
        )
    return size


def read_loras(given: Sequence[str] | None) -> list[dict[str, Any]] | None:
    """Parses `REF[:SCALE]` into a recipe's LoRAs; a file elsewhere is named by its whole path without the suffix."""
    if not given:
        return None
    loras: list[dict[str, Any]] = []
    for text in given:
        match = re.fullmatch(r"(.+):([-+.\w]+)", text)
        ref, scale = text, 1.0
        if match is not None:
            with contextlib.suppress(ValueError):
                ref, scale = match[1], float(match[2])
        file = Path(ref)
        if file.suffix == SUFFIX:
            is_elsewhere = len(file.parts) > 1 or file.is_file()
            ref = str(file.resolve().with_suffix("")) if is_elsewhere else file.stem
        loras.append({"ref": ref, "scale": scale})
    return loras


def make_recipe(catalog: Catalog, fields: dict[str, Any]) -> Recipe:
    """Makes a resolved recipe from the given options; raises RecipeError.

    Only here may LoRAs be files anywhere: whoever types a path on the command line can read the file anyway.
    """
    recipe = read_recipe({name: value for name, value in fields.items() if value is not None})
    refs = [lora.ref for lora in recipe.loras if Path(lora.ref).is_absolute()]
    return resolve(recipe, replace(catalog, own_loras=tuple(map(_read_own_lora, refs))))


def _read_own_lora(ref: str) -> LoraFile:
    file = Path(f"{ref}{SUFFIX}")
    lora = read_lora(file)
    if lora is None:
        reason = f"is no LoRA for {name_families()}" if file.is_file() else "is not there"
        raise RecipeError({"loras": english(f"{file} {reason}")})
    return replace(lora, ref=ref)


def print_json(value: Any) -> None:
    typer.echo(json.dumps(value))

"""The catalogue: which models there are, and in which fixed shapes each of them runs.

A shape is a fixed resolution preset and means one compiled program; nothing outside a model's list ever runs, so
nothing recompiles while people work. Read from `presets/models.toml`, plus every folder in diffusers layout under the
data directory's `models/`.
Not here: loading weights (runtime/weights/stored.py), which programs are warm (the worker knows).
"""

import functools
import json
import math
import re
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, cast

from pipelines.errors import ModelError
from pipelines.families import find_traits, list_traits
from pipelines.families.traits import Traits
from pipelines.loras import LoraFile, find_loras
from pipelines.messages import say

PRESETS_DIR = Path(__file__).resolve().parent.parent / "presets"
CATALOG_FILE = PRESETS_DIR / "models.toml"
VIDEO_STRIDE = 4  # frames per latent frame after the first


@dataclass(frozen=True, kw_only=True, order=True)
class Shape:
    """A fixed output size in pixels; `frames` is 1 for pictures."""

    width: int
    height: int
    frames: int = 1

    @classmethod
    def parse(cls, text: str) -> "Shape":
        """Reads `1024x1024` or `1280x720x81`; raises ValueError for anything else."""
        match = re.fullmatch(r"(\d{1,5})x(\d{1,5})(?:x(\d{1,4}))?", text.strip().lower())
        if match is None:
            raise ValueError(
                say(
                    "{text} is not a shape; write WIDTHxHEIGHT or WIDTHxHEIGHTxFRAMES, such as 1024x1024",
                    text=repr(text),
                )
            )
        width, height, frames = (int(part) if part else 1 for part in match.groups())
        return cls(width=width, height=height, frames=frames)

    def __str__(self) -> str:
        size = f"{self.width}x{self.height}"
        return size if self.frames == 1 else f"{size}x{self.frames}"


@dataclass(frozen=True, kw_only=True)
class AttentionOptions:
    """Changes to a video model's attention, which is otherwise full attention with unmodified keys.

    With a `window` a video token attends only to tokens at most that many positions before or after it, in one order
    over frames, rows and columns; the whole text is always visible. `smooths_keys` subtracts the keys' mean, which
    leaves attention mathematically unchanged and reduces bf16's rounding errors.
    """

    smooths_keys: bool = False
    window: int | None = None

    def __post_init__(self) -> None:
        if self.window is not None and self.window < 1:
            raise ModelError(
                say("There is no window of {count} tokens.", count=self.window),
                advice=say("Write 1 or more, or leave it out."),
            )


@dataclass(frozen=True, kw_only=True)
class Model:
    """One catalogue entry. `path` is a local diffusers folder; without it the hub's `repo` at `revision` is used.

    Some fields are set only for some models: `fps` for video, `flow_shift` if the scheduler takes one (`flow_shifts`
    for single shapes), `guidance_scale_2` if a second expert ends the denoising, `max_images` if a recipe may have
    input pictures and `min_images` if it must, `strength` if denoising starts from that picture instead of noise, and
    `attention` in families that take such options.

    `text_length` is the longest prompt in tokens, padding included, unless the tokenizer's own limit is lower.
    `file_names` is a pattern that matches other programs' names for its file, reduced to letters and digits.
    `loras_dir` is the folder of its recipes' LoRAs.
    """

    id: str
    title: str
    family: str
    shapes: tuple[Shape, ...]
    default_shape: Shape
    steps: int
    guidance_scale: float
    scheduler: str
    schedulers: tuple[str, ...]
    repo: str = ""
    revision: str = ""
    path: Path | None = None
    licence: str = ""
    file_names: str = ""
    description: str = ""
    knows: str = ""
    examples: tuple[str, ...] = ()
    negative_prompt: str = ""
    max_batch_size: int = 8
    max_steps: int = 100
    max_guidance_scale: float = 20.0
    variant: str = ""
    fps: int | None = None
    flow_shift: float | None = None
    flow_shifts: Mapping[str, float] = field(default_factory=dict[str, float])
    guidance_scale_2: float | None = None
    strength: float | None = None
    text_length: int = 512
    min_images: int = 0
    max_images: int = 0
    attention: AttentionOptions = AttentionOptions()
    is_demo: bool = False
    loras_dir: Path | None = None

    def __post_init__(self) -> None:
        assert self.default_shape in self.shapes, f"{self.id}: {self.default_shape} is not one of its shapes"
        assert self.scheduler in self.schedulers, f"{self.id}: {self.scheduler} is not one of its schedulers"
        assert not self.flow_shifts.keys() - set(map(str, self.shapes)), f"{self.id}: flow_shifts of unknown shapes"
        if self.attention != AttentionOptions() and not self.traits.takes_attention_options:
            takers = ", ".join(family for family, traits in list_traits() if traits.takes_attention_options)
            raise ModelError(
                say(
                    "{model}: attention options are for models of the family {families}: elsewhere tokens of the text "
                    "stand before those of the picture, or lie in two dimensions, and a window would cut across both.",
                    model=self.id,
                    families=takers,
                ),
                advice=say("Remove the model's attention from presets/models.toml."),
            )
        for shape in self.shapes:
            fits = shape.frames % VIDEO_STRIDE == 1 if self.is_video else shape.frames == 1
            assert fits, f"{self.id}: {shape} has {shape.frames} frames; videos have 4n + 1 and pictures 1"

    @property
    def traits(self) -> Traits:
        """Returns the traits that all models of its family have in common."""
        return find_traits(self.family)

    @property
    def is_video(self) -> bool:
        return self.fps is not None

    @property
    def has_references(self) -> bool:
        """Returns whether a recipe's images become tokens beside the new picture's, so that programs depend on them."""
        return self.traits.has_references

    def choose_flow_shift(self, shape: str) -> float | None:
        """Returns the default for a shape: larger pictures are denoised at higher noise levels."""
        return self.flow_shifts.get(shape, self.flow_shift)

    def find_nearest_shape(self, width: int, height: int, frames: int) -> Shape:
        """Returns the shape nearest to a size: proportions count four times as much as area, frames only break ties."""

        def distance(shape: Shape) -> tuple[float, int]:
            ratio = abs(math.log((width / height) / (shape.width / shape.height)))
            area = abs(math.log((width * height) / (shape.width * shape.height)))
            return round(4 * ratio + area, 9), abs(frames - shape.frames)

        return min(self.shapes, key=distance)

    def shape_list(self) -> str:
        """Returns the allowed shapes for messages: `256x256, 320x192`."""
        return ", ".join(str(shape) for shape in self.shapes)


@dataclass(frozen=True)
class Catalog:
    """The models of this machine, in the order they are shown, and the folder of its LoRAs.

    `own_loras` are LoRA files elsewhere, which only the command line may name.
    """

    models: tuple[Model, ...]
    loras_dir: Path | None = None
    own_loras: tuple[LoraFile, ...] = ()

    def get(self, model_id: str) -> Model:
        """Returns a model by id; raises ModelError for an unknown one, naming the known ones."""
        for model in self.models:
            if model.id == model_id:
                return model
        known = ", ".join(model.id for model in self.models)
        raise ModelError(
            say("There is no model {model}.", model=repr(model_id)), advice=say("Known models: {names}.", names=known)
        )

    def find_loras(self) -> tuple[LoraFile, ...]:
        """Lists the LoRAs that recipes may name, reading the folder anew."""
        return self.own_loras + (find_loras(self.loras_dir) if self.loras_dir is not None else ())

    @property
    def default(self) -> Model:
        return self.models[0]


def load_catalog(
    models_dir: Path | None = None, loras_dir: Path | None = None, *, file: Path = CATALOG_FILE
) -> Catalog:
    """Loads the shipped models and the folders in `models_dir` (a user's own checkpoints, diffusers layout).

    Raises ModelError if a user's folder has a `model_index.json` that cannot be read.
    """
    shipped = _read_shipped(file)
    local = _find_local(models_dir, shipped) if models_dir else ()
    return Catalog(tuple(replace(model, loras_dir=loras_dir) for model in shipped + local), loras_dir)


@functools.cache
def _read_shipped(file: Path) -> tuple[Model, ...]:
    entries = tomllib.loads(file.read_text("utf-8"))["model"]
    return tuple(_read_entry(entry) for entry in entries)


def _read_entry(entry: dict[str, Any]) -> Model:
    entry = dict(entry)
    entry["shapes"] = tuple(Shape.parse(text) for text in entry["shapes"])
    entry["default_shape"] = Shape.parse(entry["default_shape"])
    for name in ("schedulers", "examples"):
        entry[name] = tuple(entry.get(name, ()))
    if "path" in entry:
        entry["path"] = PRESETS_DIR / entry["path"]
    if "attention" in entry:
        entry["attention"] = _read_attention(entry["id"], entry["attention"])
    return Model(**entry)


def _read_attention(model_id: str, options: Any) -> AttentionOptions:
    advice = say("Write such as { smooths_keys = true, window = 4096 }; either may be left out.")
    if not isinstance(options, dict):
        raise ModelError(
            say("{model}: attention is a table, not {value}.", model=model_id, value=repr(options)), advice=advice
        )
    kinds = {"smooths_keys": bool, "window": int}
    for name, value in cast(dict[str, Any], options).items():
        if name not in kinds:
            raise ModelError(
                say("{model}: there is no attention option {name}.", model=model_id, name=name), advice=advice
            )
        if type(value) is not kinds[name]:
            raise ModelError(
                say("{model}: {name} cannot be {value}.", model=model_id, name=name, value=repr(value)), advice=advice
            )
    return AttentionOptions(**cast(dict[str, Any], options))


def _find_local(models_dir: Path, shipped: Sequence[Model]) -> tuple[Model, ...]:
    found: list[Model] = []
    taken = {model.id for model in shipped}
    for index_file in sorted(models_dir.glob("*/model_index.json")):
        folder = index_file.parent
        model_id = re.sub(r"[^a-z0-9.]+", "-", folder.name.lower()).strip("-")
        model = None if model_id in taken else _read_local(folder, model_id, shipped)
        if model is not None:
            found.append(model)
            taken.add(model_id)
    return tuple(found)


def _read_local(folder: Path, model_id: str, shipped: Sequence[Model]) -> Model | None:
    """Reads a user's folder as a catalogue entry; returns None if its pipeline belongs to no supported family.

    Shapes and defaults are those of the shipped model it resembles most.
    """
    try:
        index = json.loads((folder / "model_index.json").read_text("utf-8"))
        pipeline_class = index["_class_name"]
        traits = next((traits for _, traits in list_traits() if pipeline_class in traits.pipeline_classes), None)
        if traits is None or traits.read_local is None:
            return None
        likeness = traits.read_local(folder, index)
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ModelError(
            say(
                "The model folder {folder} is not a complete diffusers checkpoint: {error}.", folder=folder, error=error
            ),
            advice=say("Copy the whole folder that save_pretrained() wrote, or remove it."),
        ) from error
    template = next(model for model in shipped if model.id == likeness.model_id)
    shapes = template.shapes
    if likeness.size is not None:
        width, height = likeness.size
        shapes = (Shape(width=width, height=height),)
    return replace(
        template,
        id=model_id,
        title=folder.name,
        repo="",
        revision="",
        variant="",
        path=folder,
        licence="",
        file_names="",
        description="Your own checkpoint, from the data directory.",
        examples=(),
        negative_prompt="",
        shapes=shapes,
        default_shape=shapes[0],
    )

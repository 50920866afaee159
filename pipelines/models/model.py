"""One model of the catalogue, its fixed sizes, and what holds for every entry.

Programs depend on these fields, and on none of the code that reads them from files (catalog.py).
"""

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Self

from pipelines.errors import ModelError
from pipelines.families import find_traits, list_traits
from pipelines.families.traits import Traits
from pipelines.messages import Message, say
from pipelines.recipes.cache_kinds import MAGCACHE
from pipelines.recipes.step_cache import StepCache

VIDEO_STRIDE = 4  # frames per latent frame after the first

FULL, INT8, W8A8 = WEIGHTS = ("full", "int8", "w8a8")
"""How a model's weights lie on the devices: as it computes, or its large matrices in int8 (runtime/weights/int8.py).

With W8A8 (8 bits of weights, 8 of activations) denoisers also round what they multiply with these matrices.
"""

_OF_LOADING = (
    "id", "family", "repo", "revision", "path", "file", "file_2", "base", "vae", "variant", "scheduler_changes",
    "text_length", "max_batch_size", "attention", "weights",
)  # fmt: skip


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
class Example:
    """A prompt that works; with a `seed` everybody gets the same picture, by the model's default settings and size."""

    prompt: str
    seed: int | None = None


@dataclass(frozen=True, kw_only=True)
class AttentionOptions:
    """Changes to a video model's attention, which is otherwise full attention with unmodified keys.

    With a `window` a video token attends only to tokens at most that many positions before or after it, in one order
    over frames, rows and columns; the whole text is always visible. `smooths_keys` subtracts the keys' mean, which
    leaves attention mathematically unchanged and reduces bf16's rounding errors. `bounds_logits` spares the kernel for
    TPU the maximum of logits that are small by the lengths of queries and keys, which leaves attention unchanged too.
    """

    smooths_keys: bool = False
    bounds_logits: bool = False
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

    A single-file checkpoint is a `file`, and `base` is the model whose configs, tokenizers and programs it has, and of
    which it takes the components that the file has not got; `file_2` holds the second of two experts. `vae` is an
    autoencoder of its own, a file or a folder; `source` is where a file was downloaded from.
    `scheduler_changes` are what its scheduler's config says otherwise than
    that of the folder.

    Some fields are set only for some models: `fps` for video, `flow_shift` if the scheduler takes one (`flow_shifts`
    for single shapes), `guidance_scale_2` if a second expert ends the denoising, `max_images` if a recipe may have
    input pictures and `min_images` if it must (2 are a first and a last one), `strength` if denoising starts from that
    picture instead of noise, and `attention` in families that take such options.

    `text_length` is the length of every prompt in tokens, padding included, where the text encoder has none of its own:
    diffusers' `max_sequence_length`, for which a tokenizer's own limit does not count either.
    `file_names` is a pattern that matches other programs' names for its file, reduced to letters and digits.
    `learns_from` is the repository of the weights that it was distilled from, from which training starts.
    Without `schedulers` its recipes may name all of its family's.
    `weights` is one of WEIGHTS. `loras_dir` is the folder of its recipes' LoRAs. `step_cache` is what is known of its
    steps, if anything is. More than `useful_steps` make nothing better: the page's slider ends there, while recipes may
    have up to `max_steps`.
    """

    id: str
    title: str
    family: str
    shapes: tuple[Shape, ...]
    default_shape: Shape
    steps: int
    guidance_scale: float
    scheduler: str
    schedulers: tuple[str, ...] = ()
    repo: str = ""
    revision: str = ""
    path: Path | None = None
    file: Path | None = None
    file_2: Path | None = None
    base: "Model | None" = None
    vae: Path | None = None
    scheduler_changes: Mapping[str, Any] = field(default_factory=dict[str, Any])
    licence: str = ""
    source: str = ""
    file_names: str = ""
    learns_from: str = ""
    description: str = ""
    knows: str = ""
    examples: tuple[Example, ...] = ()
    negative_prompt: str = ""
    max_batch_size: int = 8
    max_steps: int = 100
    useful_steps: int | None = None
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
    weights: str = FULL
    is_demo: bool = False
    loras_dir: Path | None = None
    step_cache: StepCache | None = None

    def __post_init__(self) -> None:
        if not self.schedulers:
            object.__setattr__(self, "schedulers", self.traits.schedulers or (self.scheduler,))
        self._check(self.shapes, say("it has no shapes"))
        self._check(
            self.default_shape in self.shapes, say("{shape} is not one of its shapes", shape=str(self.default_shape))
        )
        self._check(
            self.scheduler in self.schedulers, say("{scheduler} is not one of its schedulers", scheduler=self.scheduler)
        )
        self._check(
            self.weights in WEIGHTS,
            say("its weights are {name}; allowed: {names}", name=repr(self.weights), names=", ".join(WEIGHTS)),
        )
        unknown = sorted(self.flow_shifts.keys() - set(map(str, self.shapes)))
        names = ", ".join(unknown)
        self._check(not unknown, say("flow_shifts names {names}, which are not among its shapes", names=names))
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
            self._check(
                fits,
                say(
                    "{shape} has {frames} frames; videos have 4n + 1 and pictures 1",
                    shape=str(shape),
                    frames=shape.frames,
                ),
            )

    def _check(self, is_so: object, problem: Message) -> None:
        if not is_so:
            raise ModelError(
                say("{id}: {problem}.", id=self.id, problem=problem), advice=say("Correct its entry in models.toml.")
            )

    @property
    def traits(self) -> Traits:
        """Returns the traits that all models of its family have in common."""
        return find_traits(self.family)

    @property
    def cache_kinds(self) -> tuple[str, ...]:
        """Lists the kinds of step cache that its runs can have: MagCache only once its ratios are known."""
        return tuple(kind for kind in self.traits.cache_kinds if kind != MAGCACHE or self.step_cache is not None)

    @property
    def in_place(self) -> "Model":
        """Returns the model in whose folder or repository its configs, tokenizers and missing components are."""
        return self.base or self

    @property
    def own_files(self) -> tuple[Path, ...]:
        """Returns the files that hold its weights instead of a folder: of a VAE's folder all."""
        vae = () if self.vae is None else (self.vae,) if self.vae.is_file() else sorted(self.vae.glob("*.safetensors"))
        return (*(one for one in (self.file, self.file_2) if one is not None), *vae)

    @property
    def program_id(self) -> str:
        """Returns the id under which its programs are planned and packed: a single file's are those of its base."""
        return self.in_place.id

    def choose_start(self, *, revision: str | None = None, variant: str | None = None) -> Self:
        """Returns the model whose weights a training starts from: itself, or what it was distilled from.

        `revision` and `variant` replace that one's own.
        """
        has_other = self.path is None and self.file is None and self.learns_from
        start = replace(self, repo=self.learns_from, revision="main", variant="") if has_other else self
        chosen = {"revision": revision, "variant": variant}
        return replace(start, **{name: value for name, value in chosen.items() if value is not None})

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

    def is_loaded_like(self, other: "Model") -> bool:
        """Tells whether a loaded `other` serves for this model: entries differ at most in sizes, defaults and words."""
        return all(getattr(self, name) == getattr(other, name) for name in _OF_LOADING)

    def shape_list(self) -> str:
        """Returns the allowed shapes for messages: `256x256, 320x192`."""
        return ", ".join(str(shape) for shape in self.shapes)

"""What a family can do, and how its checkpoints and LoRAs are recognised, without loading its code.

The catalogue, the page and REST use it, so neither this file nor a family's own traits.py imports jax or torch.
Not here: the code that runs the family (protocol.py).
"""

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from pipelines.messages import Message

# Prefixes that trainers put before a transformer's tensor names in a LoRA.
LORA_PREFIX = (
    r"^(transformer\.|transformer_2\.|unet\.|(model\.)?diffusion_model\.)?(base_model\.model\.(transformer\.|unet\.)?)?"
)
# The same of trainers that write _ for the dots of a name.
LORA_STEM = r"^(lora_unet_+|lora_transformer_(2_)?|lycoris_)"

# What stands before a transformer's names in single files: its authors' write nothing, ComfyUI's do.
FILE_PREFIXES = ("model.diffusion_model.", "diffusion_model.", "")

_NOTHING = re.compile(r"(?!)")


class Likeness(NamedTuple):
    """The shipped model whose settings a user's folder gets, and the only size it runs in, if it is smaller.

    With `most_pixels` it gets only the sizes whose frames have no more.
    """

    model_id: str
    size: tuple[int, int] | None = None
    most_pixels: int | None = None


class Unsupported(Exception):  # noqa: N818 - a finding about a folder; the catalogue makes an error of it
    """Raised by a `ReadLocal` for a whole checkpoint that no code here runs; `kind` says what it is: `a Wan VACE`."""

    def __init__(self, kind: Message) -> None:
        super().__init__(kind)
        self.kind = kind


ReadLocal = Callable[[Path, Mapping[str, Any]], Likeness]
"""Reads a folder in diffusers layout and its model_index.json.

Raises OSError, KeyError or ValueError if it is incomplete, Unsupported if no code here runs such a model.
"""


@dataclass(frozen=True, kw_only=True)
class FileHeader:
    """What the header of a single file of weights says: each tensor's shape, and the file's metadata.

    `name` is the file's, without its ending.
    """

    name: str
    shapes: Mapping[str, tuple[int, ...]]
    metadata: Mapping[str, str] = field(default_factory=dict[str, str])

    def strip(self, mark: str) -> Mapping[str, tuple[int, ...]] | None:
        """Returns the shapes of a transformer's tensors, named as its authors do; None if `mark` is not among them."""
        prefix = next((one for one in FILE_PREFIXES if one + mark in self.shapes), None)
        if prefix is None:
            return None
        return {name.removeprefix(prefix): shape for name, shape in self.shapes.items() if name.startswith(prefix)}


@dataclass(frozen=True, kw_only=True)
class FileLikeness:
    """What a single-file checkpoint is: the components that it holds, and the shipped models that it may be like.

    `model_ids` come in the order in which they are likely; `layout` is whose names its tensors have, for people.
    `is_expert`: it is one of two files that make a model together. `scheduler_changes` are what its scheduler says
    otherwise than theirs, `notes` what was found out or guessed.
    """

    layout: Message
    components: frozenset[str]
    model_ids: tuple[str, ...]
    is_expert: bool = False
    scheduler_changes: Mapping[str, Any] = field(default_factory=dict[str, Any])
    notes: tuple[Message, ...] = ()


ReadFile = Callable[[FileHeader], FileLikeness | None]
"""Reads the header of a single file; returns None if it is none of the family's.

Raises Unsupported for one of the family's relatives that no code here runs.
"""


Sizes = Mapping[str, int]
"""What a size is called -> its value, such as the width of a transformer."""


@dataclass(frozen=True, kw_only=True)
class LoraTraits:
    """What can be told of a family's LoRAs from the header of a file.

    `names` matches tensors' names of the family; where another family has the same, `owns(names, sizes)` tells whether
    such a file is this one's. `measure_layers(layer -> its rows and columns)` finds the sizes of the model that a LoRA
    was made for, `measure_model(folder of configs)` those of a model: where both know a size, it must be the same.
    `find_expert(text)` reads for which of a model's two experts (`high`, `low` noise) a file of this name is, "" for
    both. `example` is the name of a tensor that is the family's without doubt, for files that pretend to be LoRAs.
    """

    names: re.Pattern[str] = _NOTHING
    owns: Callable[[Iterable[str], Sizes], bool] = lambda _names, _sizes: True
    measure_layers: Callable[[Mapping[str, tuple[int, int]]], Sizes] = lambda _layers: {}
    measure_model: Callable[[Path], Sizes] = lambda _folder: {}
    find_expert: Callable[[str], str] = lambda _text: ""
    example: str = "nothing.weight"


@dataclass(frozen=True, kw_only=True)
class Traits:
    """The facts about one family that are shown to people, or that code needs before loading it.

    `pipeline_classes` are diffusers' class names from model_index.json; `unsupported` maps those of the family's
    relatives that no code here runs to what they are, for people. `loras` is what their headers tell of LoRAs.
    `read_file` recognises its single-file checkpoints, and `fits_file(header, folder)` tells whether the configs in a
    folder are those of such a file.
    `has_references`: a recipe's pictures are extra tokens beside the new one's, so programs differ by their number and
    size. `has_remote_encoder`: another machine may encode its prompts. `takes_attention_options`: its tokens have one
    order over frames, rows and columns. `takes_distilled_guidance`: the guidance scale may be an input of the model.
    `has_fixed_text_length`: its text encoders read as many tokens as their tokenizers say. `tokenizer` is the kind of
    its text encoder's first tokenizer (prompts/pieces.py), "" if it has none; `reads_weights`: (word:1.2) weighs a
    word; `text_chunks`: a long prompt is read as up to this many texts. `cache_kinds` are the step caches that
    its denoiser can have (recipes/cache_kinds.py): MAGCACHE only where it is one stack of layers. `schedulers` are
    those that its recipes may name (recipes/schedulers.py), unless a model allows fewer.
    """

    title: str
    pipeline_classes: tuple[str, ...] = ()
    unsupported: Mapping[str, Message] = field(default_factory=dict[str, Message])
    read_local: ReadLocal | None = None
    read_file: ReadFile = lambda _header: None
    fits_file: Callable[[FileHeader, Path], bool] = lambda _header, _folder: False
    loras: LoraTraits = LoraTraits()
    has_references: bool = False
    has_remote_encoder: bool = False
    takes_attention_options: bool = False
    takes_distilled_guidance: bool = False
    has_fixed_text_length: bool = False
    tokenizer: str = ""
    reads_weights: bool = False
    text_chunks: int = 1
    cache_kinds: tuple[str, ...] = ()
    schedulers: tuple[str, ...] = ()

"""What is known of a family of models without its code: which checkpoints and LoRAs are its own, and what it can do.

The catalogue, the page and REST ask it, so nothing here and in a family's own traits.py imports jax or torch.
Not here: the code that runs the family (protocol.py).
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

# What trainers put before the name of a transformer's tensor in a LoRA.
LORA_PREFIX = r"^(transformer\.|transformer_2\.|diffusion_model\.|base_model\.model\.)?"

_NOTHING = re.compile(r"(?!)")


class Likeness(NamedTuple):
    """The shipped model whose settings a user's folder takes, and the only size it runs in, if it is not as large."""

    model_id: str
    size: tuple[int, int] | None = None


ReadLocal = Callable[[Path, Mapping[str, Any]], Likeness]
"""From a folder in diffusers layout and its model_index.json; what is missing raises OSError, KeyError or ValueError"""


@dataclass(frozen=True, kw_only=True)
class Traits:
    """One family, for people and for those that decide without loading it.

    `pipeline_classes` are diffusers' classes, as model_index.json names them; `lora_names` matches the names of tensors
    in the family's LoRAs. `has_references`: pictures of a recipe stand beside the new one, so that programs differ by
    their number and size. `has_remote_encoder`: another machine may read its prompts. `takes_attention_options`: its
    tokens have one order over frames, rows and columns. `takes_distilled_guidance`: the guidance scale may be an input
    of the model.
    """

    title: str
    pipeline_classes: tuple[str, ...] = ()
    read_local: ReadLocal | None = None
    lora_names: re.Pattern[str] = _NOTHING
    has_references: bool = False
    has_remote_encoder: bool = False
    takes_attention_options: bool = False
    takes_distilled_guidance: bool = False

"""What layers are called in a LoRA file that is written; a family's loras.py says it for its own.

Not here: how names are read (runtime/weights/lora_spelling.py), and tensors (training/results/export.py).
"""

from collections.abc import Mapping
from dataclasses import dataclass

KOHYA = "lora_unet_"  # what kohya's trainers put before a denoiser's names, in which they write _ for dots


@dataclass(frozen=True, kw_only=True)
class FileNames:
    """What a LoRA file that is written calls the layers of a denoiser.

    `layers` maps names in the file to the layers that each is, of which several are one there, whose rows they share in
    this order. Of the names in `exchanged` the two halves of the rows change places. With a `network_module`, which is
    the code of kohya's trainers that reads it, parts are called as there, with a tensor for alpha; else as peft's.
    """

    layers: Mapping[str, tuple[str, ...]]
    exchanged: frozenset[str] = frozenset()
    network_module: str = ""


def flatten(name: str) -> str:
    """Returns what kohya's trainers call a layer of a denoiser."""
    return KOHYA + name.replace(".", "_")

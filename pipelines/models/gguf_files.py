"""GGUF files: what their header says, in the form in which safetensors files say it (weight_files.py).

The format is that of ggml (github.com/ggml-org/ggml/blob/master/docs/gguf.md), read by its authors' own package.
Weights lie in blocks of 32 to 256 numbers with scales of their own. Importable without jax and torch.
Not here: the numbers that blocks stand for (runtime/weights/quantised.py).
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pipelines.errors import ModelError
from pipelines.messages import say

MAGIC = b"GGUF"
PLAIN = ("F64", "F32", "F16", "BF16", "I64", "I32", "I16", "I8")
"""The types that are stored as safetensors files store them, under the same names."""

# Programs that quantise write here which shape a tensor had before it was cut into rows of whole blocks (ComfyUI-GGUF).
_ORIGINAL_SHAPE = "comfy.gguf.orig_shape."


@dataclass(frozen=True, kw_only=True)
class Blocks:
    """How a quantised type lies in a file: `count` numbers in `size` bytes."""

    count: int
    size: int


def find_blocks(name: str) -> Blocks | None:
    """Returns how a type's numbers lie in a file; None for a type that the package cannot dequantise."""
    import gguf  # takes a while, and only who has such files needs it
    from gguf.quants import _type_traits  # which types `dequantize` knows

    kind = getattr(gguf.GGMLQuantizationType, name, None)
    if kind is None or kind not in _type_traits:
        return None
    count, size = gguf.GGML_QUANT_SIZES[kind]
    return Blocks(count=count, size=size)


def is_gguf(file: Path) -> bool:
    """Tells a GGUF file by its first bytes; raises OSError."""
    with file.open("rb") as stream:
        return stream.read(len(MAGIC)) == MAGIC


def read_gguf_header(file: Path) -> tuple[dict[str, Any], int]:
    """Returns a GGUF file's tensors as a safetensors header, and the position of its data, 0: offsets are the file's.

    Types are ggml's names, such as `Q4_K`; shapes are those of the model, outermost axis first. `__metadata__` holds
    the texts that the file has of itself. Raises ModelError for a file that ends too early, and for a type that cannot
    be read, and OSError.
    """
    import gguf

    try:
        reader = gguf.GGUFReader(file)
        metadata = {
            name: str(field.contents())
            for name, field in reader.fields.items()
            if field.types == [gguf.GGUFValueType.STRING]
        }
        shapes = {
            name.removeprefix(_ORIGINAL_SHAPE): tuple(int(size) for size in field.contents())
            for name, field in reader.fields.items()
            if name.startswith(_ORIGINAL_SHAPE)
        }
        header: dict[str, Any] = {"__metadata__": metadata}
        for tensor in reader.tensors:
            shape = shapes.get(tensor.name, tuple(int(size) for size in reversed(tensor.shape)))
            if math.prod(shape) != tensor.n_elements:
                raise ValueError(tensor.name)
            start = int(tensor.data_offset)
            header[tensor.name] = {
                "dtype": tensor.tensor_type.name,
                "shape": [*shape],
                "data_offsets": [start, start + int(tensor.n_bytes)],
            }
    except (ValueError, LookupError, TypeError, OverflowError, RecursionError, MemoryError) as error:
        raise truncated_gguf(file) from error
    _refuse_unknown(file, header)
    return header, 0


def truncated_gguf(file: Path) -> ModelError:
    """Returns the error for a GGUF file that ends too early, or is none."""
    return ModelError(
        say("{file} is truncated or not a GGUF file.", file=file),
        advice=say("Delete it and download it again; an interrupted copy is the usual cause."),
    )


def _refuse_unknown(file: Path, header: Mapping[str, Any]) -> None:
    kinds = {entry["dtype"]: name for name, entry in header.items() if name != "__metadata__"}
    for kind, name in kinds.items():
        if kind not in PLAIN and find_blocks(kind) is None:
            raise ModelError(
                say("{name} in {file} is stored as {dtype}, which cannot be read here.",
                    name=name, file=file, dtype=kind),
                advice=say("Use a GGUF file in Q8_0, Q6_K, Q5_K, Q4_K or F16, say."),
            )  # fmt: skip

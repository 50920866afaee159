"""Finds the LoRA files of this machine, the family of models that each was made for, and what is wrong with others.

A LoRA is one `.safetensors` file in the data directory's `loras/` or a folder in it; its `ref` is the path of the file
there, without the suffix, or of the folder that peft has saved. Only headers are read, and those are untrusted: people
download these files from anywhere. Importable without jax, so the page and REST check recipes with it.

Not here: a family's tensor names (its lora_traits.py), whether a LoRA fits a model (lora_fit.py), what the tensors
mean and how they change weights (runtime/weights/lora.py).
"""

import functools
import json
import math
import os
import re
import stat
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

from pipelines.errors import ModelError
from pipelines.families import list_traits, name_families
from pipelines.families.traits import LORA_PREFIX, LORA_STEM, Sizes
from pipelines.loras.settings import ADAPTER_MODEL
from pipelines.loras.tensors import EMBEDDING_NAMES, OTHER_KINDS, is_of_text, measure, name_kind, split_name
from pipelines.messages import Message, say
from pipelines.models.weight_files import ARCHIVES, GGUF, OTHER_WEIGHTS, UNFINISHED

SUFFIX = ".safetensors"
MAX_HEADER_BYTES = 2**24  # a LoRA of every layer of Wan 14B has some 200 KB
MAX_TITLE_CHARS = 80
MAX_DIMENSIONS = 8
MAX_DEPTH = 8  # folders within folders
MAX_FILES = 10_000
TITLE_FIELDS = ("modelspec.title", "ss_output_name")
TITLE = say("This LoRA cannot be used")
ADVICE = say("Put the file into the loras folder of the data directory.")
_ENDINGS = (SUFFIX, GGUF, *OTHER_WEIGHTS, *UNFINISHED, *ARCHIVES)
HIGH, LOW = "high", "low"  # the noise level of a model's first and second expert

DTYPE_BITS = {
    **dict.fromkeys(("F64", "I64", "U64", "C64"), 64),
    **dict.fromkeys(("F32", "I32", "U32"), 32),
    **dict.fromkeys(("F16", "BF16", "I16", "U16"), 16),
    **dict.fromkeys(("F8_E4M3", "F8_E5M2", "F8_E8M0", "F8_E4M3FNUZ", "F8_E5M2FNUZ", "I8", "U8", "BOOL"), 8),
    **dict.fromkeys(("F6_E2M3", "F6_E3M2"), 6),
    "F4": 4,
}

# Unsupported models whose tensor names resemble a family's: FLUX.1, Qwen, LTX.
_OTHERS = r"(attn[12]|ff[._]net|(img|txt)_(mlp|mod))[._]"
_FOREIGN = re.compile(
    rf"[._]proj_mlp\.|_mod_lin\.|{LORA_PREFIX}transformer_blocks\.\d+\.{_OTHERS}"
    rf"|{LORA_STEM}transformer_blocks_\d+_{_OTHERS}"
)

_JOINED = re.compile(r"[._](to_(added_)?)?qkv$")  # queries, keys and values, which are layers of their own here

_UNMEASURED: Mapping[str, Mapping[str, tuple[int, ...]]] = MappingProxyType({})


@dataclass(frozen=True)
class LoraFile:
    """A file in the loras folder: its ref in recipes, its title for people, its family, and its size in bytes.

    `expert` is the one that it is for (`high` or `low` noise), where it says so; `kind` is LoRA, LoHa, LoKr or DoRA;
    `rank` is the largest of its pairs', 0 without any; `sizes` are those of the model that it was made for
    (families/traits.py). With a `problem` it cannot be used, and its family may be "".
    """

    ref: str
    title: str
    family: str
    path: Path
    size: int
    expert: str = ""
    kind: str = "LoRA"
    rank: int = 0
    sizes: Sizes = field(default_factory=dict[str, int])
    problem: Message | None = None


class _UnusableError(ValueError):
    """A file that is no LoRA of a supported family; `problem` is a clause about the file, begun with `it`."""

    def __init__(self, problem: Message) -> None:
        super().__init__(problem)
        self.problem = problem


def find_loras(folder: Path) -> tuple[LoraFile, ...]:
    """Lists a folder's LoRAs of the supported families by name, leaving out other and damaged files."""
    return tuple(lora for lora in list_lora_files(folder) if lora.problem is None)


def list_lora_files(folder: Path) -> tuple[LoraFile, ...]:
    """Lists all files of weights of a folder and its sub-folders by name, those that cannot be used with why."""
    found: dict[str, LoraFile] = {}
    for file in sorted(_walk(folder)):
        name = file.relative_to(folder).as_posix()
        if (problem := _explain_other(file)) is not None:
            found[name] = _refuse(file, name, problem)
            continue
        ref = name[: -len(SUFFIX)]
        inside = file.relative_to(folder).parent
        if file.name == ADAPTER_MODEL and inside.name and not (folder / f"{inside}{SUFFIX}").exists():
            ref = inside.as_posix()  # what peft saves is a folder, whose files have the same names everywhere
        lora = inspect_lora(file, ref=ref)
        if ref in found:
            lora = replace(lora, ref=name, problem=say("it has the name of another file"))
        found[lora.ref] = lora
    return tuple(found[ref] for ref in sorted(found))


def read_lora(file: Path, *, ref: str = "") -> LoraFile | None:
    """Reads a file's header; returns None if it is not a LoRA of a supported family, or not readable."""
    lora = inspect_lora(file, ref=ref)
    return lora if lora.problem is None else None


def inspect_lora(file: Path, *, ref: str = "") -> LoraFile:
    """Reads a file's header, or says in `problem` why it is no LoRA here; `ref` is its name in recipes if not its own.

    Never waits: what is no regular file is not opened.
    """
    ref = ref or file.name[: -len(SUFFIX) if file.name.lower().endswith(SUFFIX) else None]
    try:
        status = file.stat()
        if not stat.S_ISREG(status.st_mode):
            raise _UnusableError(say("it is no regular file"))
        return _read(file, ref, status.st_mtime_ns, status.st_size)
    except OSError as error:
        return _refuse(file, ref, say("it cannot be read: {reason}", reason=error.strerror or type(error).__name__))
    except _UnusableError as error:
        return _refuse(file, ref, error.problem)


def get_lora(ref: str, folder: Path | None) -> LoraFile:
    """Returns the LoRA file of a resolved recipe's `ref`; raises ModelError if it no longer exists.

    Only on the command line may a ref be an absolute path without its suffix; `resolve` refuses it from anyone else.
    """
    file = find_lora_file(ref, folder)
    lora = None if file is None else read_lora(file, ref=ref)
    if lora is None:
        raise ModelError(say("The LoRA {ref} is not on this machine any more.", ref=ref), advice=ADVICE, title=TITLE)
    return lora


def find_lora_file(ref: str, folder: Path | None) -> Path | None:
    """Returns the file that a ref names, below the folder unless it is an absolute path; None where there is none.

    A folder that peft has saved is named as its file would be.
    """
    place = Path(ref)
    if not place.is_absolute() and (folder is None or ".." in place.parts):
        return None
    parent = ((folder or Path()) / place).parent
    found = next((parent / name for name in _list_names(parent) if name[: -len(SUFFIX)] == place.name), None)
    if found is None and place.name and (inside := parent / place.name / ADAPTER_MODEL).is_file():
        return inside
    return found


def name_given(text: str) -> str:
    """Returns the ref of a LoRA as somebody names it on the command line, where it may be a file anywhere.

    A file elsewhere is named by its whole path without the suffix, a folder that peft has saved by its own.
    """
    file = Path(text)
    if file.suffix.lower() == SUFFIX:
        is_elsewhere = file.is_file() or file.is_absolute() or text.startswith(".")
        own = file.parent.resolve() / file.name  # the hub's cache has links to files without a suffix
        return str(own.with_suffix("")) if is_elsewhere else file.with_suffix("").as_posix()
    return str(file.resolve()) if (file / ADAPTER_MODEL).is_file() else text


def find_namesake(name: str, folder: Path) -> str | None:
    """Returns the ref of the LoRA of this name, whatever the case of its letters; None where there is none.

    Both would be one file on a disk that does not tell cases apart, and one word to people.
    """
    refs = [file[: -len(SUFFIX)] for file in _list_names(folder)]
    refs += [inside.parent.name for inside in folder.glob(f"*/{ADAPTER_MODEL}")]
    return next((ref for ref in sorted(refs, key=name.__ne__) if ref.casefold() == name.casefold()), None)


def _list_names(folder: Path) -> list[str]:
    try:
        return sorted(file.name for file in folder.iterdir() if file.name.lower().endswith(SUFFIX))
    except OSError:
        return []


def _walk(folder: Path, depth: int = 0, seen: frozenset[Path] = frozenset()) -> Iterator[Path]:
    """Yields the files below a folder, hidden ones left out; links to folders are followed, but never in a circle."""
    try:
        real = folder.resolve()
        entries = sorted(os.scandir(folder), key=lambda entry: entry.name)
    except OSError:
        return
    if real in seen:
        return
    for entry in entries[:MAX_FILES]:
        if entry.name.startswith("."):
            continue
        if entry.name.lower().endswith(_ENDINGS):
            yield Path(entry.path)
        elif depth < MAX_DEPTH and _is_folder(entry):
            yield from _walk(Path(entry.path), depth + 1, seen | {real})


def _explain_other(file: Path) -> Message | None:
    """Returns why a file of another ending cannot be used, as a clause about it; None for `.safetensors`."""
    ending = file.suffix.lower()
    if ending in UNFINISHED:
        return say("its download is not finished")
    if ending in ARCHIVES:
        return say("it is an archive; unpack it")
    return (
        None
        if ending == SUFFIX
        else say("it is a {ending} file; only {suffix} files are read", ending=ending, suffix=SUFFIX)
    )


def _is_folder(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_dir()
    except OSError:
        return False


def _refuse(file: Path, ref: str, problem: Message) -> LoraFile:
    return LoraFile(ref=ref, title=ref, family="", path=file, size=0, problem=problem)


@functools.lru_cache(maxsize=4096)
def _read(file: Path, ref: str, _mtime_ns: int, size: int) -> LoraFile:
    """Reads a regular file; an unusable one is cached, too."""
    lora = LoraFile(ref=ref, title=ref, family="", path=file, size=size)
    try:
        header = _read_header(file, size)
        metadata = header.pop("__metadata__", {})
        layers = _read_layers(header)
        family = find_family(header, layers)
        if family is None:
            raise _UnusableError(say("it is for another kind of model than {families}", families=name_families()))
    except _UnusableError as error:
        return replace(lora, problem=error.problem)
    traits = dict(list_traits())[family].loras
    titles = _list_titles(metadata)
    return replace(
        lora,
        title=next(iter(titles), ref),
        family=family,
        expert=_find_expert(header) or next(filter(None, map(traits.find_expert, (ref, *titles))), ""),
        kind=name_kind({part for parts in layers.values() for part in parts}),
        rank=_find_rank(layers),
        sizes=traits.measure_layers({layer: measure(parts) for layer, parts in layers.items()}),
    )


def _read_header(file: Path, size: int) -> dict[str, Any]:
    """Reads a safetensors header, in which every tensor lies within the file; raises _UnusableError for any other."""
    no_header = _UnusableError(say("it is no safetensors file, or its download was cut off"))
    with file.open("rb") as stream:
        length = int.from_bytes(stream.read(8), "little")
        if size < 8 or length > min(size - 8, MAX_HEADER_BYTES):
            raise no_header
        try:
            header = json.loads(stream.read(length))
        except (ValueError, RecursionError) as error:
            raise no_header from error
    if not isinstance(header, dict):
        raise no_header
    for name, entry in header.items():
        if name != "__metadata__":
            _check_tensor(name, entry, room=size - 8 - length)
    return header


def _check_tensor(name: str, entry: Any, *, room: int) -> None:
    """Raises _UnusableError for a tensor whose place or size cannot be."""
    try:
        begin, end = entry["data_offsets"]
        dtype, shape = entry["dtype"], entry["shape"]
        sizes = (begin, end, *shape)
        is_whole = len(sizes) <= MAX_DIMENSIONS + 2 and isinstance(dtype, str)
        is_whole = is_whole and all(type(number) is int and 0 <= number < 2**63 for number in sizes)
    except (TypeError, KeyError, ValueError):
        is_whole, begin, end, dtype, shape = False, 0, 0, "", ()
    if not is_whole or begin > end:
        raise _UnusableError(say("its header says nothing that can be about the tensor {name}", name=name[:80]))
    if end > room:
        raise _UnusableError(say("its tensor {name} ends behind the file, whose download was cut off", name=name[:80]))
    if dtype not in DTYPE_BITS:
        raise _UnusableError(say("its tensor {name} has a number format that is not known here", name=name[:80]))
    if (end - begin) * 8 != math.prod(shape) * DTYPE_BITS[dtype]:
        raise _UnusableError(say("its tensor {name} has another size than its shape says", name=name[:80]))


def _read_layers(header: Mapping[str, Any]) -> dict[str, dict[str, tuple[int, ...]]]:
    """Reads the shapes of each layer's parts; raises _UnusableError for no adapter, or one of an unknown kind."""
    layers: dict[str, dict[str, tuple[int, ...]]] = {}
    for name, entry in header.items():
        kind = next((kind for mark, kind in OTHER_KINDS if mark in name), None)
        if kind is not None:
            raise _UnusableError(say("it is an adapter of the kind {kind}, which is not applied here", kind=kind))
        split = split_name(name)
        if split is not None:
            layers.setdefault(split.module, {})[split.part] = tuple(entry["shape"])
    if header and header.keys() <= EMBEDDING_NAMES:
        raise _UnusableError(say("it is an embedding (textual inversion), and those are not used here"))
    if not any(parts.keys() - {"alpha"} for parts in layers.values()):
        raise _UnusableError(say("it holds nothing of a LoRA; a whole model belongs into the models folder"))
    return layers


def find_family(names: Iterable[str], layers: Mapping[str, Mapping[str, tuple[int, ...]]] = _UNMEASURED) -> str | None:
    """Returns the family that these tensor names belong to; None for a checkpoint, or a LoRA of another model.

    The shapes of the parts of its `layers`, where they are known, tell families with the same names apart.
    """
    names = [name for name in names if split_name(name) is not None]
    if not names or any(map(_FOREIGN.search, names)):
        return None
    measured = {layer: measure(parts) for layer, parts in layers.items()}
    for family, traits in reversed([*list_traits()]):  # SDXL comes last, as its names are the least specific
        own = traits.loras
        if any(map(own.names.search, names)) and own.owns(names, own.measure_layers(measured)):
            return family
    return None


def _find_rank(layers: Mapping[str, Mapping[str, tuple[int, ...]]]) -> int:
    """Returns the largest rank of the pairs, 0 without any.

    A pair for queries, keys and values in one may be theirs one upon the other, of three times the rank of each: such,
    and those of text encoders, count only where there are no others.
    """
    ranks = {layer: parts["down"][0] for layer, parts in layers.items() if parts.get("down")}
    of_one = [rank for layer, rank in ranks.items() if not _JOINED.search(layer) and not is_of_text(layer)]
    return max(of_one) if of_one else min(ranks.values(), default=0)


def _find_expert(names: Iterable[str]) -> str:
    """Returns the expert of a file whose tensors are all those of the second one."""
    parts = {name.partition(".")[0] for name in names if split_name(name) is not None}
    return LOW if parts == {"transformer_2"} else ""


def _list_titles(metadata: Any) -> list[str]:
    """Lists what the header calls the file, as plain text of one line."""
    fields = metadata if isinstance(metadata, dict) else {}
    found = (fields.get(name) for name in TITLE_FIELDS)
    texts = (title for title in found if isinstance(title, str))
    plain = (" ".join("".join(letter if letter.isprintable() else " " for letter in text).split()) for text in texts)
    return [title[:MAX_TITLE_CHARS] for title in plain if title]

"""What a training of all weights leaves: a folder in diffusers layout, which diffusers and the studio read.

It is the base's with another denoiser: of each component that its index names, the weights that the base is used with,
under their plain names, since diffusers reads no folder whose parts are of several variants. What the index names and
the base has not got (of Stable Diffusion's repositories the safety checker is not fetched) is taken out of the index.
What else lies with the base, such as the states of the training that made it, stays there. Nothing in the folder
depends on when or how often the training was interrupted.
Not here: LoRA files (export.py), parts that are not in the base's folder (own_parts.py), the card (card.py).
"""

import json
import shutil
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from huggingface_hub import save_torch_state_dict

from pipelines.errors import LumeshError, ModelError
from pipelines.files.whole import give_usual_mode, write_whole
from pipelines.messages import english
from pipelines.models.own_models import INDEX, LIKE, UNWEIGHTED
from pipelines.models.weight_files import OTHER_WEIGHTS, STEMS, SUFFIX, find_weight_files
from pipelines.runtime.sampling.preview import FILE_NAME as PREVIEW
from pipelines.runtime.weights.components import read_json
from pipelines.training.results.export import check_finite, convert, split_stacks
from pipelines.training.results.installing import CARD
from pipelines.training.settings import SavePrecision

DENOISER_STEM = "diffusion_pytorch_model"
SHARD_SIZE = "5GB"
_KEPT = (PREVIEW, "LICENSE*", "LICENCE*", "NOTICE*")
"""Files beside the index that go with the weights."""
_OTHER = (*OTHER_WEIGHTS, SUFFIX, ".msgpack", ".h5", ".onnx", ".onnx_data", ".pb")
"""Endings of weights that are not read where there are safetensors."""
_CHECKER = ("safety_checker", "requires_safety_checker")


class UnwrittenError(LumeshError):
    """A result that the disk refused."""


def list_components(index: Mapping[str, Any]) -> list[str]:
    """Lists the components that a model's index names."""
    return [name for name, entry in index.items() if isinstance(entry, list) and any(entry)]


def list_absent(base: Path, elsewhere: Collection[str] = ()) -> list[str]:
    """Lists the components that the base's index names and that lie neither in its folder nor `elsewhere`."""
    names = list_components(read_json(base / INDEX))
    return [name for name in names if name not in elsewhere and not _is_there(base / name)]


def measure_parts(base: Path, besides: Collection[str], variant: str) -> int:
    """Returns the bytes of the base's components `besides` these, as a result has them."""
    components = list_components(read_json(base / INDEX))
    names = [name for name in components if name not in besides and _is_there(base / name)]
    return sum(file.stat().st_size for name in names for _, file in list_files(base / name, variant))


def write_model(
    folder: Path,
    values: Mapping[str, np.ndarray],
    *,
    base: Path,
    component: str,
    variant: str,
    precision: SavePrecision,
    card: str,
    written: Mapping[str, Path],
    like: str = "",
    is_linked: bool = False,
) -> None:
    """Writes the base's folder with the denoiser `component` replaced by these weights.

    `written` says where components lie that are not the base's, of whose weights `variant` is taken. `like` is the
    shipped model whose sizes and settings the result has. If `is_linked`, other components' files are links. The
    denoiser is there whole, or as it was. Raises NotFiniteError, and UnwrittenError where the disk refuses.
    """
    check_finite(values)
    tensors = {name: convert(name, value, precision) for name, value in split_stacks(values).items()}
    try:
        folder.mkdir(parents=True, exist_ok=True)
        index = read_json(base / INDEX)
        for name in list_components(index):
            source = written.get(name, base / name)
            if name != component and _is_there(source):
                _take(source, folder / name, variant, is_linked=is_linked)
        _write_denoiser(folder / component, tensors, base / component)
        for pattern in _KEPT:
            for file in base.glob(pattern):
                shutil.copyfile(file, folder / file.name)
        write_whole(folder / INDEX, (json.dumps(_change(index, folder, like), indent=2) + "\n").encode())
        write_whole(folder / CARD, card.encode())
    except OSError as error:
        raise refuse(folder, error) from error


def refuse(folder: Path, error: Exception) -> UnwrittenError:
    """Returns what is to be said of a result that cannot be written."""
    return UnwrittenError(
        english(f"What was learnt could not be written to {folder}: {error}"),
        advice=english("Make room, and run the same command again: it goes on from the last state."),
    )


def save_weights(tensors: Mapping[str, torch.Tensor], folder: Path, stem: str) -> None:
    """Writes a component's weights, in several files if they are large; raises OSError."""
    try:
        save_torch_state_dict(
            dict(sorted(tensors.items())),
            folder,
            filename_pattern=stem + "{suffix}.safetensors",
            max_shard_size=SHARD_SIZE,
        )
    except Exception as error:  # safetensors has an error of its own for a disk that refuses
        if isinstance(error, OSError) or "I/O error" not in str(error):
            raise
        raise OSError(str(error)) from error
    for file in folder.glob(f"*{SUFFIX}"):
        give_usual_mode(file)


def list_files(component: Path, variant: str) -> Iterator[tuple[str, Path]]:
    """Yields each file of a component as it is called in a result, with where it is; of its weights one variant.

    Of a component without weights that are read here, such as a tokenizer, all.
    """
    try:
        weights = find_weight_files(component, variant=variant)
    except ModelError:
        for file in sorted(component.rglob("*")):
            if file.is_file():
                yield file.relative_to(component).as_posix(), file
        return
    for file in sorted(component.iterdir()):
        is_weight = file.suffix in _OTHER or ".index." in file.name
        if file.is_file() and not is_weight and not file.name.startswith("."):
            yield file.name, file
    yield from _name_plainly(weights).items()


def _name_plainly(weights: list[Path]) -> dict[str, Path]:
    stem = next(one for one in STEMS if weights[0].name.startswith(one))
    if len(weights) == 1:
        return {f"{stem}{SUFFIX}": weights[0]}
    return {f"{stem}-{number:05d}-of-{len(weights):05d}{SUFFIX}": file for number, file in enumerate(weights, start=1)}


def _take(source: Path, target: Path, variant: str, *, is_linked: bool) -> None:
    """Copies or links a component's files to where it belongs, if they are not there already."""
    if source == target:
        return
    shutil.rmtree(target, ignore_errors=True)
    called: dict[str, str] = {}
    for name, file in list_files(source, variant):
        place = target / name
        place.parent.mkdir(parents=True, exist_ok=True)
        called[file.name] = place.name
        if is_linked:
            place.symlink_to(file.resolve())
        else:
            shutil.copyfile(file, place)
    _write_index(source, target, called)


def _write_index(source: Path, target: Path, called: Mapping[str, str]) -> None:
    """Writes which of several files holds which weight, as they are `called` now; nothing for one file."""
    for file in source.glob(f"*{SUFFIX}.index*.json"):
        index = read_json(file)
        files = {*index["weight_map"].values()}
        if len(files) > 1 and files <= called.keys():
            index["weight_map"] = {name: called[old] for name, old in index["weight_map"].items()}
            stem = next(one for one in STEMS if file.name.startswith(one))
            write_whole(target / f"{stem}{SUFFIX}.index.json", (json.dumps(index, indent=2) + "\n").encode())
            return


def _write_denoiser(target: Path, tensors: Mapping[str, torch.Tensor], base: Path) -> None:
    part = target.with_name(f".{target.name}.part")
    shutil.rmtree(part, ignore_errors=True)
    try:
        part.mkdir()
        for file in sorted(base.glob("*.json")):
            if ".index." not in file.name:
                shutil.copyfile(file, part / file.name)
        save_weights(tensors, part, DENOISER_STEM)
        shutil.rmtree(target, ignore_errors=True)
        part.rename(target)
    finally:
        shutil.rmtree(part, ignore_errors=True)


def _change(index: Mapping[str, Any], folder: Path, like: str) -> dict[str, Any]:
    """Returns a base's index for what lies in a folder."""
    absent = [name for name in list_components(index) if not _is_there(folder / name)]
    changed = {**index, **{name: [None, None] for name in absent}, **({LIKE: like} if like else {})}
    checker, requires = _CHECKER
    if checker in absent and requires in changed:
        changed[requires] = False
    return changed


def _is_there(component: Path) -> bool:
    """Tells whether a component lies in a folder: its configs alone are none of one that has weights."""
    if not component.is_dir():
        return False
    if component.name in UNWEIGHTED or not (component / "config.json").is_file():
        return True
    return any(file.suffix in _OTHER for file in component.iterdir())

"""The first values of a LoRA that learns on from a file: what its layers add is what those of the file add.

Whatever the file's trainer called its layers, the studio's own reader knows them; alpha and rank may be others. Layers
that the file does not have begin as those of a new LoRA.
Not here: which file it is (first_lora.py), a new LoRA's values (adapters.py).
"""

from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from pipelines.errors import ModelError, RecipeError
from pipelines.families.trainable import Learner
from pipelines.loras.files import LoraFile
from pipelines.messages import Message, english
from pipelines.models.catalog import Model
from pipelines.runtime.bridge.modules import TracedModule
from pipelines.runtime.weights.lora import Reading, list_layer_weights, list_layers, read_updates
from pipelines.runtime.weights.lora_spelling import Spell
from pipelines.runtime.weights.lora_update import Update, find_pair
from pipelines.runtime.weights.resolve import split_layers
from pipelines.training.engine.adapters import ADAPTER, choose_layers, name_in_file
from pipelines.training.engine.denoiser import Origin, choose_denoisers
from pipelines.training.settings import TrainingSettings

_DOWN, _UP = (f".lora_{half}.{ADAPTER}.weight" for half in "AB")


def check_first_values(
    file: LoraFile, settings: TrainingSettings, learner: Learner, *, model: Model, folder: Path, spell: Spell
) -> None:
    """Raises RecipeError for a LoRA that `take_over` would refuse, by the configs in `folder` and the file alone."""
    known = learner.list_denoisers(folder, {})
    module = learner.build_denoiser(folder, known[0].component)
    found = _read(file, module, model, components=[one.component for one in known], spell=spell)
    rows = {f"{layer}.weight": len(module.get_submodule(layer).weight) for layer in choose_layers(module, settings)}
    for denoiser in choose_denoisers(known, settings):
        updates = found.updates.get(denoiser.component, {})
        for name in updates.keys() & rows.keys():
            _take_pair(updates[name], rows[name], name=name, rank=settings.rank)
        if left := [name for name in updates if name not in rows]:
            raise _refuse_left(left)


def read_first_lora(
    file: LoraFile,
    origin: Origin,
    component: str,
    *,
    components: Collection[str],
    spell: Spell,
    tell: Callable[[Message], None],
) -> Mapping[str, Update]:
    """Reads what a LoRA adds to the denoiser `component`, of those that the model has, by its weights' names.

    What is left out is told; so is a file that has nothing for this one of two experts. Raises RecipeError.
    """
    module = origin.learner.build_denoiser(origin.folder, component)
    found = _read(file, module, origin.model, components=components, spell=spell)
    for note in found.notes:
        tell(note)
    if component not in found.updates:
        tell(english(f"The LoRA {file.ref} has nothing for {component}, whose own begins anew."))
    return found.updates.get(component, {})


def _read(file: LoraFile, module: Any, model: Model, *, components: Collection[str], spell: Spell) -> Reading:
    """Raises RecipeError for a file that cannot be read, or is for another model."""
    places = dict.fromkeys(components, list_layer_weights(TracedModule(module)))  # experts are alike
    try:
        return read_updates(file, scale=1.0, spellings=spell(list_layers(places)), places=places, model=model)
    except ModelError as error:
        raise RecipeError({"start_from": error.whole}) from error


def take_over(
    drawn: Mapping[str, np.ndarray], updates: Mapping[str, Update], *, rank: int, alpha: float
) -> dict[str, np.ndarray]:
    """Returns a new LoRA's values, `drawn`, with those of the layers that `updates` change, by their weights' names.

    Where a layer of the file has less than `rank`, the rest of A stays as drawn, and that of B zero. Raises RecipeError
    where it has more, for what is no pair, and for a weight that this LoRA leaves as it is.
    """
    values = {name: np.array(value) for name, value in drawn.items()}
    left = dict(updates)
    for name in values:
        if not name.endswith(_DOWN):
            continue
        own = [*split_layers(name, values[name].shape)]
        downs = [values[name]] if own == [name] else values[name]
        ups = values[name.removesuffix(_DOWN) + _UP]
        for layer, down, up in zip(own, downs, [ups] if own == [name] else ups, strict=True):
            weight = name_in_file(layer).replace(".lora_A.", ".")
            update = left.pop(weight, None)
            if update is not None:
                _write(down, up, update, name=weight, rank=rank, alpha=alpha)
    if left:
        raise _refuse_left(left)
    return values


def _refuse_left(names: Collection[str]) -> RecipeError:
    """Returns the error for a LoRA that changes weights which do not learn."""
    text = english(
        f"it changes {next(iter(names))} ({len(names)} such weights), which would not learn on; let targets name their "
        "layers too, or convolutions where they are some"
    )
    return RecipeError({"start_from": text})


def _write(down: np.ndarray, up: np.ndarray, update: Update, *, name: str, rank: int, alpha: float) -> None:
    """Writes a pair into a layer's A (rank, in, ...) and B (out, rank, ...), which count alpha / rank."""
    own_up, own_down = _take_pair(update, len(up), name=name, rank=rank)
    found = len(own_down)
    down[:found] = own_down
    up[:, :found] = (own_up * (rank / alpha)).reshape(up[:, :found].shape)


def _take_pair(update: Update, rows: int, *, name: str, rank: int) -> tuple[np.ndarray, np.ndarray]:
    """Returns (up, down) of what a file adds to a weight; raises RecipeError for no pair, and one above the rank."""
    pair = find_pair(update, rows)
    if pair is None:
        raise RecipeError(
            {"start_from": english(f"what it adds to {name} is no pair of matrices, and cannot learn on")}
        )
    if (found := len(pair[1])) > rank:
        raise RecipeError({"rank": english(f"that of {name} in start_from is {found}; choose as much, or more")})
    return pair

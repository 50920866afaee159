"""The first values of a LoRA that learns on from a file: what its layers add is what those of the file add.

Whatever the file's trainer called its layers, the studio's own reader knows them; alpha and rank may be others. Layers
that the file does not have begin as those of a new LoRA.
Not here: which file it is (start.py), a new LoRA's values (adapters.py).
"""

from collections.abc import Callable, Collection, Mapping

import numpy as np

from pipelines.errors import RecipeError
from pipelines.loras.files import LoraFile
from pipelines.messages import Message, english
from pipelines.runtime.bridge.modules import TracedModule
from pipelines.runtime.weights.lora import list_layer_weights, list_layers, read_updates
from pipelines.runtime.weights.lora_spelling import Spell
from pipelines.runtime.weights.lora_update import Update, find_pair
from pipelines.runtime.weights.resolve import split_layers
from pipelines.training.engine.adapters import ADAPTER, name_in_file
from pipelines.training.engine.denoiser import Origin

_DOWN, _UP = (f".lora_{half}.{ADAPTER}.weight" for half in "AB")


def read_start(
    file: LoraFile,
    origin: Origin,
    component: str,
    *,
    components: Collection[str],
    spell: Spell,
    tell: Callable[[Message], None],
) -> Mapping[str, Update]:
    """Reads what a LoRA adds to the denoiser `component`, of those that the model has, by its weights' names.

    What is left out is told; so is a file that has nothing for this one of two experts. Raises ModelError.
    """
    module = TracedModule(origin.learner.build_denoiser(origin.folder, component))
    places = dict.fromkeys(components, list_layer_weights(module))  # experts are alike
    found = read_updates(file, scale=1.0, spellings=spell(list_layers(places)), places=places, model=origin.model)
    for note in found.notes:
        tell(note)
    if component not in found.updates:
        tell(english(f"The LoRA {file.ref} has nothing for {component}, whose own begins anew."))
    return found.updates.get(component, {})


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
        raise RecipeError(
            {
                "start_from": english(
                    f"it changes {next(iter(left))} ({len(left)} such weights), which would not learn on; let targets "
                    "name their layers too, or convolutions where they are some"
                )
            }
        )
    return values


def _write(down: np.ndarray, up: np.ndarray, update: Update, *, name: str, rank: int, alpha: float) -> None:
    """Writes a pair into a layer's A (rank, in, ...) and B (out, rank, ...), which count alpha / rank."""
    pair = find_pair(update, len(up))
    if pair is None:
        raise RecipeError(
            {"start_from": english(f"what it adds to {name} is no pair of matrices, and cannot learn on")}
        )
    own_up, own_down = pair
    found = len(own_down)
    if found > rank:
        raise RecipeError({"rank": english(f"that of {name} in start_from is {found}; choose as much, or more")})
    down[:found] = own_down
    up[:, :found] = (own_up * (rank / alpha)).reshape(up[:, :found].shape)

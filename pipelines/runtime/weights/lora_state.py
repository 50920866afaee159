"""Which LoRAs a loaded model's weights have now, and how they get others.

Updates are merged into the weights, which are arguments of the compiled programs: nothing compiles, and a step costs
what it costs without. Only weights whose updates change are read again from the checkpoint, so taking a LoRA away gives
back the very bits. An old array is freed before its successor is placed; whatever ends the work in between, the next
call knows which weights were lost and reads them too.
"""

from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import jax

from pipelines.errors import ModelError
from pipelines.loras.files import TITLE, LoraFile, get_lora
from pipelines.loras.settings import find_adapter_config
from pipelines.messages import Message, say
from pipelines.models.catalog import Model
from pipelines.recipes.recipe import Lora
from pipelines.runtime.bridge.modules import TracedModule
from pipelines.runtime.devices.sharding import SCALE
from pipelines.runtime.weights.components import ComponentLoader
from pipelines.runtime.weights.lora import list_layer_weights, list_layers, read_updates
from pipelines.runtime.weights.lora_spelling import Spell
from pipelines.runtime.weights.lora_update import Update
from pipelines.stages import OnProgress, Progress


class Identity(NamedTuple):
    """A file as it was when it was read, the scale, and the expert that it was chosen for ("": as the file says).

    `config_mtime_ns` is of peft's description beside it, which says its scale; 0 without one.
    """

    path: Path
    mtime_ns: int
    size: int
    scale: float
    expert: str
    config_mtime_ns: int


_LOST = (Identity(Path(), -1, -1, 0.0, "", 0),)


class LoraState:
    """The LoRAs merged into one loaded model; `weights` is the dictionary that its programs are called with.

    `modules` are the components that a LoRA of the family may change, also those whose weights are not loaded here.
    """

    def __init__(
        self,
        model: Model,
        weights: dict[str, dict[str, jax.Array]],
        *,
        modules: Mapping[str, TracedModule],
        loader: ComponentLoader,
        spell: Spell,
    ) -> None:
        self._model = model
        self._weights = weights
        self._modules = modules
        self._loader = loader
        self._spell = spell
        self._notes: tuple[Message, ...] = ()
        self._wanted: frozenset[Identity] | None = frozenset()
        self._touched: dict[Identity, frozenset[str]] = {}
        self._merged: dict[tuple[str, str], tuple[Identity, ...]] = {}

    def become(self, loras: Sequence[Lora], *, on_progress: OnProgress) -> tuple[Message, ...]:
        """Merges just these LoRAs; returns notes on what of them was left out or guessed.

        Raises ModelError, before any weight changes, for one that is gone or misfits.
        """
        files = {_identify(file, lora): file for lora in loras for file in [self._find(lora)]}
        if self._wanted == frozenset(files):
            return self._notes
        detail = f"LoRA {', '.join(file.ref for file in files.values())}" if files else "without LoRAs"
        on_progress(Progress(phase="loading", detail=detail))
        places = {name: list_layer_weights(module) for name, module in self._modules.items()}
        spellings = self._spell(list_layers(places))
        notes: list[Message] = []
        updates: dict[str, dict[str, list[Update]]] = {}
        wanted: dict[tuple[str, str], tuple[Identity, ...]] = {}
        touched: dict[Identity, frozenset[str]] = {}
        for identity, file in sorted(files.items()):  # in one order, so that sums round alike
            found = read_updates(
                file,
                scale=identity.scale,
                expert=identity.expert or None,
                spellings=spellings,
                places=places,
                model=self._model,
            )
            notes += found.notes
            touched[identity] = frozenset(found.updates)
            for component, changes in found.updates.items():
                for name, update in changes.items():
                    updates.setdefault(component, {}).setdefault(name, []).append(update)
                parameters = {places[component][name].parameter for name in changes}
                for key in ((component, parameter) for parameter in parameters):
                    wanted[key] = (*wanted.get(key, ()), identity)
        self._wanted, self._touched, self._notes = None, touched, tuple(dict.fromkeys(notes))
        for component in self._weights:
            self._change(component, wanted, updates.get(component, {}), detail=detail, on_progress=on_progress)
        self._wanted = frozenset(files)
        return self._notes

    def find_touching(self, components: Sequence[str]) -> frozenset[Identity]:
        """The merged LoRAs that change one of these components."""
        return frozenset(identity for identity, touched in self._touched.items() if touched & {*components})

    def _find(self, lora: Lora) -> LoraFile:
        return get_lora(lora.ref, self._model.loras_dir)

    def _change(
        self,
        component: str,
        wanted: Mapping[tuple[str, str], tuple[Identity, ...]],
        updates: Mapping[str, Sequence[Update]],
        *,
        detail: str,
        on_progress: OnProgress,
    ) -> None:
        weights = self._weights[component]
        keys = [(component, name) for name in weights]
        changed = [key for key in keys if wanted.get(key, ()) != self._merged.get(key, ())]
        if not changed:
            return
        names = [name for _, name in changed]
        arrays = [one for name in names for one in (name, name + SCALE) if one in weights]
        self._loader.offloader.use(component)
        self._loader.offloader.forget_copies(component, arrays)
        self._merged |= dict.fromkeys(changed, _LOST)
        for name in arrays:
            weights[name].delete()

        def report(progress: Progress) -> None:
            on_progress(Progress(phase="loading", done=progress.done, total=progress.total, detail=detail))

        weights |= self._loader.load_again(component, names, updates=updates, on_progress=report)
        self._merged |= {key: wanted.get(key, ()) for key in changed}


def refuse_on_text_encoder(touching: Collection[Identity]) -> None:
    """Raises ModelError when there is a LoRA `touching` text encoders that run on another machine."""
    if touching:
        raise ModelError(
            say("A LoRA of this recipe changes the text encoder, which is on another machine."),
            advice=say("Read prompts on this machine, or leave the LoRA out."),
            title=TITLE,
        )


def _identify(file: LoraFile, lora: Lora) -> Identity:
    status = file.path.stat()
    config = find_adapter_config(file.path)
    changed = config.stat().st_mtime_ns if config is not None else 0
    return Identity(file.path, status.st_mtime_ns, status.st_size, lora.scale, lora.expert or "", changed)

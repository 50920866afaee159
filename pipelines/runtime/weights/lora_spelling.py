"""Which of a model's layers a LoRA's layer is, however its trainer spelled it.

Spellings are derived from the model's own layers, one by one: a file with some of the layers, with others beside them,
or with spellings mixed is read as far as it goes.
Not here: a family's spellings (its loras.py), the parts of an adapter (pipelines/loras/tensors.py).
"""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field

Layers = Mapping[str, Collection[str]]
"""Component -> the names of its layers as its module has them."""


@dataclass(frozen=True, kw_only=True)
class Spellings:
    """A model's layers by every name that trainers give them.

    `prefixes` maps what a name may begin with to the component it means; `aliases` maps, for each component, other
    names of its layers to the layers themselves, of which several are one layer in the file, whose rows they share in
    this order. Trainers that write no dots in names put _ in their place. `experts` are the components of the
    high-noise and the low-noise expert, if the model has two.
    """

    layers: Layers
    prefixes: Mapping[str, str]
    aliases: Mapping[str, Mapping[str, tuple[str, ...]]]
    experts: tuple[str, ...] = ()
    _names: dict[str, dict[str, tuple[str, ...]]] = field(
        default_factory=dict[str, dict[str, tuple[str, ...]]], init=False
    )

    def __post_init__(self) -> None:
        for component, layers in self.layers.items():
            known = {**self.aliases.get(component, {}), **{layer: (layer,) for layer in layers}}
            self._names[component] = {name.replace(".", "_"): found for name, found in known.items()} | known

    def find(self, name: str) -> tuple[str, tuple[str, ...]] | None:
        """Returns component and layers that a file's layer means; None for one that the model does not have."""
        for prefix in sorted(self.prefixes, key=len, reverse=True):
            component = self.prefixes[prefix]
            if name.startswith(prefix) and (found := self._names.get(component, {}).get(name.removeprefix(prefix))):
                return component, found
        return None


Spell = Callable[[Layers], Spellings]
"""A family's spellings of a model with these layers."""

"""Which of a model's layers a LoRA's layer is, however its trainer spelled it.

Spellings are derived from the model's own layers, one by one: a file with some of the layers, with others beside them,
or with spellings mixed is read as far as it goes.
Not here: names in files that we write (pipelines/loras/file_names.py), a family's spellings (its loras.py), the parts
of an adapter (pipelines/loras/tensors.py).
"""

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field

Layers = Mapping[str, Collection[str]]
"""Component -> the names of its layers as its module has them."""


PEFT = "base_model.model."  # what peft puts before the names of whatever it has wrapped


@dataclass(frozen=True, kw_only=True)
class Spellings:
    """A model's layers by every name that trainers give them.

    `prefixes` maps what a name may begin with to the component it means; `aliases` maps, for each component, other
    names of its layers to the layers themselves, of which several are one layer in the file, whose rows they share in
    this order. Of the names in `exchanged` the two halves of the rows are the other way round. Trainers that write no
    dots in names put _ in their place. `experts` are the components of the high-noise and the low-noise expert, if the
    model has two.
    """

    layers: Layers
    prefixes: Mapping[str, str]
    aliases: Mapping[str, Mapping[str, tuple[str, ...]]]
    exchanged: frozenset[str] = frozenset()
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
        for component, rest in self._take_apart(name):
            if found := self._names.get(component, {}).get(rest):
                return component, found
        return None

    def is_exchanged(self, name: str) -> bool:
        """Tells whether the halves of a file's layer are the other way round here."""
        flat = {one.replace(".", "_") for one in self.exchanged}
        return any(rest in self.exchanged or rest in flat for _, rest in self._take_apart(name))

    def _take_apart(self, name: str) -> Iterator[tuple[str, str]]:
        """Yields the components that a name may be of, each with what is behind the prefix; the longest prefix first.

        peft's own prefix may stand behind another, as where a component was saved by itself and then named.
        """
        for prefix in sorted(self.prefixes, key=len, reverse=True):
            if name.startswith(prefix):
                rest = name.removeprefix(prefix)
                yield self.prefixes[prefix], rest
                if rest.startswith(PEFT):
                    yield self.prefixes[prefix], rest.removeprefix(PEFT)


Spell = Callable[[Layers], Spellings]
"""A family's spellings of a model with these layers."""

"""Turns a LoRA file into updates of a model's own weights.

Each layer of the file is read on its own: its name is looked up among the model's layers (lora_spelling.py), its parts
become an update (lora_build.py) at the scale that its trainer meant, which an alpha tensor, the header, or a file of
peft's beside it says (pipelines/loras/settings.py). What the model has no use for is left out and named in a note; a
file that is damaged, or for another model, is refused.
Not here: which files there are (pipelines/loras/files.py), adding updates to weights (lora_merge.py).
"""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from safetensors import SafetensorError, safe_open

from pipelines.errors import ModelError
from pipelines.loras.files import HIGH, LOW, TITLE, LoraFile
from pipelines.loras.settings import ADAPTER_CONFIG, Settings, find_adapter_config, read_settings
from pipelines.loras.tensors import EMBEDDINGS, OTHER_KINDS, is_of_text, split_name
from pipelines.messages import Message, english, say
from pipelines.models.catalog import Model
from pipelines.runtime.bridge.modules import TracedModule
from pipelines.runtime.weights.lora_build import (
    BIAS,
    MODULATION,
    WEIGHT,
    HalfError,
    JointLengthsError,
    MisfitError,
    Parts,
    build,
    deal_out,
    exchange_halves,
    find_rank,
)
from pipelines.runtime.weights.lora_spelling import PEFT, Layers, Spellings
from pipelines.runtime.weights.lora_update import Update
from pipelines.runtime.weights.resolve import split_layers

MAX_NAMED = 3  # tensors or layers named in a note

Updates = dict[str, dict[str, Update]]
"""Component -> weight, as checkpoints name it -> what is added to it."""


@dataclass(frozen=True, kw_only=True)
class LayerWeight:
    """The parameter of the traced module that an update goes to, and its shape; for a stack that of one layer."""

    parameter: str
    shape: tuple[int, ...]


Places = Mapping[str, Mapping[str, LayerWeight]]
"""Component -> weight, as checkpoints name it -> its place."""


@dataclass(frozen=True, kw_only=True)
class Reading:
    """What a LoRA adds to a model, and notes for people about what it does not."""

    updates: Updates
    notes: tuple[Message, ...]


@dataclass(kw_only=True)
class _Contents:
    """A file's tensors: the parts of each layer, and the names of those that are no part of any."""

    settings: Settings
    layers: dict[str, dict[str, np.ndarray]] = field(default_factory=dict[str, dict[str, np.ndarray]])
    others: list[str] = field(default_factory=list[str])
    adapters: set[str] = field(default_factory=set[str])


def list_layer_weights(module: TracedModule) -> dict[str, LayerWeight]:
    """Maps weights as checkpoints and LoRAs name them (each layer of a stack on its own) to the module's parameters."""
    return {
        name: LayerWeight(parameter=parameter, shape=shape)
        for parameter, whole in module.parameter_shapes().items()
        for name, shape in split_layers(parameter, whole).items()
    }


def list_layers(places: Places) -> Layers:
    """Lists the layers of each component, whose weights and biases have `places`."""
    return {
        component: list(dict.fromkeys(name.rpartition(".")[0] for name in weights))
        for component, weights in places.items()
    }


def read_updates(
    file: LoraFile, *, scale: float, spellings: Spellings, places: Places, model: Model, expert: str | None = None
) -> Reading:
    """Reads what a LoRA adds to the weights of a model at this scale.

    `expert` is the one that it goes to (recipes/recipe.py); None: as the file says. Raises ModelError for a file that
    cannot be read, or does not fit the model.
    """
    contents = _read(file)
    meant = {layer: spellings.find(layer) for layer in contents.layers}
    named = {found[0] for found in meant.values() if found is not None}
    strangers = [layer for layer, found in meant.items() if found is None]
    _refuse_others(file, model, meant, strangers)
    updates: Updates = {}
    factors: Counter[float] = Counter()
    for layer, found in meant.items():
        if found is None:
            continue
        component, modules = found
        reader = _LayerReader(
            file=file,
            model=model,
            name=layer,
            parts=contents.layers[layer],
            modules=modules,
            is_exchanged=spellings.is_exchanged(layer),
        )
        factor = reader.find_factor()
        if factor is None:
            factor = reader.ask_header(contents.settings, component)
            factors[factor] += 1
        for target in _choose_components(component, named, spellings.experts, chosen=expert, of_file=file.expert):
            updates.setdefault(target, {}).update(reader.build(target, places[target], factor=factor, scale=scale))
    if not updates:
        raise _unreadable(file, say("it holds nothing that this model could use"))
    notes = [*_write_notes(file, model, contents, strangers, factors)]
    if expert is None and spellings.experts and file.expert:
        notes.append(
            say(
                "LoRA {ref}: it goes to the {expert}-noise expert only, as its file says.",
                ref=file.ref,
                expert=file.expert,
            )
        )
    return Reading(updates=updates, notes=tuple(notes))


def _refuse_others(file: LoraFile, model: Model, layers: Collection[str], strangers: Sequence[str]) -> None:
    """Raises ModelError where more than half of the layers are `strangers`, as in a LoRA for another model.

    Those of text encoders do not count where there are others: many models read prompts by encoders that learn nothing,
    and diffusers leaves such layers out, too.
    """
    judged = {layer for layer in layers if not is_of_text(layer)} or {*layers}
    strange = [layer for layer in strangers if layer in judged]
    if len(strange) > len(judged) / 2:
        raise ModelError(
            say(
                "The LoRA {ref} changes {layer}, which {model} does not have.",
                ref=file.ref,
                layer=f"{strange[0]:.120}",
                model=model.id,
            ),
            advice=say("It was made for another model; choose one for this model, or leave it out."),
            title=TITLE,
        )


def _choose_components(
    component: str, named: Collection[str], experts: Sequence[str], *, chosen: str | None, of_file: str
) -> Iterable[str]:
    """Lists the components that a layer of `component` goes to, in a file whose layers name the components `named`.

    The recipe's choice counts first; of a file that names both experts it chooses the layers.
    """
    if component not in experts:
        return (component,)
    of_expert = {HIGH: experts[:1], LOW: experts[1:]}
    if len({*named} & {*experts}) > 1:
        return (component,) if component in of_expert.get(chosen or "", experts) else ()
    if chosen is None and component == experts[1]:
        return (component,)
    return of_expert.get(chosen or of_file, experts)


def _read(file: LoraFile) -> _Contents:
    """Reads the tensors in fp32; raises ModelError for a damaged file, and for adapters of kinds that are not known."""
    import torch  # here, because numpy has no bf16 and no fp8

    try:
        with safe_open(file.path, "pt") as stored:
            contents = _Contents(settings=read_settings(stored.metadata() or {}, find_adapter_config(file.path)))
            for name in stored.keys():  # noqa: SIM118 - no dict
                split = split_name(name)
                if split is None or name.startswith(EMBEDDINGS):
                    contents.others.append(name)
                    continue
                values = stored.get_tensor(name).to(torch.float32).numpy()
                if not np.isfinite(values).all():
                    raise _unreadable(file, say("it holds values that are not finite"))
                contents.layers.setdefault(split.module, {})[split.part] = values
                if split.adapter:
                    contents.adapters.add(split.adapter)
    except (OSError, SafetensorError, ValueError, RuntimeError) as error:
        raise _unreadable(file, english(str(error)[:200])) from error
    for name in contents.others:
        kind = next((kind for mark, kind in OTHER_KINDS if mark in name), None)
        if kind is not None:
            raise ModelError(
                say("{ref} is an adapter of the kind {kind}, which is not applied here.", ref=file.ref, kind=kind),
                advice=say("LoRA, LoHa, LoKr and DoRA are applied here; its author may offer one."),
                title=TITLE,
            )
    if len(contents.adapters) > 1:
        names = ", ".join(sorted(contents.adapters)[:MAX_NAMED])
        raise _unreadable(
            file,
            say(
                "it holds {count} adapters ({names}), of which one may be in a file",
                count=len(contents.adapters),
                names=names,
            ),
        )
    for layer in [layer for layer, parts in contents.layers.items() if parts.keys() <= {"alpha"}]:
        contents.others.append(f"{layer}.alpha")
        del contents.layers[layer]
    return contents


@dataclass(frozen=True, kw_only=True)
class _LayerReader:
    """Reads one layer of a file, whose `parts` change `modules` of a component."""

    file: LoraFile
    model: Model
    name: str
    parts: Parts
    modules: Sequence[str]
    is_exchanged: bool

    def find_factor(self) -> float | None:
        """Returns alpha over rank as its alpha tensor says; None without one.

        An alpha of 0 stands for the rank, as in kohya's trainers and LyCORIS, which write these tensors.
        """
        alpha = self.parts.get("alpha")
        if alpha is None:
            return None
        if alpha.size != 1:
            raise _unreadable(self.file, say("the alpha of {name} is not one number", name=f"{self.name:.120}"))
        rank = find_rank(self.parts)
        value = float(alpha.reshape(()))
        return value / rank if rank and value else 1.0

    def ask_header(self, settings: Settings, component: str) -> float:
        """Returns alpha over rank as the header says; 1 where it does not."""
        is_kohya = self.name.startswith(("lora_", "lycoris_"))
        return settings.find_factor(component, self.modules[0], rank=find_rank(self.parts), is_kohya=is_kohya)

    def build(
        self, component: str, places: Mapping[str, LayerWeight], *, factor: float, scale: float
    ) -> dict[str, Update]:
        """Builds the updates of the weights that the layer changes."""
        shapes: dict[str, list[tuple[int, ...]]] = {}
        for ending in (WEIGHT, BIAS, MODULATION):
            names = [_name(module, ending) for module in self.modules]
            if all(name in places for name in names):
                shapes[ending] = [places[name].shape for name in names]
        whole = {ending: (sum(shape[0] for shape in own), *own[0][1:]) for ending, own in shapes.items()}
        updates: dict[str, Update] = {}
        try:
            for ending, found in build(self.parts, whole, factor=factor, scale=scale).items():
                update = exchange_halves(found, whole[ending][0]) if self.is_exchanged else found
                names = (_name(module, ending) for module in self.modules)
                updates |= zip(names, deal_out(update, shapes[ending]), strict=True)
        except HalfError as error:
            raise _unreadable(
                self.file, say("of {module} it holds only one half", module=f"{self.name:.120}")
            ) from error
        except JointLengthsError as error:
            raise ModelError(
                say(
                    "The LoRA {ref} cannot be applied: {module} is a DoRA whose lengths are those of the columns of "
                    "{count} layers together.",
                    ref=self.file.ref,
                    module=f"{self.name:.120}",
                    count=len(self.modules),
                ),
                advice=say("Its author may offer one with lengths of rows (wd_on_output), or a LoRA without DoRA."),
                title=TITLE,
            ) from error
        except MisfitError as error:
            name = f"{component}.{self.modules[0]}.weight"
            raise ModelError(
                say(
                    "The LoRA {ref} is for a model of another size: {name} has shape {found} in it and "
                    "{shape} in {model}.",
                    ref=self.file.ref,
                    name=name,
                    found=error.found,
                    shape=whole.get("weight"),
                    model=self.model.id,
                ),
                advice=say("Use one that was made for this model, not for a larger or smaller one of its family."),
                title=TITLE,
            ) from error
        return updates


def _name(module: str, ending: str) -> str:
    """Returns a weight's name; those of the model itself, which is the module "", have no dot."""
    return f"{module}.{ending}" if module else ending


def _write_notes(
    file: LoraFile, model: Model, contents: _Contents, strangers: Sequence[str], factors: Counter[float]
) -> Iterable[Message]:
    ref = file.ref
    of_text = [layer for layer in strangers if is_of_text(layer)]
    if of_text:
        yield say(
            "LoRA {ref}: {count} of its layers are of text encoders, which are not changed here, and were left out: "
            "{names}.",
            ref=ref,
            count=len(of_text),
            names=_list_names(of_text),
        )
    strangers = [layer for layer in strangers if layer not in of_text]
    if strangers:
        names = _list_names(strangers)
        yield say(
            "LoRA {ref}: {count} of its layers are not in {model} and were left out: {names}.",
            ref=ref,
            count=len(strangers),
            model=model.id,
            names=names,
        )
    embeddings = [name for name in contents.others if name.startswith(EMBEDDINGS)]
    if embeddings:
        yield say(
            "LoRA {ref}: it brings {count} tensors of embeddings, which are not used here.",
            ref=ref,
            count=len(embeddings),
        )
    unknown = [name for name in contents.others if not name.startswith(EMBEDDINGS)]
    if unknown:
        names = _list_names(unknown)
        yield say(
            "LoRA {ref}: {count} of its tensors are of no known kind and were left out: {names}.",
            ref=ref,
            count=len(unknown),
            names=names,
        )
    factor, _ = factors.most_common(1)[0] if factors else (1.0, 0)
    if factor != 1 and contents.settings.is_beside:
        yield say(
            "LoRA {ref}: {file} beside it says alpha and rank, so it counts {factor} times its strength.",
            ref=ref,
            file=ADAPTER_CONFIG,
            factor=f"{factor:g}",
        )
    elif factor != 1:
        yield say(
            "LoRA {ref}: its header says alpha and rank, so it counts {factor} times its strength.",
            ref=ref,
            factor=f"{factor:g}",
        )
    elif factors and not contents.settings.has_alpha and any(PEFT in layer for layer in contents.layers):
        yield say(
            "LoRA {ref}: it says no alpha, which peft keeps in {file} beside its file; it counts as if alpha were its "
            "rank.",
            ref=ref,
            file=ADAPTER_CONFIG,
        )
    zeros = [layer for layer, parts in contents.layers.items() if "alpha" in parts and not parts["alpha"].any()]
    if zeros:
        yield say(
            "LoRA {ref}: in {count} of its layers alpha is 0, which is read as the rank, as its trainer does: {names}.",
            ref=ref,
            count=len(zeros),
            names=_list_names(zeros),
        )


def _list_names(names: Sequence[str]) -> str:
    return ", ".join([*(name[:80] for name in names[:MAX_NAMED]), *(["..."] if len(names) > MAX_NAMED else [])])


def _unreadable(file: LoraFile, reason: Message) -> ModelError:
    return ModelError(
        say("The LoRA {ref} cannot be read: {reason}.", ref=file.ref, reason=reason),
        advice=say("Download it again, or ask its author for a LoRA as diffusers or kohya's trainer save it."),
        title=TITLE,
    )

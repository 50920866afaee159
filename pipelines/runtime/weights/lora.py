"""Turns a LoRA file into low-rank updates of a model's own weights.

diffusers' converters know what all the trainers write; they rename and split, and what is left for here is arithmetic:
scales are multiplied in before they run (alpha over rank, as kohya's trainer and ai-toolkit mean it) or after (the
settings that diffusers and peft put into the header), so the converters never see one but 1.
Not here: which files there are (pipelines/loras.py), the converters that a family uses (its loras.py), adding updates
to weights (lora_merge.py).
"""

import json
import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from safetensors import SafetensorError, safe_open

from pipelines.catalog import Model
from pipelines.errors import ModelError
from pipelines.loras import TITLE, LoraFile
from pipelines.messages import Message, english, say, tell
from pipelines.runtime.bridge.modules import TracedModule
from pipelines.runtime.weights.lora_merge import LowRank
from pipelines.runtime.weights.resolve import split_layers

Tensors = dict[str, torch.Tensor]
Rename = Callable[[Tensors, LoraFile], Tensors]
"""A family's renaming of tensors: any trainer's names -> `component.module.lora_A.weight` and `.lora_B.weight`."""

# Adapters that are no pair of matrices, by what only their tensors are called.
_KINDS = (
    ("hada_", "a LoHa"),
    ("lokr_", "a LoKr"),
    ("dora_scale", "a DoRA"),
    ("lora_magnitude_vector", "a DoRA"),
    ("lora_mid", "a LoCon with a middle matrix (Tucker)"),
    ("oft_", "an OFT"),
    ("boft_", "a BOFT"),
)
_PAIRS = (("lora_down", "lora_up"), ("lora_A", "lora_B"), ("lora.down", "lora.up"))
_CONVERTED = re.compile(r"(?P<component>\w+)\.(?P<module>.+)\.lora_(?P<side>[AB])\.(?P<kind>weight|bias)")
_METADATA = "lora_adapter_metadata"


@dataclass(frozen=True, kw_only=True)
class LayerWeight:
    """The parameter of the traced module that an update goes to, and its shape; for a stack that of one layer."""

    parameter: str
    shape: tuple[int, ...]


def list_layer_weights(module: TracedModule) -> dict[str, LayerWeight]:
    """Maps weights as checkpoints and LoRAs name them (each layer of a stack on its own) to the module's parameters."""
    return {
        name: LayerWeight(parameter=parameter, shape=shape)
        for parameter, whole in module.parameter_shapes().items()
        for name, shape in split_layers(parameter, whole).items()
    }


def read_updates(
    file: LoraFile, *, scale: float, rename: Rename, places: Mapping[str, Mapping[str, LayerWeight]], model: Model
) -> dict[str, dict[str, LowRank]]:
    """Component -> weight -> what the LoRA adds to it at this scale.

    `places` are the weights of each component. Raises ModelError for a file that cannot be read, is of another kind, or
    does not fit the model.
    """
    tensors, settings = _read(file)
    _refuse_other_kinds(file, tensors)
    try:
        converted = rename(_multiply_alphas(tensors), file)
    except (ValueError, KeyError, IndexError, TypeError, AttributeError, RuntimeError, ZeroDivisionError) as error:
        raise _unreadable(
            file, say("its tensors are not named as those of a LoRA ({error})", error=str(tell(error))[:200])
        ) from error
    pairs: dict[tuple[str, str], Tensors] = {}
    for key, tensor in converted.items():
        match = _CONVERTED.fullmatch(key)
        if match is None or tensor.ndim < (1 if match["kind"] == "bias" else 2):
            raise _unreadable(file, say("its tensor {name} is no part of a LoRA", name=key[:120]))
        pairs.setdefault((match["component"], match["module"]), {})[f"{match['side']}.{match['kind']}"] = tensor
    if not pairs:
        raise _unreadable(file, say("it holds nothing that this model could use"))
    updates: dict[str, dict[str, LowRank]] = {}
    for (component, module), parts in pairs.items():
        factor = scale * _find_factor(settings, component, module, rank=len(parts.get("A.weight", ())))
        for ending, (up, down) in _pair_up(file, module, parts).items():
            name = f"{module}.{ending}"
            place = places.get(component, {}).get(name)
            if place is None:
                raise ModelError(
                    say(
                        "The LoRA {ref} changes {component}.{name}, which {id} does not have.",
                        ref=file.ref,
                        component=component,
                        name=name,
                        id=model.id,
                    ),
                    advice=say("It was made for another model; remove it from the recipe."),
                    title=TITLE,
                )
            updates.setdefault(component, {})[name] = _fit(
                file, LowRank(up=up, down=down, scale=factor), place.shape, name=f"{component}.{name}", model=model
            )
    return updates


def _read(file: LoraFile) -> tuple[Tensors, dict[str, Any]]:
    """Reads the tensors in fp32, without peft's adapter name in theirs, and peft's settings if the header has them."""
    try:
        with safe_open(file.path, "pt") as stored:
            tensors = {_spell(name): stored.get_tensor(name).float() for name in stored.keys()}  # noqa: SIM118 - no dict
            text = (stored.metadata() or {}).get(_METADATA, "{}")
        settings = json.loads(text)
    except (OSError, SafetensorError, ValueError, RuntimeError) as error:
        raise _unreadable(file, english(str(error)[:200])) from error
    if not all(tensor.isfinite().all() for tensor in tensors.values()):
        raise _unreadable(file, say("it holds values that are not finite"))
    return tensors, settings if isinstance(settings, dict) else {}


def _spell(name: str) -> str:
    """Respells a name for the converters: `lora_A` where neither kohya's names nor diffusers' old ones say `down`."""
    name = re.sub(r"(\.lora_[AB])\.default\.", r"\1.", name)
    if name.startswith("lora_"):
        return name
    return name.replace(".lora_down.", ".lora_A.").replace(".lora_up.", ".lora_B.")


def _refuse_other_kinds(file: LoraFile, tensors: Tensors) -> None:
    for name in tensors:
        for mark, kind in _KINDS:
            if mark in name:
                raise ModelError(
                    say("{ref} is {kind}, not a plain LoRA.", ref=file.ref, kind=kind),
                    advice=say("Only plain LoRAs are applied here; its author may offer one."),
                    title=TITLE,
                )


def _multiply_alphas(tensors: Tensors) -> Tensors:
    """Multiplies every alpha over its rank into its pair; kohya's names keep one of 1, as converters expect it."""
    scaled = {name: tensor for name, tensor in tensors.items() if not name.endswith(".alpha")}
    for name in tensors.keys() - scaled.keys():
        module = name.removesuffix(".alpha")
        pairs = ((f"{module}.{down}.weight", f"{module}.{up}.weight") for down, up in _PAIRS)
        down, up = next((pair for pair in pairs if pair[0] in tensors), ("", ""))
        if not down:
            raise ValueError(say("{name} stands alone", name=name))
        rank = len(tensors[down])
        scaled[up] = tensors[up] * (tensors[name].item() / rank)
        if name.startswith("lora_"):
            scaled[name] = torch.tensor(float(rank))
    return scaled


def _find_factor(settings: dict[str, Any], component: str, module: str, *, rank: int) -> float:
    """The scale that peft's settings give a module; 1 without them."""
    alpha = _look_up(settings.get(f"{component}.alpha_pattern"), module) or settings.get(f"{component}.lora_alpha")
    if not isinstance(alpha, int | float) or not math.isfinite(alpha) or not rank:
        return 1.0
    return alpha / (math.sqrt(rank) if settings.get(f"{component}.use_rslora") else rank)


def _look_up(patterns: Any, module: str) -> Any:
    """Value for a module in peft's patterns, which match the end of its name, or all of it after a ^."""
    for pattern, value in patterns.items() if isinstance(patterns, dict) else ():
        whole = str(pattern).removeprefix("^")
        if module == whole or (not str(pattern).startswith("^") and module.endswith(f".{whole}")):
            return value
    return None


def _pair_up(file: LoraFile, module: str, parts: Tensors) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """Pairs of matrices (up, down) for `weight` and `bias`, as far as the module has them."""
    pairs: dict[str, tuple[np.ndarray, np.ndarray]] = {}
    if ("A.weight" in parts) != ("B.weight" in parts):
        raise _unreadable(file, say("of {module} it holds only one half", module=module))
    if "A.weight" in parts:
        pairs["weight"] = (parts["B.weight"].numpy(), parts["A.weight"].numpy())
    if "B.bias" in parts:
        pairs["bias"] = (parts["B.bias"].numpy()[:, None], np.ones(1, np.float32))
    return pairs


def _fit(file: LoraFile, update: LowRank, shape: tuple[int, ...], *, name: str, model: Model) -> LowRank:
    """Reshapes `down` to the weight's own shape: 1x1 convolutions may come as matrices, and the other way round.

    Raises ModelError when the sizes differ.
    """
    rank, rows, rest = len(update.down), len(update.up), shape[1:]
    if rows != shape[0] or update.up.size != rows * rank or update.down.size != rank * math.prod(rest):
        found = (rows, *update.down.shape[1:])
        raise ModelError(
            say(
                "The LoRA {ref} is for a model of another size: {name} has shape {found} in it and {shape} in {model}.",
                ref=file.ref,
                name=name,
                found=found,
                shape=shape,
                model=model.id,
            ),
            advice=say("Use one that was made for this model, not for a larger or smaller one of its family."),
            title=TITLE,
        )
    return LowRank(up=update.up.reshape(rows, rank), down=update.down.reshape(rank, *rest), scale=update.scale)


def _unreadable(file: LoraFile, reason: Message) -> ModelError:
    return ModelError(
        say("The LoRA {ref} cannot be read: {reason}.", ref=file.ref, reason=reason),
        advice=say("Download it again, or ask its author for a LoRA as diffusers or kohya's trainer save it."),
        title=TITLE,
    )

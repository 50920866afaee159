"""Which stored tensor each parameter of a module is read from: names are looked up in a checkpoint here, and only here.

Checkpoints spell the same weight in several ways, and hold one by one the layers that a module runs as a scan with one
weight for all (bridge/modules.py). The result has the module's own names, each layer on its own; whatever changes
weights while they are read (lora_merge.py, permuted.py) wraps its tensors and never sees a file's names.
"""

from collections.abc import Mapping, Sequence

from pipelines.errors import ModelError
from pipelines.messages import say
from pipelines.runtime.devices.sharding import STACK
from pipelines.runtime.weights.stored import StoredTensor, WeightSource

# One table under two names: of a text encoder that ties both, checkpoints may hold either.
_TIED = {"shared.weight": "encoder.embed_tokens.weight"}
_ADVICE = say("It is of another architecture than its config.json says; check that both belong together.")


def resolve(
    stored: Mapping[str, WeightSource], shapes: Mapping[str, tuple[int, ...]], prefixes: Sequence[str] = ()
) -> dict[str, WeightSource]:
    """Name -> stored tensor of every weight behind the parameters in `shapes`; a stack counts as its layers.

    Each of the `prefixes` may stand before names in the files and be missing in the module, or the other way round
    (older CLIP checkpoints say `text_model.`). Raises ModelError naming what is missing or of another shape.
    """
    weights = {parameter: split_layers(parameter, shape) for parameter, shape in shapes.items()}
    resolved: dict[str, WeightSource] = {}
    missing: list[str] = []
    for parameter, layers in weights.items():
        found = {name: stored[key] for name in layers if (key := _find_key(name, stored, prefixes)) is not None}
        if not found:
            missing.append(parameter)
        elif absent := [name for name in layers if name not in found]:
            raise ModelError(say("The checkpoint lacks {name}.", name=absent[0]), advice=_ADVICE)
        resolved |= found
    if missing:
        raise ModelError(
            say(
                "The checkpoint lacks {missing} of {count} weights, {name} first.",
                missing=len(missing),
                count=len(shapes),
                name=missing[0],
            ),
            advice=_ADVICE,
        )
    for name, shape in (item for layers in weights.values() for item in layers.items()):
        if resolved[name].shape != shape:
            raise ModelError(
                say(
                    "{name} has shape {found} in the checkpoint; the model expects {shape}.",
                    name=name,
                    found=resolved[name].shape,
                    shape=shape,
                ),
                advice=_ADVICE,
            )
        _refuse_bytes(name, resolved[name])
    return resolved


def _refuse_bytes(name: str, source: WeightSource) -> None:
    """Raises ModelError for bytes that mean a weight only together with scales of a kind that is not read here."""
    if isinstance(source, StoredTensor) and source.dtype.kind in "iub" and source.dtype.itemsize == 1:
        raise ModelError(
            say(
                "{name} in {file} is stored as {dtype}, which cannot be read here.",
                name=name,
                file=source.file,
                dtype=source.dtype.name,
            ),
            advice=say("Use a checkpoint in fp32, fp16, bf16 or fp8."),
        )


def split_layers(parameter: str, shape: tuple[int, ...]) -> dict[str, tuple[int, ...]]:
    """Name -> shape of a parameter's weights as checkpoints and LoRAs name them: one, or one for each layer."""
    if STACK not in parameter:
        return {parameter: shape}
    return {parameter.replace(STACK, f".{index}."): shape[1:] for index in range(shape[0])}


def _find_key(name: str, stored: Mapping[str, WeightSource], prefixes: Sequence[str]) -> str | None:
    """The key under which `stored` has this weight."""
    spellings = (name, *(prefix + name for prefix in prefixes), *(name.removeprefix(prefix) for prefix in prefixes))
    spellings = (*spellings, *(_TIED[one] for one in spellings if one in _TIED))
    return next((key for key in spellings if key in stored), None)

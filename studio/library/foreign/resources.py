"""The files that A1111's settings name by hash or as Civitai's resources: model, LoRAs, embeddings.

They decide over the picture, so they are used where a file of that name is here, and listed where not. A hash alone
names nothing here.
"""

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, cast

from pipelines.messages import say
from studio.library.foreign.bounded import Fields, shorten
from studio.library.foreign.found import MAX_LISTED, NO_COUNTERPART, FoundLora, Unusable, list_unused

EMBEDDING = say("embeddings are not used here; its name is read as words")
_HASH = re.compile(r"([^:,]{1,200}):\s*[0-9a-fA-F]{4,64}(?:,|\Z)")


@dataclass
class Resources:
    """The files that settings name; `model` is a name, if there is one."""

    model: str | None = None
    loras: list[FoundLora] = field(default_factory=list[FoundLora])
    unusable: list[Unusable] = field(default_factory=list[Unusable])

    def drop_embedding(self, name: str) -> None:
        self.unusable.append(Unusable(say("Embedding {name}", name=shorten(name)), EMBEDDING))


def read_resources(settings: Mapping[str, str]) -> Resources:
    """Reads `Lora hashes`, `TI hashes`, `Hashes`, `Civitai resources` and `Model hash`."""
    found = Resources()
    for name, kind in (("Hashes", dict), ("Civitai resources", list)):
        if settings.get(name) and not isinstance(_parse(settings[name]), kind):
            found.unusable += list_unused({name: settings[name]}, say("is damaged or cut off"))
    found.loras += [FoundLora(shorten(name)) for name in _list_names(settings.get("Lora hashes", ""))]
    for name in _list_names(settings.get("TI hashes", "")):
        found.drop_embedding(name)
    for entry in _list_objects(settings.get("Civitai resources", "")):
        _add_resource(entry, found)
    for name in _read_json(settings.get("Hashes", ""), dict):
        kind, _, rest = str(name).partition(":")
        if kind == "lora" and rest:
            found.loras.append(FoundLora(shorten(rest)))
        elif kind == "embed" and rest:
            found.drop_embedding(rest)
    model_hash = settings.get("Model hash")
    if model_hash and not settings.get("Model") and found.model is None:
        found.unusable.append(
            Unusable(
                say("Model hash {hash}", hash=shorten(model_hash)),
                say("names no file; models are found by name"),
            )
        )
    # A LoRA with a weight first: the same one may stand in several of these settings.
    found.loras.sort(key=lambda lora: lora.weight is None)
    return found


def _list_names(text: str) -> Iterator[str]:
    for entry in _HASH.finditer(text):
        yield entry[1].strip()


def _read_json(text: str, kind: type) -> Any:
    value = _parse(text)
    return value if isinstance(value, kind) else kind()


def _parse(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def _list_objects(text: str) -> list[Fields]:
    values = cast("list[Any]", _read_json(text, list))[:MAX_LISTED]
    return [Fields(cast("dict[str, Any]", value)) for value in values if isinstance(value, dict)]


def _add_resource(entry: Fields, found: Resources) -> None:
    kind = (entry.text("type") or "file").lower()
    name = entry.text("modelName") or entry.text("air") or f"version {shorten(entry.values.get('modelVersionId'))}"
    if kind == "checkpoint" and found.model is None:
        found.model = name
    elif kind in ("lora", "locon", "lycoris", "dora"):
        found.loras.append(FoundLora(shorten(name), entry.number("weight")))
    elif kind in ("embed", "embedding", "textualinversion"):
        found.drop_embedding(name)
    else:
        found.unusable.append(
            Unusable(say("Resource {name} ({kind})", name=shorten(name), kind=shorten(kind)), NO_COUNTERPART)
        )

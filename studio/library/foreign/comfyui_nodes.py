"""ComfyUI's nodes by what they do, whoever made them: texts joined of texts, LoRAs in lists.

Classes of the same purpose name their inputs alike; the patterns here hold for the common packs of nodes.
"""

import re
from typing import Any, NamedTuple, cast

from studio.library.foreign.bounded import Fields, shorten
from studio.library.foreign.comfyui_graph import Node
from studio.library.foreign.found import FoundLora

MAX_PARTS = 50
MAX_LORAS = 100

_JOINING = re.compile(r"concat|join|combine|append|merge", re.IGNORECASE)
_ASKING = re.compile(r"llm|ollama|gpt|gemini|chat|caption|interrogat|tagger|florence|vision|translat", re.IGNORECASE)
_PART = re.compile(r"(string|text|prompt|str|input|source)?_?([a-z]|\d{1,2})|prefix|suffix|source_text|addition")
_DELIMITERS = ("delimiter", "separator", "join_with", "sep")
_WRITTEN = (
    "populated_text",
    "processed_text",
    "result",
    "text_0",
    "text",
    "string",
    "value",
    "prompt",
    "positive",
    "wildcard_text",
)
_NUMBERED = re.compile(r"(?:lora_name|lora|lora_name_|lora_)_?(\d{1,2})(?:_name)?")
_NO_LORA = ("", "None", "none")


class Texts(NamedTuple):
    """A text made of parts, each a text or a link."""

    parts: list[object]
    delimiter: str


def is_link(value: object) -> bool:
    """Tells whether an input's value is a link: a node's id and the number of its output."""
    if not isinstance(value, list) or len(cast("list[Any]", value)) != 2:
        return False
    name, slot = cast("list[Any]", value)
    return isinstance(name, str | int) and not isinstance(name, bool) and type(slot) is int


def find_texts(node: Node, role: str) -> Texts | None:
    """Returns the text that a node holds or joins; None for one that makes it otherwise.

    `role` chooses between the two texts of a node that has a positive and a negative one.
    """
    if _ASKING.search(node.kind):
        return None
    if _JOINING.search(node.kind):
        names = [name for name in node.inputs if _PART.fullmatch(name) and name not in _DELIMITERS]
        parts = [node.inputs[name] for name in sorted(names) if _is_text_or_link(node.inputs[name])]
        delimiter = next((node.inputs[name] for name in _DELIMITERS if isinstance(node.inputs.get(name), str)), "")
        return Texts(parts[:MAX_PARTS], delimiter.replace("\\n", "\n")) if parts else None
    for name in (*_WRITTEN, f"text_{role}", f"{role}_prompt", f"prompt_{role}", role):
        if _is_text_or_link(node.inputs.get(name)):
            return Texts([node.inputs[name]], "")
    own = [value for value in node.inputs.values() if isinstance(value, str)]
    return Texts([own[0]], "") if len(own) == 1 and len(node.inputs) == 1 else None


def _is_text_or_link(value: object) -> bool:
    return isinstance(value, str) or is_link(value)


def list_loras(node: Node) -> list[FoundLora]:
    """Lists a node's LoRAs that are switched on: one by name, several numbered, or entries with name and strength."""
    fields = Fields(node.inputs)
    found: list[FoundLora] = []
    for key in ("lora_name", "lora"):
        name = node.inputs.get(key)
        name = cast("dict[str, Any]", name).get("content") if isinstance(name, dict) else name
        if isinstance(name, str):
            weight = _first_number(fields, "strength_model", "lora_model_strength", "strength", "lora_strength")
            found.append(_name(name, weight, _first_number(fields, "strength_clip", "lora_clip_strength")))
    for name, value in node.inputs.items():
        if isinstance(value, dict):
            found += _read_entry(Fields(cast("dict[str, Any]", value)))
        elif (number := _NUMBERED.fullmatch(name)) and isinstance(value, str) and _is_on(node, number[1]):
            found.append(_name(value, _first_number(fields, *_name_weights(node, number[1]))))
    found = [lora for lora in found if lora.name not in _NO_LORA]
    return found[:MAX_LORAS]


def _is_on(node: Node, number: str) -> bool:
    count = node.inputs.get("lora_count")
    if isinstance(count, int) and int(number) > count:  # hidden, though they keep their values
        return False
    return str(node.inputs.get(f"switch_{number}", "On")).lower() not in ("off", "false")


def _name_weights(node: Node, number: str) -> list[str]:
    """Lists the names that a numbered LoRA's strength may have, first the one that counts."""
    names = ("model_weight", "model_str", "lora_wt", "strength", "weight", "strength_model", "lora_strength")
    if node.inputs.get("input_mode") == "simple":  # then the node has one strength a LoRA, and hides the two others
        names = ("lora_wt", *names)
    return [f"{name}_{number}" for name in names] + [f"lora_{number}_strength"]


def _read_entry(entry: Fields) -> list[FoundLora]:
    """Reads `{"on": true, "lora": "ink.safetensors", "strength": 0.8}`, or a list of such under `__value__`."""
    if isinstance(entry.values.get("__value__"), list):
        return [lora for inner in entry.objects("__value__")[:MAX_LORAS] for lora in _read_entry(inner)]
    name = entry.values.get("lora", entry.values.get("name"))
    is_on = entry.values.get("on", entry.values.get("active", True))
    if not isinstance(name, str) or "strength" not in entry.values or not is_on:
        return []
    return [_name(name, entry.number("strength"), entry.number("strengthTwo"))]


def _name(name: str, weight: float | None, text_weight: float | None = None) -> FoundLora:
    return FoundLora(shorten(name), weight, text_weight)


def _first_number(fields: Fields, *names: str) -> float | None:
    return next((value for name in names if (value := fields.number(name)) is not None), None)

"""ComfyUI's graph: nodes by id, from the executed graph (`prompt`) or the drawn one (`workflow`).

In the executed graph a node has its class and its inputs, and a link is [node id, slot]. In the drawn graph links are
numbers, and a node's settings are a bare list in the order of its class's widgets; that order is therefore written down
here for the classes of a basic chain.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, cast

from pipelines.messages import say
from studio.library.foreign.bounded import Fields, read_object
from studio.library.foreign.errors import MetadataError

MAX_NODES = 3000
MUTED, BYPASSED = 2, 4

_SEED = ("noise_seed", "control_after_generate")
_WIDGETS: dict[str, tuple[str, ...]] = {
    "KSampler": ("seed", "control_after_generate", "steps", "cfg", "sampler_name", "scheduler", "denoise"),
    "KSamplerAdvanced": ("add_noise", *_SEED, "steps", "cfg", "sampler_name", "scheduler", "start_at_step"),
    "SamplerCustom": ("add_noise", *_SEED, "cfg"),
    "RandomNoise": _SEED,
    "KSamplerSelect": ("sampler_name",),
    "BasicScheduler": ("scheduler", "steps", "denoise"),
    "Flux2Scheduler": ("steps", "width", "height"),
    "CFGGuider": ("cfg",),
    "FluxGuidance": ("guidance",),
    "CLIPTextEncode": ("text",),
    "EmptyLatentImage": ("width", "height", "batch_size"),
    "EmptySD3LatentImage": ("width", "height", "batch_size"),
    "EmptyFlux2LatentImage": ("width", "height", "batch_size"),
    "EmptyHunyuanLatentVideo": ("width", "height", "length", "batch_size"),
    "Wan22ImageToVideoLatent": ("width", "height", "length", "batch_size"),
    "WanImageToVideo": ("width", "height", "length", "batch_size"),
    "CheckpointLoaderSimple": ("ckpt_name",),
    "UNETLoader": ("unet_name", "weight_dtype"),
    "LoraLoader": ("lora_name", "strength_model", "strength_clip"),
    "LoraLoaderModelOnly": ("lora_name", "strength_model"),
    "ModelSamplingSD3": ("shift",),
    "ModelSamplingAuraFlow": ("shift",),
    "PrimitiveNode": ("value",),
    "PrimitiveInt": ("value",),
    "PrimitiveFloat": ("value",),
    "PrimitiveString": ("value",),
    "PrimitiveStringMultiline": ("value",),
}


@dataclass(frozen=True, kw_only=True)
class Node:
    """One node: its class, and its inputs by name."""

    kind: str
    inputs: dict[str, Any]


Graph = dict[str, Node]


def read_graph(texts: Mapping[str, str]) -> Graph | None:
    """Reads the graph; None for other programs' texts; raises MetadataError when it is damaged or far too large."""
    graph = _read_run(texts["prompt"]) if "prompt" in texts else None
    if graph is None and "workflow" in texts:
        graph = _read_drawn(texts["workflow"])
    if graph is not None and len(graph) > MAX_NODES:
        raise MetadataError(
            say("Its ComfyUI graph has {count} nodes; at most {limit} are read.", count=len(graph), limit=MAX_NODES)
        )
    return graph


def is_node(value: object) -> bool:
    """Tells whether this is a node of an executed graph."""
    return isinstance(value, dict) and "class_type" in value


def _read_run(text: str) -> Graph | None:
    fields = read_object(text, has_nan=True)
    if fields is None or not any(is_node(value) for value in fields.values.values()):
        return None
    graph: Graph = {}
    for name, value in fields.values.items():
        if is_node(value):
            node = Fields.of(value, name="node")
            inputs = node.inner("inputs")
            graph[name] = Node(kind=node.text("class_type") or "", inputs=inputs.values if inputs else {})
    return graph


def _read_drawn(text: str) -> Graph | None:
    drawn = read_object(text, has_nan=True)
    if drawn is None or "nodes" not in drawn.values:
        return None
    nodes = [Fields.of(node, name="node") for node in drawn.items("nodes")]
    present = {_name(node): node for node in nodes if node.whole("mode") != MUTED}
    origins = dict(_read_link(link) for link in drawn.items("links"))
    graph: Graph = {}
    for name, node in present.items():
        kind = node.text("type") or ""
        is_bypassed = node.whole("mode") == BYPASSED
        inputs = {} if is_bypassed else _name_widgets(kind, node.values.get("widgets_values"))
        for entry in node.items("inputs"):
            socket = Fields.of(entry, name="input")
            origin = origins.get(socket.whole("link"))
            if origin and origin[0] in present:
                inputs[socket.text("name") or ""] = list(origin)
        graph[name] = Node(kind="Reroute" if is_bypassed else kind, inputs=inputs)
    return graph


def _name(node: Fields) -> str:
    name = node.values.get("id")
    if not isinstance(name, int | str):
        raise MetadataError(say("Its ComfyUI graph is damaged: a node has no id."))
    return str(name)[:40]


def _read_link(link: object) -> tuple[int | None, tuple[str, int]]:
    """Returns a link's number, and the node and slot that it comes from."""
    if isinstance(link, dict):
        named = Fields.of(cast("object", link), name="link").values
        parts = [named.get(name) for name in ("id", "origin_id", "origin_slot")]
    else:
        parts = Fields({"link": link}).items("link")[:3]
    match parts:
        case [int(number), int() | str() as origin, int(slot)]:
            return number, (str(origin)[:40], slot)
        case _:
            raise MetadataError(say("Its ComfyUI graph is damaged: a link is no link."))


def _name_widgets(kind: str, values: object) -> dict[str, Any]:
    """Maps widget names to values; some nodes store the names themselves."""
    if isinstance(values, dict):
        return dict(Fields.of(cast("object", values), name="widgets_values").values)
    if not isinstance(values, list):
        return {}
    return dict(zip(_WIDGETS.get(kind, ()), Fields({"values": values}).items("values"), strict=False))

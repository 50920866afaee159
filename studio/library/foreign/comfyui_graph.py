"""ComfyUI's graph: nodes by id, from the executed graph (`prompt`) or the drawn one (`workflow`).

In the executed graph a node has its class and its inputs, and a link is [node id, slot]. In the drawn graph links are
numbers, and a node's settings are a bare list in the order of its class's widgets; that order is therefore written down
here for the classes of a basic chain. A drawn graph may hold subgraphs, whose nodes stand in their place here.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple, cast

from pipelines.messages import say
from studio.library.foreign.bounded import Fields, read_object
from studio.library.foreign.errors import MetadataError

MAX_NODES = 3000
MAX_DEPTH = 8  # of subgraphs in subgraphs
MUTED, BYPASSED = 2, 4
_AFTER_SEED = ("fixed", "increment", "decrement", "randomize")  # what a seed becomes next time, which is no input
INPUT_NODE = "-10"  # within a subgraph, the node that its inputs come from

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
    "StringConcatenate": ("string_a", "string_b", "delimiter"),
    "KSampler (Efficient)": ("seed", "control_after_generate", "steps", "cfg", "sampler_name", "scheduler", "denoise"),
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
    definitions = drawn.inner("definitions")
    drawings = definitions.objects("subgraphs") if definitions else []
    return _Drawing({drawing.text("id") or "": drawing for drawing in drawings}).read(drawn)


@dataclass
class _Drawing:
    """A drawn graph whose subgraphs are replaced by their nodes: node 3 of the subgraph that node 57 shows is `57:3`.

    `ports` maps an output of such a node, or an input within its subgraph, to what it stands for: an origin or a value.
    """

    subgraphs: Mapping[str, Fields]
    graph: Graph = field(default_factory=dict[str, Node])
    ports: dict[tuple[str, int], Any] = field(default_factory=dict[tuple[str, int], Any])

    def read(self, drawn: Fields) -> Graph:
        self._add(drawn, prefix="", depth=0)
        for node in self.graph.values():
            for name, value in list(node.inputs.items()):
                if isinstance(value, _Origin):
                    self._connect(node, name, value)
        return self.graph

    def _add(self, drawn: Fields, *, prefix: str, depth: int) -> None:
        """Adds a drawing's nodes; their inputs are origins until all nodes are there."""
        if depth > MAX_DEPTH or len(self.graph) > MAX_NODES:
            raise MetadataError(
                say(
                    "Its ComfyUI graph has more than {limit} nodes, or too many within one another.",
                    limit=MAX_NODES,
                )
            )
        present = {_name(node): node for node in drawn.objects("nodes") if node.whole("mode") != MUTED}
        origins = dict(filter(None, map(_read_link, drawn.items("links"))))
        for name, node in present.items():
            kind, own = node.text("type") or "", f"{prefix}{name}"
            is_bypassed = node.whole("mode") == BYPASSED
            widgets = {} if is_bypassed else _name_widgets(kind, node)
            inputs: dict[str, Any] = dict(widgets)
            for socket in node.objects("inputs"):
                number = socket.whole("link")
                origin = None if number is None else origins.get(number)
                if origin and (origin.node in present or origin.node == INPUT_NODE):
                    inputs[socket.text("name") or ""] = _Origin(f"{prefix}{origin.node}", origin.slot)
            if kind in self.subgraphs and not is_bypassed:
                self._open(self.subgraphs[kind], node, inputs, own=own, depth=depth)
            else:
                # Where a link brings no value, the node's own is kept in its place.
                self.graph[own] = Node(
                    kind="Reroute" if is_bypassed else kind,
                    inputs={
                        key: _Origin(value.node, value.slot, widgets.get(key)) if isinstance(value, _Origin) else value
                        for key, value in inputs.items()
                    },
                )

    def _open(self, inner: Fields, node: Fields, inputs: dict[str, Any], *, own: str, depth: int) -> None:
        """Adds a subgraph's nodes in place of the node that shows it."""
        widgets = node.values.get("widgets_values")
        shown = iter(cast("list[Any]", widgets) if isinstance(widgets, list) else [])
        values = {
            socket.text("name"): next(shown, None) for socket in node.objects("inputs") if "widget" in socket.values
        }
        for slot, socket in enumerate(inner.objects("inputs")):
            name = socket.text("name") or ""
            self.ports[f"{own}:{INPUT_NODE}", slot] = inputs.get(name, values.get(name))
        self._add(inner, prefix=f"{own}:", depth=depth + 1)
        origins = dict(filter(None, map(_read_link, inner.items("links"))))
        for slot, socket in enumerate(inner.objects("outputs")):
            numbers = [number for number in socket.items("linkIds") if isinstance(number, int)]
            origin = next((origins[number] for number in numbers if number in origins), None)
            if origin is not None:
                self.ports[own, slot] = _Origin(f"{own}:{origin.node}", origin.slot)

    def _connect(self, node: Node, name: str, origin: "_Origin") -> None:
        value: Any = origin
        for _ in range(MAX_DEPTH * 4):
            if not isinstance(value, _Origin) or (value.node, value.slot) not in self.ports:
                break
            value = self.ports[value.node, value.slot]
        if isinstance(value, _Origin):
            value = [value.node, value.slot] if value.node in self.graph else None
        value = origin.value if value is None else value
        if value is None:
            del node.inputs[name]
        else:
            node.inputs[name] = value


class _Origin(NamedTuple):
    """Where a link comes from, and the value that stands in the node itself."""

    node: str
    slot: int
    value: Any = None


def _name(node: Fields) -> str:
    name = node.values.get("id")
    if not isinstance(name, int | str):
        raise MetadataError(say("Its ComfyUI graph is damaged: a node has no id."))
    return str(name)[:60]


def _read_link(link: object) -> tuple[int, _Origin] | None:
    """Returns a link's number, and the node and slot that it comes from; None for something else."""
    if isinstance(link, dict):
        named = cast("dict[str, Any]", link)
        parts = [named.get(name) for name in ("id", "origin_id", "origin_slot")]
    else:
        parts = cast("list[Any]", link)[:3] if isinstance(link, list) else []
    match parts:
        case [int(number), int() | str() as origin, int(slot)]:
            return number, _Origin(str(origin)[:60], slot)
        case _:
            return None


def _name_widgets(kind: str, node: Fields) -> dict[str, Any]:
    """Maps widget names to values; some nodes store the names themselves.

    Newer editors list each widget among the inputs, in the order of the values.
    """
    values = node.values.get("widgets_values")
    if isinstance(values, dict):
        return dict(cast("dict[str, Any]", values))
    if not isinstance(values, list):
        return {}
    if kind in _WIDGETS:
        return dict(zip(_WIDGETS[kind], cast("list[Any]", values), strict=False))
    rest = iter(cast("list[Any]", values))
    named: dict[str, Any] = {}
    for socket in node.objects("inputs"):
        if "widget" in socket.values:
            value = next((one for one in rest if one not in _AFTER_SEED), None)
            named[socket.text("name") or ""] = value
    return named

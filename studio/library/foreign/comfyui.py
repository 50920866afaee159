"""Reads ComfyUI's graph backwards from the sampler: prompts, model, size and settings of a basic chain.

Links are followed through nodes whose role is clear from the names of their inputs; every other node is listed as
unused. Not here: the two formats in which a file holds the graph (comfyui_graph.py).
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, cast

from pipelines.messages import say
from studio.library.foreign.bounded import limit_text, read_number, read_whole, shorten
from studio.library.foreign.comfyui_graph import Graph, Node, read_graph
from studio.library.foreign.errors import MetadataError
from studio.library.foreign.found import Found, FoundLora, Unusable

SOURCE = "ComfyUI"
MAX_HOPS = 60
MAX_LISTED_NODES = 15

SAMPLERS = ("KSampler", "KSamplerAdvanced", "SamplerCustom", "SamplerCustomAdvanced")
_VALUE_NAMES = ("value", "text", "string", "int", "float", "Number", "seed")
# Class name prefixes of nodes that need no remark when the chain does not use them.
_UNREMARKABLE = (
    *("Note", "MarkdownNote", "Reroute", "Primitive", "Save", "Preview", "CreateVideo", "VHS_VideoCombine"),
    *("CLIPTextEncode", "CLIPLoader", "DualCLIPLoader", "TripleCLIPLoader", "CheckpointLoader", "UNETLoader"),
    *("VAEDecode", "VAELoader", "Empty", "ModelSampling", "ConditioningZeroOut"),
)


def read_comfyui(texts: Mapping[str, str]) -> Found | None:
    """Reads the graph; None for other programs' texts; raises MetadataError when it is damaged or has no sampler."""
    graph = read_graph(texts)
    return _Chain(graph).read() if graph else None


@dataclass
class _Chain:
    """A walk over one graph, with the nodes used so far and the unusable ones met."""

    graph: Graph
    used: set[str] = field(default_factory=set[str])
    loras: list[FoundLora] = field(default_factory=list[FoundLora])
    unusable: list[Unusable] = field(default_factory=list[Unusable])
    distilled_guidance: float | None = None
    flow_shift: float | None = None

    def read(self) -> Found:
        sampler = self._use(self._choose_sampler())
        guided = self._part(sampler, "guider") or sampler
        timed = self._part(sampler, "sigmas") or sampler
        noisy = self._part(sampler, "noise") or sampler
        stepped = self._part(sampler, "sampler") or sampler
        latent = self.find_latent(sampler.inputs.get("latent_image"))
        steps, denoise = self._whole(timed, "steps"), self._number(timed, "denoise")
        if denoise is None or not 0 < denoise < 1:
            denoise = None
        elif latent:
            self.unusable.append(
                Unusable(
                    say("Denoise: {value}", value=f"{denoise:g}"), say("without a picture all noise is taken away here")
                )
            )
            denoise = None
        elif steps is not None:
            steps = int(steps / denoise)  # ComfyUI counts the steps that are run, we count those of the full schedule
        sized = latent or Node(kind="", inputs={})
        prompt = self._find_text(_first(guided, "positive", "conditioning"), role="positive")
        negative_prompt = self._find_text(guided.inputs.get("negative"), role="negative")
        model = self._find_model(_first(guided, "model") or _first(timed, "model"))
        found = Found(
            source=SOURCE,
            prompt=prompt,
            negative_prompt=negative_prompt,
            model=model,
            seed=self._whole(noisy, "noise_seed", "seed"),
            steps=steps,
            guidance_scale=self._number(guided, "cfg"),
            distilled_guidance=self.distilled_guidance,
            sampler=self._text(stepped, "sampler_name"),
            schedule=self._text(timed, "scheduler"),
            width=self._whole(sized, "width"),
            height=self._whole(sized, "height"),
            frames=self._whole(sized, "length"),
            flow_shift=self.flow_shift,
            strength=denoise,
            batch_size=self._whole(sized, "batch_size"),
            loras=tuple(self.loras),
        )
        self._list_left()
        return replace(found, unusable=tuple(self.unusable))

    def _choose_sampler(self) -> str:
        """Chooses the first pass, which starts from an empty latent; later ones only refine its picture."""
        samplers = [name for name, node in self.graph.items() if node.kind in SAMPLERS]
        if not samplers:
            raise MetadataError(
                say("Its ComfyUI graph has no sampler that is known here."),
                advice=say(
                    "Graphs around {names} or {last} can be read.", names=", ".join(SAMPLERS[:-1]), last=SAMPLERS[-1]
                ),
            )
        for name in samplers:
            trial = _Chain(self.graph)
            latent = trial.find_latent(self.graph[name].inputs.get("latent_image"))
            if latent and trial.used.isdisjoint(samplers):
                return name
        return samplers[0]

    def _use(self, name: str) -> Node:
        self.used.add(name)
        return self.graph[name]

    def _follow(self, value: object) -> tuple[Node, int] | None:
        """Returns the node that a link comes from, and the number of its output."""
        if not isinstance(value, list) or len(cast("list[Any]", value)) != 2:
            return None
        name, slot = cast("list[Any]", value)
        if not isinstance(name, str | int) or str(name) not in self.graph or not isinstance(slot, int):
            raise MetadataError(say("Its ComfyUI graph is damaged: a link leads nowhere."))
        return self._use(str(name)), slot

    def _part(self, node: Node, name: str) -> Node | None:
        found = self._follow(node.inputs.get(name))
        return found[0] if found else None

    def _value(self, node: Node, *names: str) -> object:
        """Returns a setting, from the node or from a linked node that only holds a value."""
        value = next((node.inputs[name] for name in names if name in node.inputs), None)
        for _ in range(MAX_HOPS):
            link = self._follow(value)
            if link is None:
                return value
            value = next((link[0].inputs[name] for name in _VALUE_NAMES if name in link[0].inputs), None)
        raise _endless()

    def _whole(self, node: Node, *names: str) -> int | None:
        value = self._value(node, *names)
        return None if value is None else read_whole(value, names[0])

    def _number(self, node: Node, *names: str) -> float | None:
        value = self._value(node, *names)
        return None if value is None else read_number(value, names[0])

    def _text(self, node: Node, *names: str) -> str | None:
        value = self._value(node, *names)
        if value is not None and not isinstance(value, str):
            raise MetadataError(
                say(
                    "Its recipe is damaged: {name} is {value} where a text belongs.",
                    name=names[0],
                    value=repr(shorten(value)),
                )
            )
        return None if value is None else limit_text(value, names[0])

    def _find_text(self, value: object, *, role: str) -> str:
        """Finds the prompt behind a conditioning; `role` is the side to follow where a node passes both through."""
        for _ in range(MAX_HOPS):
            link = self._follow(value)
            if link is None or link[0].kind == "ConditioningZeroOut":
                return ""
            node, _slot = link
            for name in ("text", "text_g", "clip_l", "t5xxl", "prompt"):
                text = self._text(node, name) if name in node.inputs else None
                if text is not None:
                    return text
            if node.kind == "FluxGuidance":
                self.distilled_guidance = self._number(node, "guidance")
            elif node.kind not in ("Reroute", "WanImageToVideo"):
                self._list_node(node)
            value = _first(node, role, "conditioning", "conditioning_1", "conditioning_to", "")
        raise _endless()

    def _find_model(self, value: object) -> str | None:
        for _ in range(MAX_HOPS):
            link = self._follow(value)
            if link is None:
                return None
            node, _slot = link
            for name in ("ckpt_name", "unet_name", "model_name"):
                if name in node.inputs:
                    return self._text(node, name)
            if "lora_name" in node.inputs:
                self.loras.append(self._read_lora(node))
            elif node.kind in ("ModelSamplingSD3", "ModelSamplingAuraFlow"):
                self.flow_shift = self._number(node, "shift")
            elif node.kind != "Reroute":
                self._list_node(node)
            value = _first(node, "model", "", "model1")
        raise _endless()

    def _read_lora(self, node: Node) -> FoundLora:
        name = shorten(self._text(node, "lora_name") or "")
        return FoundLora(name, self._number(node, "strength_model"), self._number(node, "strength_clip"))

    def find_latent(self, value: object) -> Node | None:
        """Finds the node that sets the size: an empty latent, or one that prepares a video."""
        for _ in range(MAX_HOPS):
            link = self._follow(value)
            if link is None:
                return None
            node, _slot = link
            if node.kind.startswith("Empty"):
                return node
            if "width" in node.inputs and "height" in node.inputs and "length" in node.inputs:
                self._list_picture(node, "start_image", "image")
                return node
            if "pixels" in node.inputs:
                self._list_picture(node, "pixels")
                return None
            value = _first(node, "samples", "latent", "latent_image", "latent_1", "")
        raise _endless()

    def _list_picture(self, node: Node, *names: str) -> None:
        if any(name in node.inputs for name in names):
            self.unusable.append(Unusable(say("Input picture"), say("the file names it, but does not bring it")))

    def _list_node(self, node: Node) -> None:
        self.unusable.append(
            Unusable(say("Node {kind}", kind=shorten(node.kind)), say("only a basic chain of nodes is read"))
        )

    def _list_left(self) -> None:
        """Lists the nodes outside the chain that do more than decode, save or show."""
        kinds = {
            node.kind: None
            for name, node in self.graph.items()
            if name not in self.used and not node.kind.startswith(_UNREMARKABLE)
        }
        for kind in list(kinds)[:MAX_LISTED_NODES]:
            self.unusable.append(
                Unusable(say("Node {kind}", kind=shorten(kind)), say("only the chain of the first sampler is read"))
            )


def _first(node: Node, *names: str) -> object:
    return next((node.inputs[name] for name in names if name in node.inputs), None)


def _endless() -> MetadataError:
    return MetadataError(
        say("Its ComfyUI graph is damaged: it runs in a circle, or over more than {limit} nodes.", limit=MAX_HOPS)
    )

"""Reads ComfyUI's graph backwards from the sampler: prompts, model, size and settings.

Links are followed through nodes whose role is clear from the names of their inputs, whatever their class: thousands of
classes exist, and they name their inputs alike. What a node computes is not in the file; such a value is listed, and
the model's default stands in.
Not here: the two formats in which a file holds the graph (comfyui_graph.py), texts made of texts and LoRAs in lists
(comfyui_nodes.py).
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, cast

from pipelines.loras.files import HIGH, LOW
from pipelines.messages import Message, say
from studio.library.foreign.bounded import MAX_STRING_CHARS, clean, read_number, read_whole, shorten
from studio.library.foreign.comfyui_graph import Graph, Node, read_graph
from studio.library.foreign.comfyui_nodes import find_texts, is_link, list_loras
from studio.library.foreign.errors import MetadataError
from studio.library.foreign.found import Found, FoundLora, Unusable

SOURCE = "ComfyUI"
MAX_HOPS = 60
MAX_LISTED_NODES = 15
MAX_JOINED = 500  # texts that one graph's prompts are joined from

SAMPLERS = ("KSampler", "KSamplerAdvanced", "SamplerCustom", "SamplerCustomAdvanced")
_SAMPLER_INPUTS = {"steps", "cfg"}  # of samplers of other makers, beside a seed and one of these
_SAMPLER_NAMES = ("sampler_name", "scheduler")
# Links that carry all parts of a chain at once, in the order of their age: pipes, contexts, scripts.
_BUNDLES = ("pipe", "basic_pipe", "context", "base_ctx", "ctx", "detailer_pipe", "pipe_opt", "opt_pipe")
_SIZE = re.compile(r"\b(\d{2,5})\s*[x×]\s*(\d{2,5})\b")
_SEEDS = ("seed", "noise_seed")
_VALUE_NAMES = ("value", "text", "string", "int", "float", "number", "Number")
_COMPUTING = re.compile(r"math|calc|expression|random|switch", re.IGNORECASE)
_MODEL_NAMES = ("ckpt_name", "unet_name", "model_name", "base_ckpt_name", "gguf_name", "model_path", "model")
_LATENTS = ("latent_image", "image_embeds", *_BUNDLES)
_TEXTS = ("text_embeds", *_BUNDLES)
_HIGH, _LOW = (re.compile(rf"{level}[\W_]?noise", re.IGNORECASE) for level in ("high", "low"))
_NO_STYLE = ("", "base", "none", "no style")
_STACKS = ("lora_stack", "optional_lora_stack", "prev_lora", "lora")
_ENCODED = ("text", "text_g", "t5xxl", "text_l", "clip_l", "clip_g")  # of several encoders the one that reads most
# Class name prefixes of nodes that need no remark when the chain does not use them.
_UNREMARKABLE = (
    *("Note", "MarkdownNote", "Reroute", "Primitive", "Save", "Preview", "CreateVideo", "VHS_VideoCombine"),
    *("CLIPTextEncode", "CLIPLoader", "DualCLIPLoader", "TripleCLIPLoader", "CheckpointLoader", "UNETLoader"),
    *("VAEDecode", "VAELoader", "Empty", "ModelSampling", "ConditioningZeroOut"),
)

Accept = Callable[[object], bool]


def _is_text(value: object) -> bool:
    return isinstance(value, str)


def read_comfyui(texts: Mapping[str, str]) -> Found | None:
    """Reads the graph; None for other programs' texts; raises MetadataError when it is no JSON or has no sampler."""
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
    has_picture: bool = False
    joined: int = 0

    def read(self) -> Found:
        name = self._choose_sampler()
        sampler = self._use(name)
        guided = self._part(sampler, "guider") or sampler
        timed = self._part(sampler, "sigmas") or sampler
        noisy = self._part(sampler, "noise") or sampler
        stepped = self._part(sampler, "sampler") or sampler
        latent = self.find_latent(_first(sampler, *_LATENTS))
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
        prompt = self._find_text(_first(guided, "positive", "conditioning", *_TEXTS), role="positive")
        negative_prompt = self._find_text(_first(guided, "negative", *_TEXTS), role="negative")
        model = self._find_model(_first(guided, "model", *_BUNDLES) or _first(timed, "model"))
        guidance_scale_2 = self._read_second_expert(name, model)
        width = self._whole(sized, "width", "empty_latent_width")
        if not width and denoise is None and not self.has_picture:
            self._note(say("Size"), say("none can be read from the file"))
        if "steps" not in timed.inputs:
            self._note(say("Steps"), say("none can be read from the file"))
        found = Found(
            source=SOURCE,
            prompt=prompt,
            negative_prompt=negative_prompt,
            model=model,
            seed=self._whole(noisy, "noise_seed", "seed"),
            steps=steps,
            guidance_scale=self._number(guided, "cfg", "guidance"),
            guidance_scale_2=guidance_scale_2,
            distilled_guidance=self.distilled_guidance,
            sampler=self._name_sampler(stepped),
            schedule=self._text(timed, "scheduler") if timed is not sampler or "sampler_name" in timed.inputs else None,
            width=width,
            height=self._whole(sized, "height", "empty_latent_height"),
            frames=self._whole(sized, "length", "num_frames"),
            flow_shift=self.flow_shift if self.flow_shift is not None else self._number(sampler, "shift"),
            strength=denoise,
            batch_size=self._whole(sized, "batch_size"),
            loras=tuple(self.loras),
        )
        self._list_left()
        return replace(found, unusable=tuple(self.unusable))

    def _read_second_expert(self, first: str, model: str | None) -> float | None:
        """Reads the pass that follows the first one with a model's other expert: its LoRAs, and its guidance scale.

        Returns None where no pass is of that kind; a pass with a model of its own is no part of the recipe.
        """
        for name, node in self.graph.items():
            origin = _first(node, *_LATENTS)
            if name == first or not (_is_sampler(node) or node.kind in SAMPLERS) or not is_link(origin):
                continue
            if str(cast("list[Any]", origin)[0]) != first:
                continue
            pass_two = _Chain(self.graph, used={*self.used, name})
            other = pass_two._find_model(_first(node, "model"))
            if not (_HIGH.search(model or "") and _LOW.search(other or "")):
                continue
            self.used, self.unusable = pass_two.used, [*self.unusable, *pass_two.unusable]
            self.loras = [replace(lora, expert=HIGH) for lora in self.loras]
            self.loras += [replace(lora, expert=LOW) for lora in pass_two.loras]
            return self._number(node, "cfg")
        return None

    def _name_sampler(self, node: Node) -> str | None:
        """Returns the sampler's name, which of some nodes is their class, and of some in place of the schedule's."""
        if node.kind.startswith("Sampler") and node.kind not in SAMPLERS and "sampler_name" not in node.inputs:
            return node.kind.removeprefix("Sampler")
        return self._text(node, *_SAMPLER_NAMES)

    def _choose_sampler(self) -> str:
        """Chooses the first pass, which starts from an empty latent; later ones only refine its picture."""
        samplers = [name for name, node in self.graph.items() if node.kind in SAMPLERS]
        samplers += [name for name, node in self.graph.items() if node.kind not in SAMPLERS and _is_sampler(node)]
        if not samplers:
            raise MetadataError(
                say("Its ComfyUI graph has no sampler that is known here."),
                advice=say(
                    "Graphs around {names} or {last} can be read.", names=", ".join(SAMPLERS[:-1]), last=SAMPLERS[-1]
                ),
            )
        for name in samplers:
            trial = _Chain(self.graph)
            latent = trial.find_latent(_first(self.graph[name], *_LATENTS))
            if latent and trial.used.isdisjoint(samplers):
                return name
        return samplers[0]

    def _use(self, name: str) -> Node:
        self.used.add(name)
        return self.graph[name]

    def _follow(self, value: object) -> tuple[Node, int] | None:
        """Returns the node that a link comes from, and the number of its output."""
        if not is_link(value):
            return None
        name, slot = cast("list[Any]", value)
        if str(name) not in self.graph:
            self._note(say("A link"), say("leads to a node that is not in the file"))
            return None
        return self._use(str(name)), slot

    def _part(self, node: Node, name: str) -> Node | None:
        """Returns the node that a part of a sampler comes from, behind those that take one and give another."""
        part: Node | None = None
        for _ in range(MAX_HOPS):
            found = self._follow((part or node).inputs.get(name))
            if found is None:
                return part
            if part is not None:
                self._list_node(part)
            part = found[0]
        return self._stop()

    def _value(self, node: Node, *names: str, accept: Accept) -> object:
        """Returns a setting, from the node or from a linked node that holds a value; notes a computed one."""
        value = _unwrap(next((node.inputs[name] for name in names if name in node.inputs), None))
        for _ in range(MAX_HOPS):
            link = self._follow(value)
            if link is None:
                if value is not None and not accept(value):
                    self._note(
                        say("{name}: {value}", name=names[0], value=_show(value)), say("is not what belongs there")
                    )
                    return None
                return value
            origin = link[0]
            value = _choose_value(origin, names, accept)
            if value is None:
                self._note(
                    say("{names}, from node {kind}", names=names[0], kind=shorten(origin.kind)),
                    say("what the node gives is not in the file"),
                )
                return None
        return self._stop()

    def _whole(self, node: Node, *names: str) -> int | None:
        value = self._value(node, *names, accept=_can(read_whole))
        return None if value is None else read_whole(value, names[0])

    def _number(self, node: Node, *names: str) -> float | None:
        value = self._value(node, *names, accept=_can(read_number))
        return None if value is None else read_number(value, names[0])

    def _text(self, node: Node, *names: str) -> str | None:
        value = self._value(node, *names, accept=_is_text)
        return None if value is None else self._limit(str(value), names[0])

    def _limit(self, text: str, name: str) -> str:
        if len(text) > MAX_STRING_CHARS:
            self._note(
                say("{name}: {value}", name=name, value=shorten(text)),
                say("is longer than {limit} characters", limit=MAX_STRING_CHARS),
            )
        return clean(text[:MAX_STRING_CHARS])

    def _find_text(self, value: object, *, role: str) -> str:
        """Finds the prompt behind a conditioning; `role` is the side to follow where a node passes both through."""
        for _ in range(MAX_HOPS):
            link = self._follow(value)
            if link is None or link[0].kind == "ConditioningZeroOut":
                return ""
            node, _slot = link
            for name in (*_ENCODED, "prompt", f"text_{role}", f"{role}_prompt", role):
                if name in node.inputs and (name != role or _is_text(node.inputs[name])):
                    if "guidance" in node.inputs:
                        self.distilled_guidance = self._number(node, "guidance")
                    text = self._join_texts(node.inputs[name], node, role)
                    self._list_other_texts(node, name, text, role)
                    return text
            if node.kind == "FluxGuidance":
                self.distilled_guidance = self._number(node, "guidance")
            elif node.kind not in ("Reroute", "WanImageToVideo") and not _is_sampler(node):
                self._list_node(node)
            value = _first(node, role, "conditioning", "conditioning_1", "conditioning_to", "", *_BUNDLES)
        self._stop()
        return ""

    def _list_other_texts(self, node: Node, name: str, text: str, role: str) -> None:
        """Lists the texts for a node's other encoders, where they are not the same."""
        for other in _ENCODED:
            if other != name and other in node.inputs:
                words = self._join_texts(node.inputs[other], node, role)
                if words and words != text:
                    self._note(
                        say("Text {name}: {text}", name=other, text=shorten(words)),
                        say("all encoders read the same words here"),
                    )

    def _join_texts(self, value: object, node: Node, role: str, hops: int = 0) -> str:
        """Returns a text that is written in the node, or joined from texts of others."""
        self.joined += 1
        if hops > MAX_HOPS or self.joined > MAX_JOINED:
            self._stop()
            return ""
        link = self._follow(value)
        if link is None:
            if _is_text(value):
                return self._limit(str(value), "text")
            self._note(
                say("Text of node {kind}: {value}", kind=shorten(node.kind), value=_show(value)), say("is no text")
            )
            return ""
        origin = link[0]
        if origin.kind == "Reroute":
            return self._join_texts(_first(origin, ""), origin, role, hops + 1)
        texts = find_texts(origin, role)
        if texts is None:
            self._note(
                say("Text from node {kind}", kind=shorten(origin.kind)), say("what the node gives is not in the file")
            )
            return ""
        style = origin.inputs.get("style")
        if isinstance(style, str) and style.lower() not in _NO_STYLE:
            self._note(
                say("{name}: {value}", name="style", value=shorten(style)),
                say("styles are not known here; their words are not in the prompt"),
            )
        parts = [self._join_texts(part, origin, role, hops + 1) for part in texts.parts]
        return self._limit(texts.delimiter.join(filter(None, parts)), "text")

    def _find_model(self, value: object) -> str | None:
        for _ in range(MAX_HOPS):
            link = self._follow(value)
            if link is None:
                return None
            node, _slot = link
            own = list_loras(node)
            self.loras += own
            for name in _MODEL_NAMES:
                if name in node.inputs and (name != "model" or _is_text(node.inputs[name])):
                    self._read_stack(node)
                    return self._text(node, name)
            if own:
                self._read_stack(node)
            elif node.kind in ("ModelSamplingSD3", "ModelSamplingAuraFlow"):
                self.flow_shift = self._number(node, "shift")
            elif node.kind != "Reroute":
                self._list_node(node)
            value = _first(node, "model", "", "model1", *_BUNDLES)
        return self._stop()

    def _read_stack(self, node: Node) -> None:
        """Reads the LoRAs of a stack that a loader takes."""
        value = _first(node, *_STACKS)
        for _ in range(MAX_HOPS):
            link = self._follow(value)
            if link is None:
                return None
            self.loras += list_loras(link[0])
            value = _first(link[0], *_STACKS)
        return self._stop()

    def _stop(self) -> None:
        self._note(say("A link"), say("runs in a circle, or over more than {limit} nodes", limit=MAX_HOPS))

    def _note(self, what: Message, why: Message) -> None:
        self.unusable.append(Unusable(what, why))

    def find_latent(self, value: object) -> Node | None:
        """Finds the node that sets the size: an empty latent, or one that prepares a video."""
        for _ in range(MAX_HOPS):
            link = self._follow(value)
            if link is None:
                return None
            node, _slot = link
            if node.kind.startswith("Empty") or "empty_latent_width" in node.inputs:
                return node
            if (size := _find_size(node)) is not None:
                return Node(kind=node.kind, inputs={**node.inputs, "width": size[0], "height": size[1]})
            if {"width", "height"} <= node.inputs.keys() and node.inputs.keys() & {"length", "num_frames"}:
                self._list_picture(node, "start_image", "image")
                return node
            if "pixels" in node.inputs:
                self._list_picture(node, "pixels")
                return None
            value = _first(node, "samples", "latent", "latent_image", "latent_1", "", *_BUNDLES)
        return self._stop()

    def _list_picture(self, node: Node, *names: str) -> None:
        if any(name in node.inputs for name in names):
            self.has_picture = True
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
        known = {lora.name for lora in self.loras}
        for node in (node for name, node in self.graph.items() if name not in self.used):
            for lora in (lora for lora in list_loras(node) if lora.name not in known):
                self._note(say("LoRA {name}", name=lora.name), say("only the chain of the first sampler is read"))
        for kind in list(kinds)[:MAX_LISTED_NODES]:
            self.unusable.append(
                Unusable(say("Node {kind}", kind=shorten(kind)), say("only the chain of the first sampler is read"))
            )


def _first(node: Node, *names: str) -> object:
    return next((node.inputs[name] for name in names if name in node.inputs), None)


def _unwrap(value: object) -> object:
    """Returns the name of a file that a list of pictures shows, of an object that holds it and its picture."""
    return cast("dict[str, Any]", value).get("content") if isinstance(value, dict) else value


def _find_size(node: Node) -> tuple[int, int] | None:
    """Returns the size that a node without links names as one text, such as `1024 x 1024 (square)`."""
    texts = [node.inputs.get(name) for name in ("dimensions", "resolution", "size")]
    found = next((_SIZE.search(text) for text in texts if isinstance(text, str)), None)
    return (int(found[1]), int(found[2])) if found else None


def _choose_value(node: Node, names: tuple[str, ...], accept: Accept) -> object:
    """Returns what a node that holds or passes on a value gives, perhaps a link; None for one that computes it."""
    if _COMPUTING.search(node.kind):
        return None
    for name in (*names, *_VALUE_NAMES, *(_SEEDS if names[0] in _SEEDS else ())):
        value = node.inputs.get(name)
        if value is not None and (is_link(value) or accept(value)):
            return value
    only = next(iter(node.inputs.values())) if len(node.inputs) == 1 else None
    return only if is_link(only) or accept(only) else None


def _can(read: Callable[[object, str], object]) -> Accept:
    """Returns whether a value can be read so."""

    def accept(value: object) -> bool:
        try:
            read(value, "")
        except MetadataError:
            return False
        return True

    return accept


def _is_sampler(node: Node) -> bool:
    """Tells whether a node samples, whoever made it: it has steps, guidance, a sampler and a seed."""
    keys = node.inputs.keys()
    return keys >= _SAMPLER_INPUTS and bool(keys & {*_SEEDS}) and bool(keys & {*_SAMPLER_NAMES})


def _show(value: object) -> str:
    return shorten(value) if isinstance(value, str | int | float) else "…"

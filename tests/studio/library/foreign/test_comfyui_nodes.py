"""ComfyUI's graphs with nodes of many makers: what stands in them is read, and what they compute is listed."""

import json
from collections.abc import Callable
from typing import Any

import pytest

from studio.library.foreign.found import ReadRecipe

Read = Callable[..., ReadRecipe]
Write = Callable[..., bytes]
Graph = dict[str, Any]

SETTINGS: dict[str, Any] = {"seed": 5, "steps": 20, "cfg": 8, "sampler_name": "euler", "scheduler": "normal"}
LINKS = {"model": ["4", 0], "positive": ["6", 0], "negative": ["7", 0], "latent_image": ["5", 0]}


def node(kind: str, **inputs: Any) -> dict[str, Any]:
    return {"class_type": kind, "inputs": inputs}


def basic(**others: Any) -> Graph:
    return {
        "3": node("KSampler", **SETTINGS, denoise=1, **LINKS),
        "4": node("CheckpointLoaderSimple", ckpt_name="sd_xl_base_1.0.safetensors"),
        "5": node("EmptyLatentImage", width=832, height=1216, batch_size=1),
        "6": node("CLIPTextEncode", text="a red boat"),
        "7": node("CLIPTextEncode", text="fog"),
    } | others


@pytest.fixture
def read_graph(read: Read, write_png: Write) -> Read:
    return lambda graph, **options: read(write_png(prompt=json.dumps(graph)), **options)


def facts(found: ReadRecipe) -> tuple[Any, ...]:
    recipe = found.recipe
    return recipe.prompt, recipe.negative_prompt, recipe.model, recipe.shape, recipe.seed, recipe.steps


def list_what(found: ReadRecipe) -> list[str]:
    return [one.what for one in found.unusable]


EASY = {
    "1": node(
        "easy fullLoader",
        ckpt_name="sd_xl_base_1.0.safetensors",
        lora_name="None",
        empty_latent_width=832,
        empty_latent_height=1216,
        positive="a red boat",
        negative="fog",
    ),
    "2": node("easy preSampling", **SETTINGS, denoise=1, pipe=["1", 0]),
    "3": node("easy kSampler", pipe=["2", 0]),
}
CONTEXT = basic(
    **{
        "3": node("KSampler", **SETTINGS, denoise=1, **{name: ["9", slot] for slot, name in enumerate(LINKS)}),
        "8": node("Context (rgthree)", model=["4", 0], positive=["6", 0], negative=["7", 0], latent=["5", 0]),
        "9": node("Context (rgthree)", base_ctx=["8", 0]),
    }
)
PIPE = basic(
    **{
        "3": node("ImpactKSamplerBasicPipe", **SETTINGS, denoise=1, basic_pipe=["8", 0], latent_image=["5", 0]),
        "8": node("ToBasicPipe", model=["4", 0], positive=["6", 0], negative=["7", 0]),
    }
)
SIGMAS = basic(
    **{
        "3": node(
            "SamplerCustomAdvanced",
            noise=["10", 0],
            guider=["11", 0],
            sampler=["12", 0],
            sigmas=["13", 0],
            latent_image=["5", 0],
        ),
        "10": node("RandomNoise", noise_seed=5),
        "11": node("CFGGuider", cfg=8, model=["4", 0], positive=["6", 0], negative=["7", 0]),
        "12": node("DetailDaemonSamplerNode", sampler=["14", 0]),
        "13": node("SplitSigmas", sigmas=["15", 0], step=5),
        "14": node("KSamplerSelect", sampler_name="euler"),
        "15": node("BasicScheduler", scheduler="normal", steps=20, denoise=1),
    }
)
LISTED = basic(
    **{
        "4": node("CheckpointLoader|pysssss", ckpt_name={"content": "sd_xl_base_1.0.safetensors", "image": None}),
        "5": node("SDXL Empty Latent Image (rgthree)", dimensions=" 832 x 1216  (portrait)", batch_size=1),
    }
)


@pytest.mark.parametrize("graph", [basic(), EASY, CONTEXT, PIPE, SIGMAS, LISTED])
def test_a_chain_is_followed_through_nodes_of_any_maker(read_graph: Read, graph: Graph) -> None:
    found = read_graph(graph)
    assert facts(found) == ("a red boat", "fog", "sdxl-base", "832x1216", 5, 20)
    assert (found.recipe.guidance_scale, found.recipe.scheduler) == (8, "euler")


@pytest.mark.parametrize(
    ("encoding", "prompt", "told"),
    [
        (node("CLIPTextEncodeSDXL", text_g="a boat", text_l="sails"), "a boat", ["Text text_l: sails"]),
        (node("CLIPTextEncodeSDXL", text_g="a boat", text_l="a boat"), "a boat", []),
        (node("CLIPTextEncodeFlux", clip_l="boat", t5xxl="a long boat"), "a long boat", ["Text clip_l: boat"]),
        (node("CLIPTextEncode", text=["8", 0]), "a shown boat", []),
        (node("CLIPTextEncode", text=["9", 0]), "", ["Text from node OllamaGenerate"]),
        (node("CLIPTextEncode", text=["10", 0]), "a styled boat", ["style: sai-anime"]),
        (node("CLIPTextEncode", text=["11", 0]), "a boat, at sea", []),
    ],
)
def test_the_text_that_was_encoded_is_found(read_graph: Read, encoding: Graph, prompt: str, told: list[str]) -> None:
    others = {
        "6": encoding,
        "8": node("ShowText|pysssss", text=["9", 0], text_0="a shown boat"),
        "9": node("OllamaGenerate", prompt="write me a boat"),
        "10": node("SDXLPromptStyler", text_positive="a styled boat", text_negative="fog", style="sai-anime"),
        "11": node(
            "StringFunction|pysssss", action="append", text_a="a boat", text_b="at sea", result="a boat, at sea"
        ),
    }
    found = read_graph(basic(**others))
    assert found.recipe.prompt == prompt
    assert [what for what in list_what(found) if what.startswith(("Text", "style"))] == told


def test_guidance_within_a_text_encoder_counts(read_graph: Read) -> None:
    graph = basic(**{"6": node("CLIPTextEncodeFlux", clip_l="a boat", t5xxl="a boat", guidance=3.5)})
    graph["4"] = node("UNETLoader", unet_name="flux2_dev_fp8mixed.safetensors")
    assert read_graph(graph).recipe.guidance_scale == 3.5


def stack(**inputs: Any) -> Graph:
    names = {f"lora_name_{number}": f"{name}.safetensors" for number, name in enumerate(("ink", "gone"), 1)}
    return node("LoRA Stacker", **names, lora_wt_1=0.3, model_str_1=0.7, lora_wt_2=1, model_str_2=1, **inputs)


@pytest.mark.parametrize(
    ("loader", "scale", "told"),
    [
        (node("LoraLoader|pysssss", lora_name={"content": "ink.safetensors"}, strength_model=0.6), 0.6, []),
        (node("X", lora_stack=["9", 0], ckpt_name="x"), 0.3, []),
        (node("X", lora_stack=["10", 0], ckpt_name="x"), 0.7, ["LoRA gone.safetensors"]),
        (node("X", lora=["11", 0], ckpt_name="x"), 0.8, ["LoRA gone.safetensors"]),
    ],
)
def test_loras_count_as_their_nodes_use_them(read_graph: Read, loader: Graph, scale: float, told: list[str]) -> None:
    loader["inputs"].setdefault("model", ["4", 0])
    others = {
        "8": loader,
        "9": stack(input_mode="simple", lora_count=1),
        "10": stack(input_mode="advanced", lora_count=2),
        "11": node("WanVideoLoraSelect", lora="wan\\ink.safetensors", strength=0.8, prev_lora=["12", 0]),
        "12": node("WanVideoLoraSelect", lora="gone.safetensors", strength=0.5),
        "3": node("KSampler", **SETTINGS, **(LINKS | {"model": ["8", 0]})),
    }
    found = read_graph(basic(**others), loras=("ink",))
    assert [(lora.ref, lora.scale) for lora in found.recipe.loras] == [("ink", scale)]
    missing = [one.what for one in found.unusable if one.why == "is not among the LoRAs here"]
    assert missing == told


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"5": node("Latent by ratio", ratio="4:3")}, "Size"),
        ({"3": SIGMAS["3"], "13": node("ManualSigmas", sigmas="1, 0.5, 0"), "10": SIGMAS["10"]}, "Steps"),
    ],
)
def test_what_cannot_be_read_is_listed(read_graph: Read, changes: Graph, told: str) -> None:
    assert told in list_what(read_graph(basic(**changes)))


WAN = {
    "1": node(
        "WanVideoSampler",
        steps=25,
        cfg=6,
        shift=5,
        seed=42,
        scheduler="unipc",
        model=["2", 0],
        text_embeds=["3", 0],
        image_embeds=["4", 0],
    ),
    "2": node("WanVideoModelLoader", model="Wan2_1-T2V-14B_fp8_e4m3fn.safetensors", base_precision="fp16"),
    "3": node("WanVideoTextEncode", positive_prompt="a boat sails", negative_prompt="ugly"),
    "4": node("WanVideoEmptyEmbeds", width=832, height=480, num_frames=81),
}


def test_the_wrapper_for_wan_is_read(read_graph: Read) -> None:
    found = read_graph(WAN)
    assert facts(found) == ("a boat sails", "ugly", "wan2.1-14b", "832x480x81", 42, 25)
    assert (found.recipe.scheduler, found.recipe.flow_shift, found.recipe.guidance_scale) == ("unipc", 5, 6)


def two_passes(first: str, second: str) -> Graph:
    """A pass that begins, and one that goes on with another model; each model has a LoRA."""
    settings = {"noise_seed": 5, "steps": 8, "sampler_name": "euler", "scheduler": "simple"}
    texts = {"positive": ["6", 0], "negative": ["7", 0]}
    return {
        "2": node("KSamplerAdvanced", **settings, **texts, cfg=1, model=["11", 0], latent_image=["1", 0]),
        "1": node("KSamplerAdvanced", **settings, **texts, cfg=3.5, model=["10", 0], latent_image=["5", 0]),
        "10": node("LoraLoaderModelOnly", lora_name="ink.safetensors", strength_model=0.6, model=["12", 0]),
        "11": node("LoraLoaderModelOnly", lora_name="pixel.safetensors", strength_model=0.9, model=["13", 0]),
        "12": node("UNETLoader", unet_name=first),
        "13": node("UNETLoader", unet_name=second),
        "5": node("EmptyHunyuanLatentVideo", width=832, height=480, length=81, batch_size=1),
        "6": node("CLIPTextEncode", text="a boat"),
        "7": node("CLIPTextEncode", text="fog"),
    }


def test_two_experts_have_their_own_loras_and_guidance(read_graph: Read) -> None:
    graph = two_passes(*(f"wan2.2_t2v_{level}_noise_14B_fp8_scaled.safetensors" for level in ("high", "low")))
    found = read_graph(graph, loras=("ink", "pixel"), family="wan")
    recipe = found.recipe
    assert (recipe.model, recipe.steps, recipe.guidance_scale, recipe.guidance_scale_2) == ("wan2.2-a14b", 8, 3.5, 1)
    assert [(lora.ref, lora.scale, lora.expert) for lora in recipe.loras] == [
        ("ink", 0.6, "high"),
        ("pixel", 0.9, "low"),
    ]
    assert list_what(found) == []


def test_a_second_model_is_no_expert_and_its_loras_are_listed(read_graph: Read) -> None:
    found = read_graph(two_passes("sd_xl_base_1.0.safetensors", "sd_xl_refiner.safetensors"), loras=("ink", "pixel"))
    assert [(lora.ref, lora.expert) for lora in found.recipe.loras] == [("ink", None)]
    assert found.recipe.guidance_scale_2 is None
    assert "LoRA pixel.safetensors" in list_what(found)


@pytest.mark.parametrize("comment", [{"prompt": json.dumps(WAN), "workflow": {"nodes": []}}, {"prompt": WAN}])
def test_graphs_within_a_videos_comment_are_read(read: Read, write_png: Write, comment: Graph) -> None:
    """The nodes for videos write such a comment; here a PNG carries it."""
    found = read(write_png(comment=json.dumps(comment | {"CreationTime": "now"})))
    assert (found.source, found.recipe.seed) == ("ComfyUI", 42)


def test_other_comments_are_no_graphs(read: Read, write_png: Write) -> None:
    assert read(write_png(comment=json.dumps({"prompt": "{red|blue} boat", "title": "x"}))) is None


def test_newer_editors_name_the_settings_of_any_node(read: Read, write_png: Write) -> None:
    def widgets(*names: str) -> list[Any]:
        return [{"name": name, "widget": {"name": name}, "link": None} for name in names]

    sockets = [{"name": name, "link": number} for number, name in enumerate(LINKS, 1)]
    drawn = {
        "nodes": [
            {"id": 1, "type": "KSampler", "inputs": sockets, "widgets_values": [5, "randomize", 20, 8, "euler"]},
            {"id": 4, "type": "CheckpointLoaderSimple", "widgets_values": ["sd_xl_base_1.0.safetensors"]},
            {"id": 6, "type": "Odd", "inputs": widgets("clip_l", "t5xxl"), "widgets_values": ["boat", "a red boat"]},
            {"id": 7, "type": "Odd", "inputs": widgets("seed", "text"), "widgets_values": [9, "fixed", "fog"]},
            {"id": 5, "type": "EmptyLatentImage", "widgets_values": [832, 1216, 1]},
        ],
        "links": [[number, origin, 0, 1, 0, "X"] for number, origin in enumerate((4, 6, 7, 5), 1)],
    }
    assert facts(read(write_png(workflow=json.dumps(drawn)))) == facts_of_basic()


def facts_of_basic() -> tuple[Any, ...]:
    return "a red boat", "fog", "sdxl-base", "832x1216", 5, 20

"""ComfyUI's graphs, as they ran and as they were drawn."""

import json
from collections.abc import Callable
from typing import Any

import pytest

from studio.library.foreign.errors import MetadataError
from studio.library.foreign.found import ReadRecipe

Read = Callable[..., ReadRecipe]
Write = Callable[..., bytes]
Graph = dict[str, Any]


def node(kind: str, **inputs: Any) -> dict[str, Any]:
    return {"class_type": kind, "inputs": inputs, "_meta": {"title": kind}, "is_changed": [float("nan")]}


def basic(**others: Any) -> Graph:
    """The graph that ComfyUI opens with."""
    return {
        "3": node(
            "KSampler",
            seed=156680208700286,
            steps=20,
            cfg=8,
            sampler_name="dpmpp_2m",
            scheduler="karras",
            denoise=1,
            model=["4", 0],
            positive=["6", 0],
            negative=["7", 0],
            latent_image=["5", 0],
        ),
        "4": node("CheckpointLoaderSimple", ckpt_name="SDXL\\sd_xl_base_1.0.safetensors"),
        "5": node("EmptyLatentImage", width=1024, height=1024, batch_size=2),
        "6": node("CLIPTextEncode", text="a red boat", clip=["4", 1]),
        "7": node("CLIPTextEncode", text="fog", clip=["4", 1]),
        "8": node("VAEDecode", samples=["3", 0], vae=["4", 2]),
        "9": node("SaveImage", filename_prefix="ComfyUI", images=["8", 0]),
    } | others


def change(name: str, **inputs: Any) -> Graph:
    graph = basic()
    graph[name] = {**graph[name], "inputs": graph[name]["inputs"] | inputs}
    return graph


@pytest.fixture
def read_graph(read: Read, write_png: Write) -> Read:
    return lambda graph, **options: read(write_png(prompt=json.dumps(graph)), **options)


def list_what(found: ReadRecipe) -> list[str]:
    return [one.what for one in found.unusable]


def test_a_basic_graph_arrives(read_graph: Read) -> None:
    found = read_graph(basic())
    recipe = found.recipe
    assert (found.source, recipe.prompt, recipe.negative_prompt) == ("ComfyUI", "a red boat", "fog")
    assert (recipe.model, recipe.shape, recipe.scheduler) == ("sdxl-base", "1024x1024", "dpmpp_2m_karras")
    assert (recipe.steps, recipe.guidance_scale, recipe.batch_size, recipe.seed) == (20, 8.0, 2, 156680208700286)
    assert list_what(found) == []


def test_loras_and_foreign_nodes_are_listed(read_graph: Read) -> None:
    graph = change("3", model=["10", 0], positive=["11", 0], seed=4)
    graph["10"] = node("LoraLoader", lora_name="pixel.safetensors", strength_model=1, model=["4", 0], clip=["4", 1])
    graph["11"] = node("ControlNetApply", strength=1, conditioning=["6", 0], control_net=["12", 0], image=["13", 0])
    graph["12"] = node("ControlNetLoader", control_net_name="canny")
    graph["14"] = node("ImageUpscaleWithModel", image=["8", 0])
    found = read_graph(graph)
    assert (found.recipe.prompt, found.recipe.seed, found.recipe.model) == ("a red boat", 4, "sdxl-base")
    assert list_what(found) == [
        "LoRA pixel.safetensors",
        "Node ControlNetApply",
        "Node ControlNetLoader",
        "Node ImageUpscaleWithModel",
    ]


def test_a_lora_in_the_chain_comes_with_its_strength(read_graph: Read) -> None:
    graph = change("3", model=["10", 0], seed=4)
    graph["10"] = node(
        "LoraLoader",
        lora_name="pixel.safetensors",
        strength_model=0.5,
        strength_clip=0.75,
        model=["4", 0],
        clip=["4", 1],
    )
    found = read_graph(graph, loras=("pixel",))
    assert [(lora.ref, lora.scale) for lora in found.recipe.loras] == [("pixel", 0.5)]
    assert any("one weight here, 0.5" in note for note in found.notes)


def test_the_first_pass_is_taken(read_graph: Read) -> None:
    second = dict(basic()["3"]["inputs"], latent_image=["3", 0], steps=10, denoise=0.5)
    found = read_graph({"2": node("KSampler", **second), **basic()})
    assert found.recipe.steps == 20
    assert "Node KSampler" in list_what(found)


def test_a_picture_that_was_repainted_is_said(read_graph: Read) -> None:
    graph = change("3", latent_image=["10", 0], denoise=0.5)
    graph["10"] = node("VAEEncode", pixels=["11", 0], vae=["4", 2])
    graph["11"] = node("LoadImage", image="cat.png")
    found = read_graph(graph)
    assert (found.recipe.prompt, found.recipe.shape) == ("a red boat", None)
    assert (found.recipe.strength, found.recipe.steps, found.recipe.denoising_steps) == (0.5, 40, 20)
    assert "Input picture" in list_what(found)
    assert found.notes[0] == "The strength counts as soon as you choose the picture to start from."


def test_noise_that_is_not_taken_away_is_no_strength(read_graph: Read) -> None:
    found = read_graph(change("3", denoise=0.5))
    assert (found.recipe.strength, found.recipe.steps) == (None, 20)
    assert "Denoise: 0.5" in list_what(found)


def test_a_strength_is_left_out_where_the_model_has_none(read_graph: Read) -> None:
    graph = change("3", latent_image=["10", 0], denoise=0.5)
    graph["10"] = node("VAEEncode", pixels=["11", 0], vae=["4", 2])
    graph["4"] = node("UNETLoader", unet_name="flux2-dev.safetensors")
    found = read_graph(graph)
    assert (found.recipe.model, found.recipe.strength) == ("flux2-dev", None)
    assert "Strength: 0.5" in list_what(found)


def test_values_may_come_from_nodes_of_their_own(read_graph: Read) -> None:
    graph = change("6", text=["20", 0])
    graph["3"]["inputs"]["seed"] = ["21", 0]
    graph |= {"20": node("PrimitiveStringMultiline", value="a long prompt"), "21": node("PrimitiveInt", value=12)}
    recipe = read_graph(graph).recipe
    assert (recipe.prompt, recipe.seed) == ("a long prompt", 12)


def test_flux_2_with_a_custom_sampler(read_graph: Read) -> None:
    graph = {
        "1": node("UNETLoader", unet_name="flux2_dev_fp8mixed.safetensors", weight_dtype="default"),
        "2": node("CLIPTextEncode", text="a red boat", clip=["9", 0]),
        "3": node("FluxGuidance", guidance=3.5, conditioning=["2", 0]),
        "4": node("BasicGuider", model=["1", 0], conditioning=["3", 0]),
        "5": node("RandomNoise", noise_seed=77),
        "6": node("KSamplerSelect", sampler_name="euler"),
        "7": node("Flux2Scheduler", steps=28, width=1248, height=832),
        "8": node("EmptyFlux2LatentImage", width=1248, height=832, batch_size=1),
        "9": node("CLIPLoader", clip_name="mistral", type="flux2"),
        "10": node(
            "SamplerCustomAdvanced",
            noise=["5", 0],
            guider=["4", 0],
            sampler=["6", 0],
            sigmas=["7", 0],
            latent_image=["8", 0],
        ),
        "11": node("SaveImage", images=["12", 0]),
        "12": node("VAEDecode", samples=["10", 0]),
    }
    found = read_graph(graph)
    recipe = found.recipe
    assert (recipe.model, recipe.prompt, recipe.guidance_scale, recipe.seed) == ("flux2-dev", "a red boat", 3.5, 77)
    assert (recipe.steps, recipe.scheduler, recipe.shape) == (28, "flow_match_euler", "1216x832")
    assert found.unusable == ()


def test_wan_text_to_video(read_graph: Read) -> None:
    graph = basic()
    graph["3"]["inputs"] |= {"model": ["10", 0], "sampler_name": "uni_pc", "scheduler": "simple", "seed": 5, "cfg": 6}
    graph["4"] = node("UNETLoader", unet_name="wan2.1_t2v_1.3B_fp16.safetensors", weight_dtype="default")
    graph["5"] = node("EmptyHunyuanLatentVideo", width=832, height=480, length=33, batch_size=1)
    graph["10"] = node("ModelSamplingSD3", shift=8, model=["4", 0])
    recipe = read_graph(graph).recipe
    assert (recipe.model, recipe.shape, recipe.flow_shift) == ("wan2.1-1.3b", "832x480x33", 8.0)
    assert (recipe.scheduler, recipe.guidance_scale, recipe.seed) == ("unipc", 6.0, 5)


def draw(kind: str, number: int, values: Any, *inputs: tuple[str, int], mode: int = 0) -> dict[str, Any]:
    return {
        "id": number,
        "type": kind,
        "mode": mode,
        "inputs": [{"name": name, "type": "*", "link": link} for name, link in inputs],
        "widgets_values": values,
    }


def test_a_graph_that_was_only_drawn(read: Read, write_png: Write, write_exif: Write) -> None:
    """Of its two LoRA loaders one is bypassed, and one note is muted."""
    workflow = {
        "nodes": [
            draw(
                "KSampler",
                3,
                [7, "randomize", 20, 8, "euler", "normal", 1],
                ("model", 1),
                ("positive", 2),
                ("negative", 3),
                ("latent_image", 4),
            ),
            draw("LoraLoaderModelOnly", 10, ["off.safetensors", 1], ("model", 5), mode=4),
            draw("LoraLoaderModelOnly", 11, ["on.safetensors", 1], ("model", 6)),
            draw("CheckpointLoaderSimple", 4, ["sd_xl_base_1.0.safetensors"]),
            draw("CLIPTextEncode", 6, ["a red boat"], ("clip", 7)),
            draw("CLIPTextEncode", 7, ["fog"], ("clip", 7)),
            draw("EmptyLatentImage", 5, [896, 1152, 1]),
            draw("SomethingElse", 12, {"by": "name"}, mode=2),
        ],
        "links": [
            [1, 10, 0, 3, 0, "MODEL"],
            [2, 6, 0, 3, 1, "CONDITIONING"],
            [3, 7, 0, 3, 2, "CONDITIONING"],
            {"id": 4, "origin_id": 5, "origin_slot": 0, "target_id": 3, "target_slot": 3, "type": "LATENT"},
            [5, 11, 0, 10, 0, "MODEL"],
            [6, 4, 0, 11, 0, "MODEL"],
            [7, 4, 1, 6, 0, "CLIP"],
        ],
        "version": 0.4,
    }
    text = json.dumps(workflow)
    for content in (write_png(workflow=text), write_exif({0x010F: f"workflow:{text}"}, kind="WEBP")):
        found = read(content)
        recipe = found.recipe
        assert (recipe.prompt, recipe.negative_prompt, recipe.seed) == ("a red boat", "fog", 7)
        assert (recipe.model, recipe.shape, recipe.steps) == ("sdxl-base", "896x1152", 20)
        assert list_what(found) == ["LoRA on.safetensors"]


def test_what_the_model_does_not_have_is_listed(read_graph: Read) -> None:
    graph = change("3", model=["10", 0], scheduler="normal", seed=1)
    graph["10"] = node("ModelSamplingSD3", shift=8, model=["4", 0])
    found = read_graph(graph)
    assert [(one.what, one.why) for one in found.unusable] == [("Flow shift: 8.0", "sdxl-base has no flow_shift")]


@pytest.mark.parametrize(
    ("graph", "what", "why"),
    [
        (change("3", positive=["99", 0]), "A link", "leads to a node that is not in the file"),
        (change("3", positive=["6" * 99, 0]), "A link", "leads to a node that is not in the file"),
        (change("5", width=-8), "Size: -8 x 1024", "is no size"),
        (change("3", steps="many"), "steps: many", "is not what belongs there"),
        (change("3", sampler_name=5), "sampler_name: 5", "is not what belongs there"),
        (change("6", text=["6", 0]), "A link", "runs in a circle, or over more than 60 nodes"),
        (change("6", text=5), "Text of node CLIPTextEncode: 5", "is no text"),
        (change("4", ckpt_name=["4", 0]), "A link", "runs in a circle, or over more than 60 nodes"),
    ],
)
def test_what_is_odd_in_a_graph_is_listed_and_costs_no_other(
    read_graph: Read, graph: Graph, what: str, why: str
) -> None:
    found = read_graph(graph)
    assert (what, why) in [(one.what, one.why) for one in found.unusable]
    assert found.recipe.batch_size == 2


@pytest.mark.parametrize(
    ("graph", "detail"),
    [
        (basic(**{"3": node("Reroute")}), "no sampler that is known here"),
        ({str(number): node("Note") for number in range(3001)}, "at most 3000"),
        (basic(**{"3": {"class_type": ["a"], "inputs": {}}}), "no sampler that is known here"),
    ],
)
def test_damaged_graphs_are_told(read_graph: Read, graph: Graph, detail: str) -> None:
    with pytest.raises(MetadataError, match=detail):
        read_graph(graph)

"""Files as they were reported of other programs, and more of each kind: what stands in them is read, or listed."""

import io
import json
import zlib
from collections.abc import Callable
from typing import Any

import pytest
from PIL import Image, features

from studio.library.foreign.found import ReadRecipe

Read = Callable[..., ReadRecipe]
Write = Callable[..., bytes]

REST = "Sampler: DPM++ 2M, Schedule type: Karras, CFG scale: 6.5, Seed: 12345, Size: 832x1216, Model: sd_xl_base_1.0"
SETTINGS = f"Steps: 20, {REST}"


def facts(found: ReadRecipe) -> tuple[Any, ...]:
    recipe = found.recipe
    return recipe.prompt, recipe.negative_prompt, recipe.steps, recipe.guidance_scale, recipe.seed


def listed(found: ReadRecipe) -> list[str]:
    return [one.what for one in found.unusable]


@pytest.mark.parametrize(
    ("text", "odd"),
    [
        ("Steps: 25, Sampler: Euler, CFG scale: None, Seed: 5, Size: 1024x1024", "CFG scale: None"),
        ("Steps: 25, Sampler: Euler, CFG scale: 7, Seed: 5, Size: None", "Size: None"),
        ("Steps: Steps, Sampler: Euler, CFG scale: 7, Seed: 5", "Steps: Steps"),
        ("Steps: 25, Sampler: Euler, CFG scale: 7, Seed: undefined", "Seed: undefined"),
    ],
)
def test_one_odd_setting(read_parameters: Read, text: str, odd: str) -> None:
    found = read_parameters(f"a boat\nNegative prompt: blurry\n{text}")
    assert (found.recipe.prompt, found.recipe.negative_prompt, found.recipe.scheduler) == ("a boat", "blurry", "euler")
    assert odd in listed(found)


@pytest.mark.parametrize(
    "text",
    [
        f"a boat\nNegative prompt: blurry\n{SETTINGS}",
        f"a boat\nNegative prompt: blurry {SETTINGS}",
        f"a boat Negative prompt: blurry\n{SETTINGS}",
        f"a boat Negative prompt: blurry {SETTINGS}",
        f"a boat\nNegative Prompt: blurry\n{SETTINGS.replace('CFG scale', 'Cfg Scale').replace('Steps', 'steps')}",
        f"a boat\n-blurry\n{SETTINGS.replace('CFG scale', 'Guidance Scale')}, Seed Mode: Scale Alike",
        f"a boat\nNegative prompt: blurry\nVersion: aa62f6d, Pipeline: Original, {SETTINGS}",
        f"a boat\nNegative prompt: blurry\nApp: SD.Next, Backend: Diffusers, Odd name: 5, {SETTINGS}",
        f"a boat\nNegative prompt: blurry\n{REST}, Steps: 20",
        f"a boat\nNegative prompt: blurry\nSeed: 12345, {SETTINGS.replace('Seed: 12345, ', '')}",
        "a boat\nNegative prompt: blurry\nSteps: 20, Sampler: DPM++ 2M\nCFG scale: 6.5, Seed: 12345\nSize: 832x1216",
        "a boat\nNegative prompt: blurry\nSteps: 20, Sampler: Euler, CFG scale: 6.5,\nSeed: 12345, Size: 832x1216",
        f"a boat\nNegative prompt: blurry\n{SETTINGS}\nTemplate: a {{red|blue}} boat\nNegative Template: blurry",
        f"a boat\r\nNegative prompt: blurry\r\n{SETTINGS}\r\n",
        f'a boat\nNegative prompt: blurry\nSteps: 20, Hires prompt: 6" heels, {REST}',
        f'a boat\nNegative prompt: blurry\nSteps: 20, Note: say "no", {REST}',
        f'a boat\nNegative prompt: blurry\nSteps: 20, ADetailer prompt: "a face, \nSeed: 9, smiling", {REST}',
        f'a boat\nNegative prompt: blurry\nSteps: 20, Odd: "never closed, {REST}',
    ],
)
def test_settings_wherever_they_stand(read_parameters: Read, text: str) -> None:
    assert facts(read_parameters(text)) == ("a boat", "blurry", 20, 6.5, 12345)


@pytest.mark.parametrize("prompt", ['{"scene": "a boat", "lens": {"mm": 35}}', "{red|blue} boat", '{"a": "b"'])
def test_a_prompt_may_begin_with_a_brace(read_parameters: Read, prompt: str) -> None:
    found = read_parameters(f"{prompt}\nNegative prompt: blurry\n{SETTINGS}")
    assert facts(found) == (prompt, "blurry", 20, 6.5, 12345)


def test_a_strength_of_nothing_is_none(read_parameters: Read) -> None:
    found = read_parameters(f"a boat\n{SETTINGS}, Denoising strength: 0")
    assert (found.recipe.strength, [what for what in listed(found) if "trength" in what]) == (None, [])


def test_a_size_may_stand_in_two_settings(read_parameters: Read) -> None:
    text = "a boat\nSteps: 20, Sampler: Euler, CFG scale: 7, Seed: 5, Model: sd_xl_base_1.0"
    found = read_parameters(f"{text}, Width: 832, Height: 1216")
    assert (found.recipe.shape, listed(found)) == ("832x1216", [])
    assert "Size: 0 x 0" in listed(read_parameters(f"{text}, Size: 0x0"))


@pytest.mark.parametrize("seed", [2**63 - 1, 2**53 + 1])
def test_a_seed_of_64_bits_arrives_exactly(read_parameters: Read, seed: int) -> None:
    assert read_parameters(f"a boat\nSteps: 20, Sampler: Euler, Seed: {seed}, Size: 832x1216").recipe.seed == seed


def test_a_seed_beyond_is_listed(read_parameters: Read) -> None:
    found = read_parameters(f"a boat\nSteps: 20, Sampler: Euler, Seed: {2**64 - 1}, Size: 832x1216")
    assert (found.recipe.seed, found.recipe.steps) == (None, 20)
    assert f"Seed: {2**64 - 1}" in listed(found)


@pytest.mark.parametrize("extra", ['Hashes: {"lora:ink": ', 'Civitai resources: [{"type": "lora", "modelName": "In'])
def test_a_list_of_files_that_was_cut_off_is_listed(read_parameters: Read, extra: str) -> None:
    found = read_parameters(f"a boat\n{SETTINGS}, {extra}")
    assert "is damaged or cut off" in [one.why for one in found.unusable]
    assert facts(found)[2:] == (20, 6.5, 12345)


def test_a_tag_in_the_negative_prompt_is_listed(read_parameters: Read) -> None:
    found = read_parameters(
        f"a boat <lora:ink:1:lbw=ALL>\nNegative prompt: bad <lora:ink:1>\n{SETTINGS}", loras=("ink",)
    )
    assert found.recipe.negative_prompt == "bad"
    assert "stands in the negative prompt" in [one.why for one in found.unusable]
    assert "LoRA ink: lbw=ALL in its tag means nothing here." in found.notes


@pytest.mark.parametrize(
    ("text", "prompt"),
    [
        ("a boat at sea", "a boat at sea"),
        ("a clock, Time: noon, a boat", "a clock, Time: noon, a boat"),
        (f"a sign\nSteps: of stone\n{SETTINGS}", "a sign\nSteps: of stone"),
        (f"Model: a woman in red\n{SETTINGS}", "Model: a woman in red"),
        (f"Size: huge, Mood: calm\n{SETTINGS}", "Size: huge, Mood: calm"),
        (SETTINGS, ""),
    ],
)
def test_words_that_look_like_settings_stay_words(read_parameters: Read, text: str, prompt: str) -> None:
    assert read_parameters(text).recipe.prompt == prompt


def test_files_that_decide_over_the_picture_are_used_or_listed(read_parameters: Read) -> None:
    resources = [
        {"type": "checkpoint", "modelVersionId": 290640, "modelName": "Some XL", "modelVersionName": "v6"},
        {"type": "lora", "weight": 0.8, "modelVersionId": 1, "modelName": "Ink style", "modelVersionName": "v1"},
        {"type": "embed", "weight": 1, "modelVersionId": 2, "modelName": "Some embedding"},
        {"type": "lora", "weight": 0.4, "air": "urn:air:sdxl:lora:civitai:123@456"},
        {"type": "upscaler", "modelName": "4x"},
    ]
    text = f"a boat\nSteps: 25, Sampler: Euler, Civitai resources: {json.dumps(resources)}, Civitai metadata: {{}}"
    found = read_parameters(text, loras=("Ink_style",))
    assert [(lora.ref, lora.scale) for lora in found.recipe.loras] == [("Ink_style", 0.8)]
    assert {
        "Model Some XL",
        "Embedding Some embedding",
        "LoRA urn:air:sdxl:lora:civitai:123@456",
        "Resource 4x (upscaler)",
    } <= set(listed(found))


@pytest.mark.parametrize(
    "extra",
    [
        'Lora hashes: "ink: 1234567890, add-detail-xl: abcdef", TI hashes: "negativeXL_D: fff7d5c4"',
        'Hashes: {"model": "ab12", "lora:ink": "1234", "lora:add-detail-xl": "99", "embed:negativeXL_D": "fff7"}',
    ],
)
def test_files_that_only_hashes_name(read_parameters: Read, extra: str) -> None:
    found = read_parameters(f"a boat\n{SETTINGS}, {extra}", loras=("ink",))
    assert [(lora.ref, lora.scale) for lora in found.recipe.loras] == [("ink", 1)]
    assert "The file does not say how strongly LoRA ink applies: 1 is used." in found.notes
    assert {"LoRA add-detail-xl", "Embedding negativeXL_D"} <= set(listed(found))


def test_a_tag_says_how_strong_a_hashed_lora_is(read_parameters: Read) -> None:
    found = read_parameters(f'a boat <lora:ink:0.3>\n{SETTINGS}, Lora hashes: "ink: 1234567890"', loras=("ink",))
    assert [(lora.ref, lora.scale) for lora in found.recipe.loras] == [("ink", 0.3)]
    assert not any("how strongly" in note for note in found.notes)


def test_a_hash_of_a_model_is_no_name(read_parameters: Read) -> None:
    found = read_parameters("a boat\nSteps: 20, Sampler: Euler, Seed: 1, Model hash: 31e35c80fc")
    assert "Model hash 31e35c80fc" in listed(found)


@pytest.mark.parametrize(
    "comment",
    [
        lambda text: b"UNICODE\0" + text.encode(),
        lambda text: b"Unicode\0" + text.encode("utf-8-sig"),
        lambda text: b"UNICODE\0" + text.encode("utf-16"),
        lambda text: b"UNICODE\0" + text.encode("utf-16-be"),
        lambda text: b"ASCII\0\0\0" + text.encode("utf-8-sig"),
    ],
)
@pytest.mark.parametrize("kind", ["JPEG", "WEBP"])
def test_alphabets_of_user_comments(read: Read, write_exif: Write, comment: Callable[[str], bytes], kind: str) -> None:
    found = read(write_exif({0x9286: comment(f"a boat, 帆船 ⛵\nNegative prompt: blurry\n{SETTINGS}")}, kind=kind))
    assert facts(found) == ("a boat, 帆船 ⛵", "blurry", 20, 6.5, 12345)


FLAT = {"steps": 30, "cfg": 7.0, "width": 1024, "height": 1024, "seed": 55, "sampler_name": "dpmpp_2m"}
RUINED = FLAT | {
    "Prompt": "a boat",
    "Negative": "blurry",
    "base_model_name": "sd_xl_base_1.0.safetensors",
    "loras": [["4852686128", "0.5 - styles\\ink.safetensors"], ["3A", "1.0 - other.safetensors"]],
    "denoise": None,
    "software": "RuinedFooocus",
}
NOVEL = {"prompt": "a boat, {{sea}}", "steps": 28, "height": 1216, "width": 832, "scale": 5.0, "seed": 123}
NOVEL |= {"sampler": "k_euler_ancestral", "uc": "blurry", "noise_schedule": "karras"}
DRAW = {"c": "a boat", "uc": "blurry", "steps": 20, "seed": 5, "scale": 7, "sampler": "DPM++ 2M Karras"}
DRAW |= {"size": "1024x1024", "model": "sd_xl_base_1.0_f16.ckpt", "lora": [{"model": "ink.ckpt", "weight": 0.4}]}
XMP = (
    '<x:xmpmeta><rdf:RDF><rdf:Description><exif:UserComment><rdf:Alt><rdf:li xml:lang="x-default">'
    "{}</rdf:li></rdf:Alt></exif:UserComment></rdf:Description></rdf:RDF></x:xmpmeta>"
)


@pytest.mark.parametrize(
    "loras",
    [
        RUINED["loras"],
        "Loras:<styles\\ink.safetensors:0.5>,<other.safetensors:1.0>",
        [["0.5", "ink.safetensors"], ["other.safetensors", "1.0"]],
        [{"name": "ink.safetensors", "weight": 0.5}, {"name": "other.safetensors", "weight": "1.0"}],
    ],
)
def test_ruinedfooocus(read: Read, write_png: Write, loras: Any) -> None:
    found = read(write_png(parameters=json.dumps(RUINED | {"loras": loras})), loras=("ink",))
    assert found.source == "RuinedFooocus"
    assert facts(found) == ("a boat", "blurry", 30, 7.0, 55)
    assert [(lora.ref, lora.scale) for lora in found.recipe.loras] == [("ink", 0.5)]
    assert [what for what in listed(found) if what.startswith("LoRA")] == ["LoRA other.safetensors"]


def test_novelai(read: Read, write_png: Write) -> None:
    found = read(write_png(Software="NovelAI", Description=NOVEL["prompt"], Comment=json.dumps(NOVEL)))
    assert (found.source, found.recipe.scheduler) == ("NovelAI", "euler_ancestral")
    assert facts(found) == ("a boat, {{sea}}", "blurry", 28, 5.0, 123)
    assert "Weights such as {sea}" in listed(found)


def test_novelais_characters_are_read_with_the_prompt(read: Read, write_png: Write) -> None:
    def caption(*texts: str) -> dict[str, Any]:
        return {"caption": {"base_caption": "x", "char_captions": [{"char_caption": text} for text in texts]}}

    fields = NOVEL | {"v4_prompt": caption("girl, red hair", "1.3::boy::"), "v4_negative_prompt": caption("hat", "")}
    content = write_png(Software="NovelAI", Source="NovelAI Diffusion V4.5 4BDE2A90", Comment=json.dumps(fields))
    found = read(content)
    assert facts(found)[:2] == ("a boat, {{sea}}, girl, red hair, 1.3::boy::", "blurry, hat")
    assert {"Characters: 2", "Model NovelAI Diffusion V4.5"} <= set(listed(found))
    for odd in ("x", [1], {"caption": 5}, {"caption": {"char_captions": ["x"]}}):
        assert facts(read(write_png(Software="NovelAI", Comment=json.dumps(fields | {"v4_prompt": odd}))))[4] == 123


@pytest.mark.parametrize(
    ("prompt", "example"),
    [
        ("a cat++ at sea", "cat++"),
        ("(big boat)1.3, sea", "boat)1.3"),
        ('("a", "b").blend(1, 1)', ").blend("),
        ("f(x)", ""),
    ],
)
def test_weights_that_only_invokeai_knows_are_listed(read: Read, write_png: Write, prompt: str, example: str) -> None:
    found = read(write_png(invokeai_metadata=json.dumps({"positive_prompt": prompt, "seed": 5, "steps": 20})))
    assert found.recipe.prompt == prompt
    assert [what for what in listed(found) if what.startswith("Weights")] == (
        [f"Weights such as {example}"] * bool(example)
    )


@pytest.mark.parametrize("escape", [str, lambda text: text.replace('"', "&quot;")])
@pytest.mark.parametrize("kind", ["PNG", "JPEG", "WEBP"])
def test_draw_things(read: Read, write_chunk: Write, kind: str, escape: Callable[[str], str]) -> None:
    xmp = XMP.format(escape(json.dumps(DRAW))).encode()
    file = io.BytesIO()
    picture = Image.new("RGB", (8, 8), "teal")
    picture.save(file, kind, **({} if kind == "PNG" else {"xmp": xmp}))
    content = file.getvalue()
    if kind == "PNG":
        content = content[:33] + write_chunk(b"iTXt", b"XML:com.adobe.xmp\0\0\0\0\0" + xmp) + content[33:]
    found = read(content, loras=("ink",))
    assert found.source == "Draw Things"
    assert facts(found) == ("a boat", "blurry", 20, 7.0, 5)
    assert found.recipe.loras[0].scale == 0.4


@pytest.mark.parametrize("loras", ["ink,other", ["ink", "other"]])
def test_swarmuis_lists_may_be_texts(read: Read, write_png: Write, loras: Any) -> None:
    fields = {"prompt": "a boat", "seed": 5, "steps": 20, "cfgscale": 7.0, "loras": loras, "loraweights": "0.8,1"}
    found = read(write_png(parameters=json.dumps({"sui_image_params": fields})), loras=("ink",))
    assert [(lora.ref, lora.scale) for lora in found.recipe.loras] == [("ink", 0.8)]
    assert listed(found) == ["LoRA other"]


@pytest.mark.parametrize("resolution", [[1024, 1024], "(1024, 1024)", "1024×1024"])
def test_fooocus_sizes(read: Read, write_png: Write, resolution: Any) -> None:
    fields = {"base_model": "sd_xl_base_1.0", "performance": "Speed", "prompt": "a boat", "resolution": resolution}
    found = read(write_png(parameters=json.dumps(fields | {"full_prompt": ["a"], "loras": [["ink", 0.1, "ab"]]})))
    assert found.recipe.shape == "1024x1024"


def test_texts_and_graphs_are_files_of_their_own(read: Read) -> None:
    assert facts(read(f"a boat\nNegative prompt: blurry\n{SETTINGS}\n".encode("utf-8-sig"))) == (
        *("a boat", "blurry", 20, 6.5, 12345),
    )
    assert facts(read(f"a boat\nNegative prompt: blurry\n{SETTINGS}".encode("utf-16")))[0] == "a boat"
    graph = {
        "3": {"class_type": "KSampler", "inputs": {"seed": 5, "steps": 25, "cfg": 7, "positive": ["6", 0]}},
        "6": {"class_type": "CLIPTextEncode", "inputs": {"text": "a boat"}},
    }
    assert facts(read(json.dumps(graph).encode())) == ("a boat", "", 25, 7.0, 5)


@pytest.mark.skipif(not features.check("avif"), reason="this Pillow reads no AVIF")
def test_avif(read: Read) -> None:
    exif = Image.Exif()
    exif.get_ifd(0x8769)[0x9286] = b"UNICODE\0" + f"a boat\nNegative prompt: blurry\n{SETTINGS}".encode("utf-16-be")
    file = io.BytesIO()
    Image.new("RGB", (8, 8), "teal").save(file, "AVIF", exif=exif.tobytes())
    assert facts(read(file.getvalue())) == ("a boat", "blurry", 20, 6.5, 12345)


def test_a_text_that_says_little_gives_way_to_one_that_says_more(read: Read, write_png: Write) -> None:
    graph = {
        "3": {"class_type": "KSampler", "inputs": {"seed": 5, "steps": 25, "cfg": 7, "positive": ["6", 0]}},
        "6": {"class_type": "CLIPTextEncode", "inputs": {"text": "a red boat"}},
    }
    broken = "a red boat\nSteps: None, Sampler: euler, Size: NonexNone"
    for parameters in (broken, "a red boat"):
        found = read(write_png(parameters=parameters, prompt=json.dumps(graph)))
        assert (found.source, found.recipe.seed) == ("ComfyUI", 5)
    found = read(write_png(parameters=f"a boat\n{SETTINGS}", prompt='{"3": {"class_type": "KSampler"'))
    assert (found.source, found.recipe.seed) == ("A1111", 12345)
    assert "The text 'prompt' in the file" in listed(found)
    packed = zlib.compress(b"torn")[:-3]
    found = read(write_png(parameters=packed, prompt=json.dumps(graph)))
    assert (found.source, found.recipe.seed) == ("ComfyUI", 5)

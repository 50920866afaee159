"""Whatever bytes, texts or JSON come: a valid recipe, none, or the one error for people; nothing else, ever."""

import io
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from PIL import Image

from pipelines.errors import RecipeError
from pipelines.files.metadata import make_png_chunks
from pipelines.files.video import encode_animation
from pipelines.loras.files import LoraFile
from pipelines.models.catalog import Catalog, Model, load_catalog
from pipelines.recipes.recipe import Recipe
from pipelines.recipes.resolving import resolve
from studio.library.foreign import find_recipe, fit, read_file
from studio.library.foreign.errors import MetadataError
from studio.library.foreign.found import MAX_LISTED, Found, FoundLora

LORAS = tuple(LoraFile(ref, ref, family, Path(ref), 1) for ref, family in (("x", "sdxl"), ("y", "wan"), ("z", "flux2")))
CATALOG: Catalog = replace(load_catalog(), own_loras=LORAS)
KEYWORDS = (
    "lumesh",
    "parameters",
    "invokeai_metadata",
    "sd-metadata",
    "dream",
    "prompt",
    "workflow",
    "comment",
    "metadata",
)
FIELDS = (
    *("schema", "model", "prompt", "shape", "steps", "seed", "guidance_scale", "loras", "images", "batch_size"),
    *("negative_prompt", "positive_prompt", "cfg_scale", "scheduler", "sampler", "width", "height", "image"),
    *("sui_image_params", "base_model", "styles", "resolution", "negativeprompt", "cfgscale", "name", "model_weights"),
    *("v4_prompt", "caption", "char_captions", "char_caption", "uc", "cfg", "software", "sampler_name", "Prompt"),
    *("nodes", "links", "id", "type", "inputs", "widgets_values", "mode", "class_type", "link", "weight", "lora"),
)
quick = settings(
    derandomize=True, deadline=None, max_examples=100, suppress_health_check=[HealthCheck.too_slow], database=None
)

leaves = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=30)
    | st.sampled_from(["1024x1024", "demo-sdxl", "(1, 2)", "euler", "KSampler", "CLIPTextEncode", "20", "nan", "1e999"])
)
jsons = st.recursive(
    leaves,
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(st.sampled_from(FIELDS) | st.text(max_size=8), inner, max_size=8)
        | st.tuples(st.sampled_from(["1", "2", "3"]), st.integers(0, 2)).map(list)
    ),
    max_leaves=25,
)
links = st.tuples(st.sampled_from(["1", "2", "3", "4"]), st.just(0)).map(list)
inputs = st.dictionaries(
    st.sampled_from(
        (
            *("model", "positive", "negative", "latent_image", "conditioning", "text", "seed", "steps", "cfg", "width"),
            *("height", "sampler_name", "scheduler", "ckpt_name", "lora_name", "samples", "noise", "guider", "sigmas"),
            *("pipe", "base_ctx", "text_g", "text_l", "t5xxl", "style", "lora_stack", "lora", "sampler", "text_embeds"),
            *("image_embeds", "dimensions", "guidance", "num_frames", "lora_count", "lora_name_1", "input_mode"),
        )
    ),
    links | leaves,
    max_size=10,
)
kinds = st.sampled_from(
    ["KSampler", "SamplerCustomAdvanced", "CLIPTextEncode", "EmptyLatentImage", "LoraLoader", "FluxGuidance", "Other"]
    + ["WanVideoSampler", "SamplerOdd", "Text Concatenate", "OllamaGenerate"]
)
graphs = st.fixed_dictionaries(
    {number: st.fixed_dictionaries({"class_type": kinds, "inputs": inputs}) for number in "1234"}
)
words = st.sampled_from(
    [
        "Steps: ",
        "Seed: ",
        "Size: ",
        "Negative prompt: ",
        "Model: ",
        "Sampler: ",
        ", ",
        '"',
        "\\",
        "\n",
        "x",
        "1024x",
        "<lora:",
        ":lbw=",
        "Hashes: {",
        "Seed Mode: ",
    ]
)
parameters = st.lists(words | st.text(max_size=6) | st.integers().map(str), max_size=30).map("".join)


def check(texts: dict[str, str]) -> None:
    """One keyword's text, through every parser and the fitting."""
    try:
        found = find_recipe(texts)
    except MetadataError as error:
        check_error(error)
        return
    if found is not None:
        check_fit(found[0])


def check_error(error: MetadataError) -> None:
    assert error.detail and len(error.detail) < 1000


def check_fit(found: Found | Recipe, chosen: Model = CATALOG.default) -> None:
    try:
        if isinstance(found, Found):
            read = fit.fit_found(found, CATALOG, chosen)
        else:
            read = fit.fit_own(found, CATALOG, chosen, lambda _image: True)
    except MetadataError as error:
        check_error(error)
        return
    check_recipe(read.to_json())
    try:
        resolve(read.recipe, CATALOG)
    except RecipeError as error:
        assert error.fields.keys() <= {"prompt", "images", "strength"}, "only what is missing may still be wrong"


def check_recipe(answer: dict[str, Any]) -> None:
    json.dumps(answer, allow_nan=False, ensure_ascii=False).encode()
    assert len(answer["unusable"]) <= MAX_LISTED + 1
    assert all(one["what"] and one["why"] and len(one["what"]) < 400 for one in answer["unusable"])


@pytest.mark.parametrize("keyword", KEYWORDS)
@quick
@given(value=jsons)
def test_any_json_under_any_keyword(keyword: str, value: Any) -> None:
    check({keyword: json.dumps(value)})


@quick
@given(
    value=st.dictionaries(st.sampled_from(FIELDS), leaves | st.lists(leaves, max_size=3), max_size=12),
    keyword=st.sampled_from(KEYWORDS),
)
def test_objects_with_the_right_names_and_the_wrong_values(value: Any, keyword: str) -> None:
    check({keyword: json.dumps({"model": "demo-sdxl", "prompt": "x"} | value)})
    check({keyword: json.dumps({"sui_image_params": value})})
    check({keyword: json.dumps({"image": value, "model": {"name": "x"}})})


wholes = st.none() | st.integers() | st.integers(-3000, 3000)
numbers = st.none() | st.floats(allow_nan=False, allow_infinity=False)
names = (
    st.none()
    | st.text(max_size=40)
    | st.sampled_from(["x", "y", "z", "euler", "wan2.2_t2v_14b", "flux2_dev", "sd_xl_base_1.0"])
)


@quick
@given(
    found=st.builds(
        Found,
        source=st.just("A program"),
        prompt=st.text() | st.just("<lora:x:1>, (a:1.2)"),
        model=names,
        sampler=names,
        schedule=names,
        seed=wholes,
        steps=wholes,
        guidance_scale=numbers,
        distilled_guidance=numbers,
        flow_shift=numbers,
        strength=numbers,
        width=wholes,
        height=wholes,
        frames=wholes,
        fps=wholes,
        batch_size=wholes,
        loras=st.lists(st.builds(FoundLora, names.filter(bool), st.none() | st.floats(), numbers), max_size=12).map(
            tuple
        ),
    ),
    chosen=st.sampled_from(CATALOG.models),
)
def test_any_values_are_fitted_to_any_model(found: Found, chosen: Model) -> None:
    check_fit(found, chosen)


@quick
@given(graph=graphs)
def test_any_graph_of_known_nodes(graph: Any) -> None:
    check({"prompt": json.dumps(graph)})


@quick
@given(text=parameters, keyword=st.sampled_from(KEYWORDS))
def test_any_text_that_looks_like_parameters(text: str, keyword: str) -> None:
    check({keyword: text})
    check({keyword: f"a boat\nSteps: 20, {text}"})
    check({keyword: f'"{text}" -s 20 {text}'})


@quick
@given(text=st.text(max_size=300), keyword=st.sampled_from(KEYWORDS))
def test_any_text(text: str, keyword: str) -> None:
    check({keyword: text})


def make_samples() -> list[bytes]:
    """Our own files with a recipe, and a file of each kind with a text in it; an MP4's boxes by hand."""
    recipe = resolve(Recipe(model=CATALOG.default.id, prompt="A boat", seed=7), CATALOG)
    frames = np.zeros((2, 4, 4, 3), np.uint8)
    samples = [encode_animation(frames, recipe, suffix=suffix) for suffix in (".gif", ".webp")]
    file = io.BytesIO()
    Image.new("RGB", (4, 4)).save(file, "PNG", pnginfo=make_png_chunks(recipe))
    samples.append(file.getvalue())
    exif = Image.Exif()
    exif.get_ifd(0x8769)[0x9286] = b"ASCII\0\0\0a boat\nSteps: 20"
    for kind, options in (("PNG", {}), ("JPEG", {"exif": exif}), ("WEBP", {"exif": exif}), ("GIF", {"comment": b"x"})):
        file = io.BytesIO()
        Image.new("RGB", (4, 4)).save(file, kind, **options)
        samples.append(file.getvalue())
    body = b"\0" * 8 + recipe.model_dump_json(by_alias=True).encode()
    for name in (b"data", b"\xa9cmt", b"ilst", b"meta", b"udta", b"moov"):
        body = (b"\0\0\0\0" if name == b"meta" else b"") + body
        body = (len(body) + 8).to_bytes(4) + name + body
    samples.append((12).to_bytes(4) + b"ftypisom" + body)
    return samples


SAMPLES = make_samples()


@quick
@given(
    sample=st.sampled_from(SAMPLES),
    changes=st.lists(st.tuples(st.integers(0, 400), st.binary(min_size=1, max_size=8)), max_size=6),
    end=st.none() | st.integers(0, 400),
)
def test_changed_and_cut_files(sample: bytes, changes: list[tuple[int, bytes]], end: int | None) -> None:
    content = bytearray(sample)
    for place, value in changes:
        content[place : place + len(value)] = value
    read_bytes(bytes(content[:end]))


@quick
@given(head=st.sampled_from([sample[:16] for sample in SAMPLES]), body=st.binary(max_size=600))
def test_any_bytes_after_a_good_beginning(head: bytes, body: bytes) -> None:
    read_bytes(head + body)


def read_bytes(content: bytes) -> None:
    try:
        found = read_file(content, CATALOG, CATALOG.default, lambda _image: True)
    except MetadataError:
        return
    if found is not None:
        check_recipe(found.to_json())

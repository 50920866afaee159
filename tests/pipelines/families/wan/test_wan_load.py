"""What cannot run is refused in words; a stage reads its own weights, and stage files carry the work between them."""

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest

from pipelines.errors import ModelError, RecipeError, StageFileError
from pipelines.files.stage_files import EMBEDDINGS_FILE, LATENTS_FILE, read_tensors, write_tensors
from pipelines.generate import generate
from pipelines.models.catalog import Catalog, Shape
from pipelines.recipes.recipe import Recipe
from pipelines.registry import describe_parts, load
from pipelines.runtime.devices.mesh import build_mesh
from pipelines.stages import ignore_progress

Try = Callable[..., Any]
Draw = Callable[..., Recipe]


@pytest.fixture
def try_load(wan_catalog: Catalog, cache_dir: Path, tmp_path: Path) -> Try:
    """Loads a copy of a checkpoint in `tmp_path / <id>`, with the changes made there since."""

    def try_load(model_id: str = "t2v", *, stages: tuple[str, ...] = ("encode", "denoise", "decode"), **changes) -> Any:
        model = replace(wan_catalog.get(model_id), path=tmp_path / model_id, **changes)
        return load(model, mesh="dp=1", cache_dir=cache_dir, on_progress=ignore_progress, stages=stages)

    return try_load


@pytest.fixture
def copy(wan_catalog: Catalog, tmp_path: Path) -> Callable[[str], Path]:
    def copy(model_id: str) -> Path:
        path = wan_catalog.get(model_id).path
        assert path is not None
        return shutil.copytree(path, tmp_path / model_id)

    return copy


def change_config(file: Path, **changes: Any) -> None:
    file.write_text(json.dumps(json.loads(file.read_text()) | changes))


@pytest.mark.parametrize(
    "missing",
    [
        "model_index.json",
        "transformer/config.json",
        "vae/config.json",
        "text_encoder/config.json",
        "scheduler/scheduler_config.json",
        "tokenizer",
        "transformer/diffusion_pytorch_model.safetensors",
    ],
)
def test_a_missing_file_is_told_as_an_incomplete_model(
    copy: Callable[[str], Path], try_load: Try, missing: str
) -> None:
    target = copy("t2v") / missing
    if target.is_dir():
        shutil.rmtree(target)
    else:
        target.unlink()
    with pytest.raises(ModelError):
        try_load()


def test_a_second_expert_that_is_missing_is_told(copy: Callable[[str], Path], try_load: Try) -> None:
    shutil.rmtree(copy("experts") / "transformer_2")
    with pytest.raises(ModelError, match="transformer_2"):
        try_load("experts")


def test_experts_of_two_sizes_are_refused(copy: Callable[[str], Path], try_load: Try) -> None:
    change_config(copy("experts") / "transformer_2" / "config.json", num_layers=3)
    with pytest.raises(ModelError, match="two experts .* differ in size"):
        try_load("experts")


def test_a_shape_that_patches_do_not_divide_is_refused(copy: Callable[[str], Path], try_load: Try) -> None:
    copy("t2v")
    odd = Shape(width=36, height=32, frames=9)
    with pytest.raises(ModelError, match=r"cannot make 36x32x9: its widths are multiples of 8"):
        try_load(shapes=(odd,), default_shape=odd)


def test_the_catalogue_can_shorten_the_text(copy: Callable[[str], Path], try_load: Try) -> None:
    copy("t2v")
    family = try_load(text_length=7, stages=("encode",))
    assert family.embedding_shapes() == {"prompt_embeds": (1, 7, 32), "negative_prompt_embeds": (1, 7, 32)}
    family.unload()


def test_a_model_that_moves_pictures_asks_for_one(draw_wan: Draw) -> None:
    with pytest.raises(RecipeError, match="i2v starts from a picture"):
        draw_wan("i2v")
    with pytest.raises(RecipeError, match="t2v takes no images"):
        draw_wan("t2v", images=["photo"])


def test_a_file_that_is_no_picture_is_refused(load_wan: Callable[..., Any], draw_wan: Draw, tmp_path: Path) -> None:
    (tmp_path / "torn.png").write_bytes(b"\x89PNG\r\n")
    with pytest.raises(RecipeError, match="torn.png cannot be read as a picture"):
        generate(load_wan("ti2v"), draw_wan("ti2v", images=[str(tmp_path / "torn.png")]))


def test_stages_hand_over_through_files(
    copy: Callable[[str], Path], try_load: Try, load_wan: Callable[..., Any], draw_wan: Draw, tmp_path: Path
) -> None:
    """Each stage in a family of its own, that has only its own weights."""
    folder = copy("t2v")
    recipe = draw_wan()
    expected = generate(load_wan(), recipe).pixels

    def start(stage: str) -> Any:
        family = try_load(stages=(stage,))
        family.warm(recipe.parsed_shape, batch_size=1, uses_cfg=True, on_progress=ignore_progress)
        return family

    encoder = start("encode")
    write_tensors(tmp_path / EMBEDDINGS_FILE, encoder.encode(recipe), model_id="t2v")
    shutil.rmtree(folder / "text_encoder" / "model.safetensors", ignore_errors=True)
    denoiser = start("denoise")
    assert list(denoiser.parts.weights) == ["transformer"]
    embeddings = read_tensors(tmp_path / EMBEDDINGS_FILE, denoiser.embedding_shapes(), model_id="t2v", stage="encode")
    latents = np.asarray(denoiser.denoise(recipe, embeddings, on_progress=ignore_progress))
    write_tensors(tmp_path / LATENTS_FILE, {"latents": latents}, model_id="t2v")
    decoder = start("decode")
    shape = {"latents": (1, *decoder.latents_shape(recipe.parsed_shape))}
    assert shape == {"latents": (1, 4, 3, 8, 8)}
    found = read_tensors(tmp_path / LATENTS_FILE, shape, model_id="t2v", stage="denoise")["latents"]
    assert (decoder.decode(recipe, found) == expected).all()
    longer = {"latents": (1, *decoder.latents_shape(draw_wan(shape="64x32x17").parsed_shape))}
    with pytest.raises(StageFileError, match=r"has shape \(1, 4, 3, 8, 8\); t2v needs \(1, 4, 5, 8, 16\)"):
        read_tensors(tmp_path / LATENTS_FILE, longer, model_id="t2v", stage="denoise")
    for family in (encoder, denoiser, decoder):
        family.unload()


@pytest.mark.parametrize(("model_id", "mesh"), [("experts", "dp=1"), ("ti2v", "dp=2,sp=2,tp=2"), ("i2v", "dp=1")])
def test_a_plan_describes_weights_as_they_are_placed(load_wan: Callable[..., Any], model_id: str, mesh: str) -> None:
    family = load_wan(model_id, mesh)
    described = describe_parts(family.model, build_mesh(mesh))

    def look(parts: Any) -> Any:
        return jax.tree.map(lambda one: (one.shape, one.dtype, one.sharding), parts.weights)

    assert look(described) == look(family.parts)
    assert described.text_length == family.parts.text_length

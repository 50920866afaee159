"""A checkpoint that is incomplete or of another kind is refused in words, before anything is compiled."""

import gc
import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import jax
import pytest
from safetensors.numpy import load_file, save_file

from pipelines.errors import MeshError, ModelError
from pipelines.models.catalog import Catalog, Shape, load_catalog
from pipelines.recipes.recipe import Recipe
from pipelines.registry import describe_parts, load
from pipelines.runtime.devices.memory import count_live_bytes
from pipelines.runtime.devices.mesh import build_mesh
from pipelines.stages import ignore_progress

Try = Callable[..., Any]


@pytest.fixture
def folder(models_dir: Path, tmp_path: Path) -> Path:
    """A copy of the tiny klein to break."""
    shutil.copytree(models_dir / "klein", tmp_path / "klein")
    return tmp_path / "klein"


@pytest.fixture
def try_load(flux2_catalog: Catalog, cache_dir: Path, folder: Path) -> Try:
    def try_load(**options: Any) -> Any:
        model = replace(flux2_catalog.get("klein"), path=folder)
        return load(model, **{"mesh": "dp=1", "cache_dir": cache_dir, "on_progress": ignore_progress} | options)

    return try_load


def change_json(file: Path, **changes: Any) -> None:
    file.write_text(json.dumps(json.loads(file.read_text()) | changes))


def rewrite(file: Path, rename: Callable[[str], str | None]) -> None:
    """Renames a file's tensors; None drops one."""
    tensors = {rename(name): value for name, value in load_file(file).items()}
    save_file({name: value for name, value in tensors.items() if name is not None}, file)


@pytest.mark.parametrize(
    "missing",
    [
        "model_index.json",
        "transformer/config.json",
        "vae/config.json",
        "text_encoder/config.json",
        "scheduler/scheduler_config.json",
        "tokenizer",
        "tokenizer/chat_template.jinja",
        "transformer/diffusion_pytorch_model.safetensors",
    ],
)
def test_a_missing_file_is_told_as_an_incomplete_model(try_load: Try, folder: Path, missing: str) -> None:
    if (folder / missing).is_dir():
        shutil.rmtree(folder / missing)
    else:
        (folder / missing).unlink()
    with pytest.raises(ModelError):
        try_load()


def test_a_short_text_encoder_must_say_which_layers_are_read(try_load: Try, folder: Path) -> None:
    file = folder / "text_encoder" / "config.json"
    config = json.loads(file.read_text())
    del config["text_encoder_out_layers"]
    file.write_text(json.dumps(config))
    with pytest.raises(ModelError, match=r"\(9, 18, 27\) of a text encoder with 4 layers.*text_encoder_out_layers"):
        try_load()


def test_weights_of_a_deeper_model_are_missed(try_load: Try, folder: Path) -> None:
    change_json(folder / "transformer" / "config.json", num_single_layers=3)
    with pytest.raises(ModelError, match=r"The checkpoint lacks \d+ of \d+ weights"):
        try_load()


def test_a_mesh_that_cuts_through_heads_is_refused(flux2_catalog: Catalog) -> None:
    with pytest.raises(MeshError, match="tp=3 does not divide this model's 8 attention heads"):
        describe_parts(flux2_catalog.get("klein"), build_mesh("tp=3", devices=jax.devices()[:3]))


def test_layers_above_the_last_one_read_are_not_loaded(try_load: Try) -> None:
    names = try_load(stages=("encode",)).parts.weights["text_encoder"]
    assert max(int(name.split(".")[1]) for name in names if name.startswith("layers.")) == 2
    assert "norm.weight" not in names


def test_a_stage_reads_only_its_own_weights(try_load: Try, folder: Path, draw_recipe: Callable[..., Recipe]) -> None:
    for part in ("transformer", "vae"):
        (folder / part / "diffusion_pytorch_model.safetensors").unlink()
    family = try_load(stages=("encode",))
    recipe = draw_recipe()
    family.warm(recipe.parsed_shape, batch_size=1, uses_cfg=True, on_progress=ignore_progress)
    shapes = {name: tuple(value.shape) for name, value in family.encode(recipe).items()}
    assert shapes == family.embedding_shapes()
    family.unload()


@pytest.mark.parametrize("prefix", ["model.language_model.", "language_model.model."])
def test_a_text_encoders_old_names_are_known(try_load: Try, folder: Path, prefix: str) -> None:
    """What transformers calls Mistral's language model today, and what the hub's files call it."""
    rewrite(
        folder / "text_encoder" / "model.safetensors",
        lambda name: name.replace("model.", prefix, 1) if name.startswith("model.") else name,
    )
    try_load(stages=("encode",)).unload()


def test_loading_and_unloading_leave_nothing(try_load: Try) -> None:
    gc.collect()  # what commands of other tests left is not counted, and then gone
    before = count_live_bytes()
    family = try_load()
    assert count_live_bytes() > before
    family.unload()
    assert count_live_bytes() == before


def test_a_folder_of_ones_own_takes_the_defaults_of_its_kind(models_dir: Path) -> None:
    catalog = load_catalog(models_dir)
    found = {name: catalog.get(name) for name in ("klein", "distilled", "dev")}
    assert {model.family for model in found.values()} == {"flux2"}
    assert {model.shapes for model in found.values()} == {(Shape(width=64, height=64),)}
    assert {name: (model.steps, model.guidance_scale) for name, model in found.items()} == {
        "klein": (50, 4.0),
        "distilled": (4, 1.0),
        "dev": (50, 4.0),
    }


@pytest.mark.parametrize(("model_id", "mesh"), [("klein", "dp=1"), ("dev", "dp=2,sp=2,tp=2")])
def test_a_plan_describes_weights_as_they_are_placed(load_flux2: Callable[..., Any], model_id: str, mesh: str) -> None:
    family = load_flux2(model_id, mesh)
    described = describe_parts(family.model, build_mesh(mesh))

    def look(parts: Any) -> Any:
        return jax.tree.map(lambda one: (one.shape, one.dtype, one.sharding), parts.weights)

    assert look(described) == look(family.parts)
    assert described.text_length == family.parts.text_length

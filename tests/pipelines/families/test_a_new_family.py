"""A new family is one folder, one name in the list of families, and one entry of the catalogue: nothing else."""

import json
from pathlib import Path

import jax
import pytest

from pipelines import families
from pipelines.errors import ModelError
from pipelines.generate import generate
from pipelines.loras.files import find_family
from pipelines.models.catalog import CATALOG_FILE, Catalog, load_catalog
from pipelines.pictures.references import choose_programs
from pipelines.plan.abstract import list_stages
from pipelines.plan.packing import list_programs, outputs_at_once
from pipelines.plan.placement import Need, recommend
from pipelines.plan.topologies import GIB, TOPOLOGIES
from pipelines.recipes.recipe import read_recipe
from pipelines.recipes.resolving import resolve
from pipelines.registry import build_mesh_for, describe_parts, find, load
from pipelines.runtime.programs.compiled import lower
from pipelines.stages import ignore_progress
from studio.flags import read_settings
from studio.library.foreign.fit import fit_found
from studio.library.foreign.found import Found

ENTRY = """
[[model]]
id = "toy-base"
title = "Toy"
family = "toy"
path = "{folder}"
shapes = ["64x64", "32x32"]
default_shape = "64x64"
steps = 3
guidance_scale = 1.0
scheduler = "euler"
schedulers = ["euler"]
max_images = 1
attention = {{ window = 64 }}
"""


@pytest.fixture
def catalog(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Catalog:
    """The shipped models, the toy's entry, and a user's own toy."""
    monkeypatch.setattr(families, "__path__", [*families.__path__, str(Path(__file__).parent)])  # the folder
    monkeypatch.setattr(families, "FAMILIES", (*families.FAMILIES, "toy"))  # the name
    for name in ("shipped", "models/mine"):
        (tmp_path / name).mkdir(parents=True)
        index = json.dumps({"_class_name": "ToyPipeline", "side": 32})
        (tmp_path / name / "model_index.json").write_text(index, "utf-8")
    file = tmp_path / "models.toml"
    entry = ENTRY.format(folder=tmp_path / "shipped")
    file.write_text(CATALOG_FILE.read_text("utf-8") + entry, "utf-8")
    return load_catalog(tmp_path / "models", file=file)


def test_without_its_name_in_the_list_nothing_runs_it(catalog: Catalog, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(families, "FAMILIES", families.FAMILIES[:-1])
    with pytest.raises(ModelError, match="No code here runs the family 'toy'"):
        describe_parts(catalog.get("toy-base"), None)


def test_a_users_own_folder_is_recognised(catalog: Catalog) -> None:
    model = catalog.get("mine")
    assert (model.family, model.traits.title, str(model.default_shape), model.steps) == ("toy", "Toy", "32x32", 3)
    assert model.has_references
    assert model.attention.window == 64


@pytest.mark.usefixtures("catalog")
def test_its_loras_are_recognised() -> None:
    assert find_family(["toy_layers.weight.lora_A.weight"]) == "toy"
    assert find_family(["unet.down_blocks.0.attn1.to_q.lora_A.weight"]) == "sdxl"


def test_it_is_found_loaded_and_run(catalog: Catalog, tmp_path: Path, cache_dir: Path) -> None:
    model = catalog.get("toy-base")
    assert find(model, on_progress=ignore_progress) == tmp_path / "shipped"
    loaded = load(model, mesh="throughput", cache_dir=cache_dir, on_progress=ignore_progress)
    assert loaded.outputs_at_once == 2
    recipe = resolve(read_recipe({"model": "toy-base", "prompt": "a boat"}), catalog)
    assert generate(loaded, recipe).pixels.shape == (1, 64, 64, 3)


@pytest.mark.usefixtures("cache_dir")
def test_it_is_planned_and_packed(catalog: Catalog) -> None:
    model = catalog.get("toy-base")
    mesh = build_mesh_for(model, "throughput", devices=jax.devices())
    parts = describe_parts(model, mesh)
    (stage,) = list_stages(model, parts, model.default_shape, batch_size=1)
    assert (stage.name, stage.components, stage.runs) == ("denoise", ("layers",), 3)
    assert "dot_general" in lower(stage.program).as_text()
    assert outputs_at_once(model, parts) == mesh.shape["dp"] == 8
    packed = list_programs(model, parts, choose_programs(["all", "64x64+1"], model), batch_size=1)
    assert [str(program.key[1]) for program in packed] == ["64x64", "32x32"]


def test_another_machine_may_read_its_prompts(catalog: Catalog) -> None:
    model, url = catalog.get("mine"), "http://127.0.0.1:8888"
    settings = read_settings(["--text-encoder-url", url], {})
    assert settings.find_text_encoder(model) == settings.find_text_encoder(catalog.get("flux2-dev")) == url
    assert settings.find_text_encoder(catalog.get("sdxl-base")) is None
    need = Need(
        stage="encode",
        components=("text_encoder",),
        runs=1,
        fits=False,
        weights_bytes=40 * GIB,
        temp_bytes=0,
        code_bytes=0,
    )
    placement = recommend(
        [need], {"text_encoder": 40 * GIB}, topology=TOPOLOGIES["v6e-1"], model=model, shape=model.default_shape
    )
    assert placement.kind == "offload_text_encoder"


def test_other_programs_files_are_read_for_it(catalog: Catalog) -> None:
    found = Found(source="ComfyUI", prompt="a boat", model="toy.safetensors", distilled_guidance=2.5)
    recipe = fit_found(found, catalog, catalog.default).recipe
    assert (recipe.model, recipe.guidance_scale) == ("toy-base", 2.5)

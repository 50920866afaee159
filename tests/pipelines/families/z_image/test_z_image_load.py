"""A checkpoint that is incomplete, too large or of another kind is refused in words, before anything is compiled."""

import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest

from pipelines.errors import ModelError
from pipelines.models.catalog import Catalog, Shape, load_catalog, read_data_dir
from pipelines.registry import find_architecture, load
from pipelines.runtime.weights.shard_load import load_weights
from pipelines.runtime.weights.single_file import StoredComponent, read_folder
from pipelines.stages import ignore_progress
from tests.pipelines.families.z_image.conftest import change_json
from tests.pipelines.single_files import write_z_image

Try = Callable[..., Any]


@pytest.fixture
def folder(models_dir: Path, tmp_path: Path) -> Path:
    """A copy of the tiny base model to break."""
    shutil.copytree(models_dir / "base", tmp_path / "base")
    return tmp_path / "base"


@pytest.fixture
def try_load(z_image_catalog: Catalog, cache_dir: Path, folder: Path) -> Try:
    def try_load(**changes: Any) -> Any:
        model = replace(z_image_catalog.get("base"), path=folder, **changes)
        return load(model, mesh="dp=1", cache_dir=cache_dir, on_progress=ignore_progress)

    return try_load


@pytest.mark.parametrize(
    "missing", ["transformer/config.json", "scheduler/scheduler_config.json", "tokenizer/chat_template.jinja"]
)
def test_a_missing_file_is_told_as_an_incomplete_model(try_load: Try, folder: Path, missing: str) -> None:
    (folder / missing).unlink()
    with pytest.raises(ModelError):
        try_load()


def test_parts_that_do_not_belong_together_are_refused(try_load: Try, folder: Path) -> None:
    change_json(folder / "transformer" / "config.json", cap_feat_dim=48)
    with pytest.raises(ModelError, match="a text encoder of 32 features; its transformer takes 48"):
        try_load()


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"shapes": (Shape(width=64, height=64), Shape(width=68, height=64))}, "its sides are multiples of 8"),
        ({"shapes": (Shape(width=64, height=64), Shape(width=512, height=64))}, "it has places for 256x256 pixels"),
        ({"text_length": 190}, "reads at most 160 tokens of a prompt"),
    ],
)
def test_what_the_transformer_has_no_place_for_is_refused(try_load: Try, changes: dict[str, Any], told: str) -> None:
    with pytest.raises(ModelError, match=told):
        try_load(**changes)


def test_a_folder_of_ones_own_takes_the_defaults_of_its_kind(z_image_catalog: Catalog) -> None:
    found = {name: z_image_catalog.get(name) for name in ("base", "turbo")}
    assert {model.family for model in found.values()} == {"z_image"}
    kinds = {name: (model.steps, model.guidance_scale, model.flow_shift) for name, model in found.items()}
    assert kinds == {"base": (50, 5.0, 6.0), "turbo": (8, 1.0, 3.0)}


def test_a_relative_is_named(models_dir: Path, tmp_path: Path) -> None:
    for name, file, changes in (
        ("omni", "model_index.json", {"_class_name": "ZImageOmniPipeline"}),
        ("unnamed", "transformer/config.json", {"siglip_feat_dim": 64}),
    ):
        shutil.copytree(models_dir / "base", tmp_path / name)
        change_json(tmp_path / name / file, **changes)
    assert {one.name for one in load_catalog(tmp_path).unusable if "Z-Image Omni" in one.reason} == {"omni", "unnamed"}


def read(component: StoredComponent) -> dict[str, np.ndarray]:
    where = jax.sharding.SingleDeviceSharding(jax.devices()[0])
    loaded = load_weights(
        component.weights, dict.fromkeys(component.weights, where), dtype=np.float32, on_tensor=lambda *_: None
    )
    return {name: np.asarray(one) for name, one in loaded.items()}


@pytest.mark.parametrize("prefix", ["", "model.diffusion_model."], ids=["its authors'", "ComfyUI's"])
def test_a_single_file_holds_its_folders_transformer(models_dir: Path, tmp_path: Path, prefix: str) -> None:
    write_z_image(models_dir / "base", tmp_path / "models" / "mine.safetensors", prefix=prefix)
    entry = 'id = "own"\nfile = "mine.safetensors"\nconfigs = "base"\n'
    (tmp_path / "models" / "base").symlink_to(models_dir / "base")
    (tmp_path / "models.toml").write_text(f"[[model]]\n{entry}", "utf-8")
    model = read_data_dir(tmp_path).get("own")
    architecture: Any = find_architecture(model)
    own, theirs = (
        read(architecture.read_files(model)["transformer"]),
        read(read_folder(models_dir / "base/transformer")),
    )
    assert own.keys() == theirs.keys()
    assert not [name for name in theirs if not np.array_equal(own[name], theirs[name])]

"""A checkpoint that is incomplete, damaged or of another kind is refused in words, before anything is compiled."""

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pipelines.errors import Cancelled, ModelError
from pipelines.models.catalog import Catalog
from pipelines.recipes.recipe import Recipe
from pipelines.registry import load
from pipelines.runtime.devices.memory import count_live_bytes
from pipelines.stages import Progress, ignore_progress
from tests.pipelines.denoising import assert_same_weights

Try = Callable[..., Any]


@pytest.fixture
def folder(local_catalog: Catalog, tmp_path: Path) -> Path:
    """A copy of the tiny checkpoint to break."""
    shutil.copytree(local_catalog.get("tiny").path, tmp_path / "tiny")
    return tmp_path / "tiny"


@pytest.fixture
def try_load(local_catalog: Catalog, cache_dir: Path, folder: Path) -> Try:
    def try_load(**options: Any) -> Any:
        model = replace(local_catalog.get("tiny"), path=folder)
        return load(model, **{"mesh": "dp=1", "cache_dir": cache_dir, "on_progress": ignore_progress} | options)

    return try_load


def change_config(file: Path, **changes: Any) -> None:
    file.write_text(json.dumps(json.loads(file.read_text()) | changes))


@pytest.mark.parametrize(
    "missing",
    [
        "model_index.json",
        "unet/config.json",
        "vae/config.json",
        "text_encoder/config.json",
        "scheduler/scheduler_config.json",
        "tokenizer",
        "tokenizer_2",
        "unet/diffusion_pytorch_model.safetensors",
    ],
)
def test_a_missing_file_is_told_as_an_incomplete_model(try_load: Try, folder: Path, missing: str) -> None:
    if (folder / missing).is_dir():
        shutil.rmtree(folder / missing)
    else:
        (folder / missing).unlink()
    with pytest.raises(ModelError):
        try_load()


@pytest.mark.parametrize("part", ["unet/config.json", "scheduler/scheduler_config.json", "model_index.json"])
def test_a_damaged_settings_file_is_told_as_such(try_load: Try, folder: Path, part: str) -> None:
    (folder / part).write_text("{torn")
    with pytest.raises(ModelError):
        try_load()


def test_a_truncated_weights_file_is_named(try_load: Try, folder: Path) -> None:
    file = folder / "vae" / "diffusion_pytorch_model.safetensors"
    file.write_bytes(file.read_bytes()[:-1000])
    with pytest.raises(ModelError, match=r"vae/diffusion_pytorch_model\.safetensors is truncated"):
        try_load()


def test_weights_of_another_size_are_told_with_both_shapes(try_load: Try, folder: Path) -> None:
    change_config(folder / "unet" / "config.json", block_out_channels=[16, 48])
    with pytest.raises(ModelError, match=r"has shape .* in the checkpoint; the model expects"):
        try_load()


def test_weights_of_a_deeper_model_are_missed(try_load: Try, folder: Path) -> None:
    change_config(folder / "unet" / "config.json", layers_per_block=2)
    with pytest.raises(ModelError, match=r"The checkpoint lacks \d+ of \d+ weights"):
        try_load()


def test_stable_diffusion_1_is_told_apart(try_load: Try, folder: Path) -> None:
    change_config(folder / "unet" / "config.json", addition_embed_type=None, projection_class_embeddings_input_dim=None)
    with pytest.raises(ModelError, match="without SDXL's size conditioning"):
        try_load()


def test_a_stage_reads_only_its_own_weights(try_load: Try, folder: Path, draw_recipe: Callable[..., Recipe]) -> None:
    for part in ("unet", "vae"):
        (folder / part / "diffusion_pytorch_model.safetensors").unlink()
    family = try_load(stages=("encode",))
    recipe = draw_recipe()
    family.warm(recipe.parsed_shape, batch_size=1, uses_cfg=True, on_progress=ignore_progress)
    shapes = {name: tuple(value.shape) for name, value in family.encode(recipe).items()}
    assert shapes == family.embedding_shapes()
    family.unload()


def test_sharded_files_give_the_same_weights(try_load: Try, folder: Path, family: Any) -> None:
    """Several files with an index, as diffusers saves large models, and the old names of CLIP."""
    from safetensors.torch import load_file, save_file

    file = folder / "unet" / "diffusion_pytorch_model.safetensors"
    tensors = load_file(file)
    names = {name: f"part-{index % 3}.safetensors" for index, name in enumerate(tensors)}
    for part in set(names.values()):
        save_file({name: value for name, value in tensors.items() if names[name] == part}, file.parent / part)
    file.unlink()
    (file.parent / f"{file.name}.index.json").write_text(json.dumps({"metadata": {}, "weight_map": names}))
    file = folder / "text_encoder" / "model.safetensors"
    save_file(
        {f"text_model.{name.removeprefix('text_model.')}": value for name, value in load_file(file).items()}, file
    )
    other = try_load()
    assert_same_weights(other, family)
    other.unload()


def test_loading_can_be_cancelled_and_leaves_nothing(try_load: Try) -> None:
    before = count_live_bytes()

    def cancel(progress: Progress) -> None:
        if progress.phase == "sharding" and progress.done == 5:
            raise Cancelled

    with pytest.raises(Cancelled):
        try_load(on_progress=cancel)
    assert count_live_bytes() == before


def test_loading_tells_its_phases(try_load: Try) -> None:
    seen: list[Progress] = []
    try_load(on_progress=seen.append).unload()
    assert list(dict.fromkeys(progress.phase for progress in seen)) == ["loading", "sharding"]
    assert {progress.detail for progress in seen if progress.phase == "sharding"} == {
        "text encoder", "text encoder 2", "unet", "vae"
    }  # fmt: skip

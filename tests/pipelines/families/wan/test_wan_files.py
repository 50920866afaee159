"""Two experts as two files make the very video of the folder that they were made from, with a LoRA and kept layouts."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pipelines.generate import generate
from pipelines.models.catalog import Catalog, read_data_dir
from pipelines.recipes.recipe import Lora, Recipe
from pipelines.registry import find_layouts, load
from pipelines.stages import ignore_progress
from tests.pipelines.denoising import assert_same_weights
from tests.pipelines.made_loras import draw_pairs, write_peft
from tests.pipelines.single_files import write_gguf, write_wan


def test_a_file_of_a_first_and_a_last_picture_has_the_folders_weights(
    wan_catalog: Catalog, load_wan: Callable[..., Any], cache_dir: Path, tmp_path: Path
) -> None:
    folder = wan_catalog.get("flf2v").path
    assert folder is not None
    (tmp_path / "models").mkdir()
    (tmp_path / "models" / "flf2v").symlink_to(folder)
    write_wan(folder, tmp_path / "models" / "alone.safetensors")
    entry = '[[model]]\nid = "alone"\nfile = "alone.safetensors"\nconfigs = "flf2v"\n'
    (tmp_path / "models.toml").write_text(entry, "utf-8")
    theirs, own = load_wan("flf2v"), read_data_dir(tmp_path).get("alone")
    model = replace(own, shapes=theirs.model.shapes, default_shape=theirs.model.default_shape, flow_shifts={})
    family: Any = load(model, mesh="dp=1", cache_dir=cache_dir, on_progress=ignore_progress)
    assert_same_weights(family, theirs)
    assert family.parts.picture_count == theirs.parts.picture_count == 2
    family.unload()


@pytest.mark.parametrize("is_gguf", [False, True], ids=["safetensors", "GGUF"])
def test_a_pair_of_experts_as_files_makes_the_folders_video(
    *,
    wan_catalog: Catalog,
    load_wan: Callable[..., Any],
    draw_wan: Callable[..., Recipe],
    borrow: Callable[[Any], Any],
    cache_dir: Path,
    tmp_path: Path,
    is_gguf: bool,
) -> None:
    folder = wan_catalog.get("experts").path
    assert folder is not None
    models = tmp_path / "models"
    models.mkdir()
    (models / "experts").symlink_to(folder)
    files: list[str] = []
    for component, noise in (("transformer", "high"), ("transformer_2", "low")):
        file = write_wan(folder, models / f"{noise}_noise.safetensors", component=component)
        if is_gguf:
            exact = file
            file = write_gguf(exact, exact.with_suffix(".gguf"), kind="F32")
            exact.unlink()
        files.append(file.name)
    entry = f'[[model]]\nid = "pair"\nfile = "{files[0]}"\nfile_2 = "{files[1]}"\nconfigs = "experts"\n'
    (tmp_path / "models.toml").write_text(entry, "utf-8")
    theirs = borrow(load_wan("experts"))
    own = read_data_dir(tmp_path).get("pair")
    model = replace(own, shapes=theirs.model.shapes, default_shape=theirs.model.default_shape, flow_shifts={})
    how: Any = {"mesh": "dp=1", "cache_dir": cache_dir, "on_progress": ignore_progress}
    how |= {"keep_layouts": True}
    recipe = draw_wan("experts")
    family: Any = load(model, **how)
    assert {*family.parts.modules} >= {"transformer", "transformer_2"}
    assert_same_weights(family, theirs)
    if not is_gguf:  # the programs are the same
        assert (generate(family, recipe).pixels == generate(theirs, recipe).pixels).all()

    (tmp_path / "loras").mkdir()
    write_peft(theirs.model.loras_dir / "x_high_noise.safetensors", draw_pairs(theirs, "transformer", size=0.1))
    write_peft(tmp_path / "loras" / "x_high_noise.safetensors", draw_pairs(theirs, "transformer", size=0.1))
    for one in (theirs, family):
        one.apply_loras([Lora(ref="x_high_noise")], on_progress=ignore_progress)
    assert_same_weights(family, theirs)
    family.unload()
    changed = {name: np.asarray(one) for name, one in theirs.parts.weights["transformer"].items()}
    theirs.apply_loras((), on_progress=ignore_progress)
    assert any((one != theirs.parts.weights["transformer"][name]).any() for name, one in changed.items())

    assert len([*(find_layouts(cache_dir) / "pair").glob("*.safetensors")]) >= 2
    family = load(model, **how)  # from the kept layouts
    assert_same_weights(family, theirs)
    family.unload()

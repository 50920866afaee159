"""GGUF files give the very pictures of the weights that they stand for."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pipelines.generate import generate
from pipelines.models.catalog import PRESETS_DIR, read_data_dir
from pipelines.recipes.recipe import read_recipe
from pipelines.recipes.resolving import resolve
from pipelines.registry import find_architecture, load
from pipelines.runtime.weights.single_file import read_folder
from pipelines.stages import ignore_progress
from tests.pipelines.families.test_transformer_files import read
from tests.pipelines.single_files import write_dequantised, write_flux2, write_gguf, write_ldm, write_wan

Write = Callable[..., Path]
WRITERS: dict[str, tuple[str, Write]] = {
    "FLUX.2": ("demo-flux2", write_flux2),
    "FLUX.2 as ComfyUI has it": (
        "demo-flux2", lambda folder, file: write_flux2(folder, file, prefix="model.diffusion_model.")
    ),
    "Wan": ("demo-wan", write_wan),
    "an SDXL's UNet": (
        "demo-sdxl",
        lambda folder, file: write_ldm(folder, file, without=("vae", "text_encoder", "text_encoder_2")),
    ),
}  # fmt: skip


def write(home: Path, base: str, write_single: Write, kind: str) -> Path:
    """Writes a demo's transformer or UNet as a GGUF file that is dropped into models/."""
    (home / "models").mkdir(parents=True)
    single = write_single(PRESETS_DIR / "demo" / base, home / "single.safetensors")
    return write_gguf(single, home / "models" / "mine.gguf", kind=kind, recut=base == "demo-sdxl")


@pytest.mark.parametrize(("base", "write_single"), WRITERS.values(), ids=WRITERS.keys())
def test_a_gguf_file_in_fp16_holds_its_folders_own_weights(tmp_path: Path, base: str, write_single: Write) -> None:
    write(tmp_path, base, write_single, "F16")
    catalog = read_data_dir(tmp_path)
    assert not catalog.unusable
    model = catalog.get("mine")
    assert model.base == catalog.get(base)
    architecture: Any = find_architecture(model)
    components = architecture.read_files(model)
    (name,) = components
    own, theirs = read(components[name]), read(read_folder(PRESETS_DIR / "demo" / base / name))
    assert own.keys() == theirs.keys()
    assert not [name for name in theirs if not np.array_equal(own[name], theirs[name])]


@pytest.mark.parametrize(("base", "write_single"), WRITERS.values(), ids=WRITERS.keys())
def test_a_quantised_file_means_its_dequantised_weights(tmp_path: Path, base: str, write_single: Write) -> None:
    file = write(tmp_path, base, write_single, "Q8_0")
    write_dequantised(file, tmp_path / "models" / "plain.safetensors")
    catalog = read_data_dir(tmp_path)
    assert not catalog.unusable
    assert "in Q8_0 (GGUF). From " in catalog.get("mine").description
    architecture: Any = find_architecture(catalog.get("mine"))
    (own,), (theirs,) = (architecture.read_files(catalog.get(name)).values() for name in ("mine", "plain"))
    own, theirs = read(own), read(theirs)
    assert not [name for name in theirs if not np.array_equal(own[name], theirs[name])]


def test_its_picture_is_that_of_the_weights_it_stands_for(tmp_path: Path, cache_dir: Path) -> None:
    def draw(model_id: str) -> np.ndarray:
        catalog = read_data_dir(tmp_path)
        family = load(catalog.get(model_id), mesh="dp=1", cache_dir=cache_dir, on_progress=ignore_progress)
        fields = {"model": model_id, "prompt": "a red sailboat", "shape": "128x128", "steps": 2, "seed": 5}
        pixels = generate(family, resolve(read_recipe(fields), catalog)).pixels
        family.unload()
        return pixels

    quantised = write(tmp_path, "demo-flux2", write_flux2, "Q8_0")
    write_dequantised(quantised, quantised.with_name("plain.safetensors"))
    assert (draw("mine") == draw("plain")).all()

"""The picture that the demo model is known to make, by everything that makes one: weights, programs, kernels, chips.

`presets/doctor/demo-sdxl.png` was made in fp32 on a CPU by `python -m pipelines.doctor.picture FILE`; on an accelerator
models run in bf16, which changes a picture by less than any eye sees (tests/pipelines/test_demo_bf16.py: 35 dB).
"""

import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from pipelines.models.catalog import PRESETS_DIR, load_catalog
from pipelines.recipes.recipe import Recipe
from pipelines.recipes.resolving import resolve
from pipelines.stages import ignore_progress

FILE = PRESETS_DIR / "doctor" / "demo-sdxl.png"
LEAST_PSNR_DB = 30.0
"""35 dB is the least between fp32 and bf16 on one machine; another chip sums in another order."""


def make_picture(cache_dir: Path) -> np.ndarray:
    """Returns the picture (H, W, 3) of 0 to 255, made by the demo model on the devices here."""
    from pipelines import registry
    from pipelines.generate import generate

    catalog = load_catalog()
    model = catalog.get("demo-sdxl")
    recipe = resolve(
        Recipe(model=model.id, prompt=model.examples[0].prompt, seed=42, shape="128x128", steps=8), catalog
    )
    family = registry.load(model, mesh=None, cache_dir=cache_dir, on_progress=ignore_progress)
    try:
        return np.asarray(generate(family, recipe).pixels[0])
    finally:
        family.unload()


def measure_psnr(cache_dir: Path, *, disturb: Callable[[Any], Any]) -> float:
    """Makes the picture; returns its PSNR in dB against the known one, at most 99."""
    known = np.asarray(Image.open(FILE).convert("RGB"), np.float64)
    made = np.asarray(disturb(make_picture(cache_dir)), np.float64)
    if made.shape != known.shape:
        return 0.0
    return float(min(99.0, 10 * np.log10(255**2 / max(np.square(made - known).mean(), 1e-9))))


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        Image.fromarray(make_picture(Path(folder))).save(sys.argv[1], optimize=True)

"""Measures how near a demo's outputs from weights in int8 are to those from its weights in full.

`python -m pipelines.demos.int8_likeness --model demo-flux2 --outputs 10` draws held-out prompts with both, of the same
seeds, on one device; `--weights w8a8` with activations in int8, too.
"""

import argparse
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from pipelines import registry
from pipelines.demos.motions import held_out_clips
from pipelines.demos.postcards import held_out_prompts
from pipelines.demos.scores import draw, find_psnr
from pipelines.models.catalog import Catalog, load_catalog
from pipelines.models.model import FULL, INT8, W8A8
from pipelines.stages import ignore_progress


def draw_all(
    catalog: Catalog, model_id: str, weights: str, prompts: Sequence[str], cache_dir: Path
) -> list[np.ndarray]:
    """Draws an output of each prompt in the default size and steps; its place among the prompts is its seed."""
    model = replace(catalog.get(model_id), weights=weights)
    family = registry.load(model, mesh="dp=1", cache_dir=cache_dir, on_progress=ignore_progress)
    shape = str(model.default_shape)
    outputs = [draw(family, catalog, prompt, shape=shape, steps=None, seed=at) for at, prompt in enumerate(prompts)]
    family.unload()
    return outputs


def main() -> None:
    parser = argparse.ArgumentParser(description="How near outputs from weights in int8 are to those in full.")
    parser.add_argument("--model", default="demo-flux2", help="demo-sdxl, demo-flux2 or demo-wan")
    parser.add_argument("--outputs", type=int, default=10)
    parser.add_argument("--weights", choices=(INT8, W8A8), default=INT8)
    options = parser.parse_args()
    catalog = load_catalog()
    held_out = held_out_clips if catalog.get(options.model).is_video else held_out_prompts
    prompts = [prompt for prompt, _ in held_out(options.outputs)]
    with tempfile.TemporaryDirectory() as cache:
        full, rounded = (
            draw_all(catalog, options.model, weights, prompts, Path(cache)) for weights in (FULL, options.weights)
        )
    decibels = [find_psnr(one, other) for one, other in zip(full, rounded, strict=True)]
    print(f"{np.mean(decibels):.1f} dB, at worst {min(decibels):.1f} dB")  # noqa: T201 - the result


if __name__ == "__main__":
    main()

"""The three stages through files: the contract's names and shapes, the picture of `generate`, plain refusals."""

import json
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from safetensors.numpy import load_file

from pipelines.__main__ import main
from pipelines.generate import generate
from pipelines.recipe import Recipe
from pipelines.stage_files import write_tensors

Run = Callable[[str], int]


@pytest.fixture
def run(models_dir: Path, cache_dir: Path, tmp_path: Path) -> Run:
    """Runs a command line on the tiny checkpoints; `{out}` is this test's folder."""

    def run(line: str) -> int:
        arguments = [part.replace("{out}", str(tmp_path)) for part in shlex.split(line)]
        return main([*arguments, "--mesh", "dp=1", "--data-dir", str(models_dir.parent)])

    return run


def test_the_stages_give_the_picture_of_generate(
    run: Run, tmp_path: Path, load_flux2: Callable[..., Any], draw_recipe: Callable[..., Recipe]
) -> None:
    assert run("encode --model klein --prompt 'a red boat' --output_dir {out}") == 0
    embeddings = load_file(tmp_path / "stage1_embeddings.safetensors")
    assert {name: value.shape for name, value in embeddings.items()} == {
        "prompt_embeds": (1, 64, 96),
        "negative_prompt_embeds": (1, 64, 96),
    }
    assert run("denoise --input_dir {out} --num_inference_steps 3 --guidance_scale 3 --seed 5") == 0
    assert load_file(tmp_path / "stage2_latents.safetensors")["latents"].shape == (1, 16, 8, 8)
    assert run("decode --input_dir {out}") == 0
    with Image.open(tmp_path / "output_image.png") as picture:
        np.testing.assert_array_equal(np.asarray(picture), generate(load_flux2(), draw_recipe()).pixels[0])


def test_a_model_without_a_pair_takes_one_embedding(load_flux2: Callable[..., Any]) -> None:
    assert load_flux2("dev").embedding_shapes() == {"prompt_embeds": (1, 240, 96)}
    assert load_flux2("distilled").embedding_shapes() == {"prompt_embeds": (1, 64, 96)}


def test_embeddings_of_another_length_are_refused(run: Run, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    zeros = np.zeros((1, 512, 96), np.float32)
    write_tensors(tmp_path / "stage1_embeddings.safetensors", {"prompt_embeds": zeros}, model_id="distilled")
    (tmp_path / "generation_config.json").write_text(json.dumps({"model_id": "distilled", "prompt": "a boat"}))
    assert run("denoise --input_dir {out}") == 1
    assert "has shape (1, 512, 96); distilled needs (1, 64, 96)" in capsys.readouterr().err

"""The command line on a tiny Wan: the length of the text is diffusers', another is chosen or read off older files."""

import json
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from pipelines.__main__ import main
from pipelines.commands.options import DataDirectory
from pipelines.files.stage_files import EMBEDDINGS_FILE, LATENTS_FILE
from pipelines.models.catalog import Catalog
from pipelines.recipes.recipe import Recipe
from pipelines.stages import ignore_progress

OLDER_LENGTH = 226  # what scripts before diffusers' default of 512 encoded
MAX_DIFFERENCE = 3

Run = Callable[[str], int]


@pytest.fixture
def run(
    wan_catalog: Catalog, cache_dir: Path, keep_loaded: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Run:
    """Runs a command line on the tiny Wans in their small shapes; `{out}` is this test's folder."""
    monkeypatch.setattr(DataDirectory, "catalog", wan_catalog)

    def run(line: str) -> int:
        return main([*shlex.split(line.replace("{out}", str(tmp_path))), "--data-dir", str(cache_dir.parent)])

    return run


@pytest.fixture
def older(run: Run, tmp_path: Path) -> Path:
    """A folder as older scripts left it: 226 tokens, and the settings that they wrote."""
    folder = tmp_path / "stage_outputs"
    line = f"encode --model t2v --prompt 'a red sailboat on the ocean' --negative_prompt night --output_dir {folder}"
    assert run(f"{line} --max_sequence_length {OLDER_LENGTH} --mesh dp=1") == 0
    embeddings = load_file(folder / EMBEDDINGS_FILE)
    save_file(embeddings, folder / EMBEDDINGS_FILE, metadata={"prompt_embeds_dtype": "torch.bfloat16"})
    settings = {
        "prompt": "a red sailboat on the ocean",
        "negative_prompt": "night",
        "width": 32,
        "height": 32,
        "frames": 9,
        "fps": 16,
        "num_inference_steps": 4,
        "guidance_scale": 4.0,
        "seed": 5,
        "model_id": "t2v",
        "dtype": "bfloat16",
    }
    (folder / "generation_config.json").write_text(json.dumps(settings))
    return folder


def test_older_stage_files_give_the_video_of_that_length_in_diffusers(  # noqa: PLR0917 - fixtures
    run: Run,
    older: Path,
    draw_wan: Callable[..., Recipe],
    ask_wan: Callable[..., np.ndarray],
    load_wan: Callable[..., Any],
    find_difference: Callable[[np.ndarray, np.ndarray], int],
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert load_file(older / EMBEDDINGS_FILE)["prompt_embeds"].shape == (1, OLDER_LENGTH, 32)
    old = "--use_dp --use_fsdp --bqsize 3328 --bkvsize 2816 --bkvcomputesize 256 --use_custom_attention --mesh dp=1"
    assert run(f"denoise --input_dir {older} --warmup_steps 1 {old}") == 0
    assert run(f"decode --input_dir {older} --warmup --mesh dp=1") == 0
    told = capsys.readouterr().err
    assert "generation_config.json: dtype means nothing here" in told
    assert "--bqsize 3328 has no effect" in told
    assert (older / "output_video.mp4").exists()
    recipe = draw_wan(negative_prompt="night")
    family = load_wan()
    family.warm(recipe.parsed_shape, batch_size=1, uses_cfg=True, on_progress=ignore_progress)
    pixels = family.decode(recipe, load_file(older / LATENTS_FILE)["latents"])
    assert find_difference(pixels, ask_wan(recipe, max_sequence_length=OLDER_LENGTH)) <= MAX_DIFFERENCE
    assert find_difference(pixels, ask_wan(recipe)) > MAX_DIFFERENCE


def test_another_length_is_chosen_and_it_is_told_that_the_file_does_not_carry_it(
    run: Run, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    line = "generate --model t2v --prompt night --shape 32x32 --num_inference_steps 1 --seed 1 --mesh dp=1 --json"
    assert run(f"{line} --output {{out}}/a.mp4 --max_sequence_length 7 --window_size 64") == 0
    told = capsys.readouterr().err
    assert "the recipe in the file does not carry --max_sequence_length 7 --window_size 64" in told
    prompt = "on the red ocean at night a house"
    assert run(f"encode --model t2v --prompt '{prompt}' --max_sequence_length 7 --output_dir {{out}} --mesh dp=1") == 0
    assert "t2v reads 6 of the 8 word pieces of the prompt. Not read: a house" in capsys.readouterr().err
    assert run(f"{line} --output {{out}}/b.mp4 --max_sequence_length 512") == 0
    assert capsys.readouterr().err == ""
    assert (tmp_path / "a.mp4").exists()

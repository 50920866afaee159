"""The command line: three stages through files, pictures to start from, a text encoder elsewhere, plain refusals."""

import json
import shlex
import socket
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import uvicorn
from PIL import Image
from safetensors.numpy import load_file

from pipelines.__main__ import main
from pipelines.commands.encoder_app import build_app
from pipelines.files.metadata import read_recipe_of
from pipelines.files.stage_files import write_tensors
from pipelines.generate import generate
from pipelines.models.catalog import Catalog
from pipelines.recipes.recipe import Recipe

Run = Callable[[str], int]


@pytest.fixture
def run(models_dir: Path, keep_loaded: None, tmp_path: Path) -> Run:
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
        "prompt_embeds": (1, 512, 96),
        "negative_prompt_embeds": (1, 512, 96),
    }
    assert run("denoise --input_dir {out} --num_inference_steps 3 --guidance_scale 3 --seed 5") == 0
    assert load_file(tmp_path / "stage2_latents.safetensors")["latents"].shape == (1, 16, 8, 8)
    assert run("decode --input_dir {out}") == 0
    with Image.open(tmp_path / "output_image.png") as picture:
        np.testing.assert_array_equal(np.asarray(picture), generate(load_flux2(), draw_recipe()).pixels[0])


def test_a_model_without_a_pair_takes_one_embedding(load_flux2: Callable[..., Any]) -> None:
    assert load_flux2("dev").embedding_shapes() == {"prompt_embeds": (1, 512, 96)}
    assert load_flux2("distilled").embedding_shapes() == {"prompt_embeds": (1, 512, 96)}


def test_embeddings_of_another_width_are_refused(run: Run, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    zeros = np.zeros((1, 512, 95), np.float32)
    write_tensors(tmp_path / "stage1_embeddings.safetensors", {"prompt_embeds": zeros}, model_id="distilled")
    (tmp_path / "generation_config.json").write_text(json.dumps({"model_id": "distilled", "prompt": "a boat"}))
    assert run("denoise --input_dir {out}") == 1
    assert "has shape (1, 512, 95); distilled needs (1, 512, 96)" in capsys.readouterr().err


def test_a_picture_to_start_from_leaves_only_its_name_in_the_file(run: Run, tmp_path: Path) -> None:
    Image.new("RGB", (64, 64), "teal").save(tmp_path / "teal.png")
    line = "generate --model distilled --prompt x --num_inference_steps 2 --image {out}/teal.png --output {out}/a.png"
    assert run(line) == 0
    assert read_recipe_of(tmp_path / "a.png").images == ("teal.png",)


@pytest.fixture
def encoder_url(load_flux2: Callable[..., Any], draw_recipe: Callable[..., Recipe], flux2_catalog: Catalog) -> Any:
    """An encoder-server of the tiny klein on a port of this machine."""
    family = load_flux2()
    generate(family, draw_recipe())  # warm
    app = build_app(family, flux2_catalog, token="secret")
    server = uvicorn.Server(uvicorn.Config(app, log_level="critical", lifespan="off"))
    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
        thread.start()
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        server.should_exit = True
        thread.join()


def test_generate_needs_no_text_encoder_when_another_machine_has_it(
    run: Run, encoder_url: str, tmp_path: Path, load_flux2: Callable[..., Any], draw_recipe: Callable[..., Recipe]
) -> None:
    settings = "--prompt 'a red boat' --num_inference_steps 3 --guidance_scale 3 --seed 5 --output {out}/a.png"
    assert run(f"generate --model klein {settings} --remote_encoder --remote_url {encoder_url}") == 1
    line = f"generate --model klein {settings} --text_encoder_url {encoder_url} --text_encoder_token secret"
    assert run(line) == 0
    with Image.open(tmp_path / "a.png") as picture:
        np.testing.assert_array_equal(np.asarray(picture), generate(load_flux2(), draw_recipe()).pixels[0])


def test_a_stage_may_leave_the_encoding_to_another_machine_too(run: Run, encoder_url: str, tmp_path: Path) -> None:
    assert run("encode --model klein --prompt 'a red boat' --output_dir {out}/here") == 0
    remote = f"--remote_encoder --remote_url {encoder_url} --text_encoder_token secret"
    assert run(f"encode --model klein --prompt 'a red boat' {remote} --output_dir {{out}}/there --seed 4") == 0
    here, there = (load_file(tmp_path / name / "stage1_embeddings.safetensors") for name in ("here", "there"))
    assert here.keys() == there.keys()
    for name, value in here.items():
        np.testing.assert_array_equal(value, there[name])
    assert json.loads((tmp_path / "there" / "generation_config.json").read_text("utf-8"))["seed"] == 4


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("generate --model klein --prompt x --remote_encoder", "needs --remote_url"),
        ("generate --model klein --prompt x --text_encoder_url somewhere", "'somewhere' is not an address"),
        ("generate --model klein --prompt x --image {out}/nothing.png", "nothing.png cannot be read as a picture"),
        ("encoder-server --model klein --host 0.0.0.0", "lets other machines in; set LUMESH_TEXT_ENCODER_TOKEN too"),
    ],
)
def test_what_cannot_work_is_told_in_one_line(
    run: Run, capsys: pytest.CaptureFixture[str], line: str, words: str
) -> None:
    assert run(line) in (1, 2)
    told = capsys.readouterr().err
    assert words in told
    assert told.count("\n") == 1

"""`python -m pipelines` on a tiny SDXL: stable keys and file names, stages that agree with `generate`, plain refusals.

The commands run in this process and share what they load; one runs in a process of its own, and loads by itself.
"""

import gzip
import json
import re
import shlex
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from safetensors.numpy import load_file

from pipelines.__main__ import main
from pipelines.commands.stages import choose_fields, from_config
from pipelines.files.metadata import read_recipe_of
from pipelines.files.stage_files import write_tensors
from pipelines.prompts.words import WORDS_FILE
from tests.places import ROOT

SETTINGS = "--num_inference_steps 4 --guidance_scale 4 --mesh dp=1"


@dataclass(frozen=True, kw_only=True)
class Result:
    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        assert self.code == 0, self.err
        return json.loads(self.out)


Run = Callable[[str], Result]


@pytest.fixture
def run(data_dir: Path, keep_loaded: None, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Run:
    """Runs a command line on the tests' data directory; `{out}` is this test's folder."""

    def run(line: str) -> Result:
        arguments = [part.replace("{out}", str(tmp_path)) for part in shlex.split(line)]
        capsys.readouterr()
        code = main([*arguments, "--data-dir", str(data_dir)])
        captured = capsys.readouterr()
        return Result(code=code, out=captured.out, err=captured.err)

    return run


def read_picture(file: Path) -> np.ndarray:
    with Image.open(file) as picture:
        return np.asarray(picture)


def generate(run: Run, rest: str) -> np.ndarray:
    found = run(f"generate --model tiny --prompt 'a red boat' {SETTINGS} --output {{out}}/whole.png --json {rest}")
    return read_picture(Path(found.json["output"]))


@pytest.fixture
def encoded(run: Run, tmp_path: Path) -> Path:
    """A folder with the embeddings of a prompt."""
    assert run("encode --model tiny --prompt 'a red boat' --mesh dp=1 --output_dir {out}/stages").code == 0
    return tmp_path / "stages"


def test_models_lists_shapes_for_scripts(run: Run) -> None:
    models = {model["id"]: model for model in run("models --json").json}
    assert list(models)[:4] == ["demo-flux2", "demo-sdxl", "demo-wan", "sd15"]
    assert models["tiny"]["shapes"] == ["64x64"]
    assert models["tiny"].keys() >= {"id", "title", "family", "revision", "default_shape", "steps", "guidance_scale"}


def test_models_shows_a_table_to_people(run: Run) -> None:
    found = run("models")
    assert found.code == 0
    assert "tiny" in found.out
    assert "1024x1024" in found.out


def test_words_that_a_model_never_learnt_are_named(run: Run, data_dir: Path) -> None:
    words = data_dir / "models" / "tiny" / WORDS_FILE
    words.write_text("a red boat", "utf-8")
    try:
        found = run("encode --model tiny --prompt 'a red cat' --mesh dp=1 --output_dir {out}/stages --json")
    finally:
        words.unlink()
    assert [note.partition(" knows ")[2] for note in found.json["notes"]] == ['no "cat".']


def test_generate_reports_its_work_as_one_object(run: Run, tmp_path: Path) -> None:
    found = run(
        f"generate --model tiny --prompt 'a red boat <lora:gone:1> [a|b]' {SETTINGS} --seed 7 --batch_size 2 "
        "--output {out}/a.png --json"
    )
    report = found.json
    assert report.keys() == {
        "output", "outputs", "model", "revision", "shape", "seed", "notes", "compiles", "timings"
    }  # fmt: skip
    assert (report["model"], report["shape"], report["seed"]) == ("tiny", "64x64", 7)
    assert report["notes"] == [
        "LoRA gone is not here: its tag is left out.",
        "Words do not change midway here: [cat:dog:0.5] is read as it is written.",
    ]
    assert report["outputs"] == [str(tmp_path / f"a-{index}.png") for index in range(2)]
    assert report["output"] == report["outputs"][0]
    assert re.fullmatch(r"local-[0-9a-f]{16}", report["revision"])
    assert read_recipe_of(tmp_path / "a-1.png").revision == report["revision"]
    assert report["timings"].keys() == {
        "load_s", "compile_s", "encode_s", "denoise_s", "step_ms", "decode_s", "total_s"
    }  # fmt: skip
    assert (len(found.out.splitlines()), found.err) == (1, "")


def test_a_picture_carries_its_recipe(run: Run, tmp_path: Path) -> None:
    generate(run, "--negative_prompt 'rain, fog' --seed 7 --scheduler dpmpp_2m")
    recipe = read_recipe_of(tmp_path / "whole.png")
    assert (recipe.prompt, recipe.negative_prompt, recipe.seed, recipe.steps) == ("a red boat", "rain, fog", 7, 4)
    assert (recipe.model, recipe.shape, recipe.scheduler) == ("tiny", "64x64", "dpmpp_2m")
    with Image.open(tmp_path / "whole.png") as picture:
        lines = picture.text["parameters"].splitlines()
    assert lines[:2] == ["a red boat", "Negative prompt: rain, fog"]
    assert lines[2].startswith("Steps: 4, Sampler: DPM++ 2M, CFG scale: 4.0, Seed: 7, Size: 64x64, Model: tiny")


def test_each_picture_of_a_batch_can_be_made_again_alone(run: Run, tmp_path: Path) -> None:
    run(f"generate --model tiny --prompt 'a red boat' {SETTINGS} --seed 7 --batch-size 2 --output {{out}}/a.png --json")
    recipe = read_recipe_of(tmp_path / "a-1.png")
    assert (recipe.seed, recipe.batch_size) == (8, 1)
    again = generate(run, f"--seed {recipe.seed}")
    assert np.abs(read_picture(tmp_path / "a-1.png").astype(int) - again).max() <= 2


def test_weights_kept_as_they_lie_on_the_mesh_give_the_same_picture(run: Run, data_dir: Path) -> None:
    pictures = [generate(run, f"--seed 3 {flag}") for flag in ("", "--keep-layouts", "--keep-layouts")]
    kept = data_dir / "cache" / "layouts" / "tiny"
    assert {file.name.split("-")[0] for file in kept.iterdir()} == {"unet", "vae", "text_encoder", "text_encoder_2"}
    for picture in pictures[1:]:
        np.testing.assert_array_equal(picture, pictures[0])


def test_flags_take_dashes_and_underscores_and_sizes_both_ways(run: Run) -> None:
    one = generate(run, "--seed 3 --negative_prompt fog --width 64 --height 64")
    other = generate(run, "--seed 3 --negative-prompt fog --shape 64x64")
    np.testing.assert_array_equal(one, other)


def test_the_stages_give_the_picture_of_generate(run: Run, encoded: Path) -> None:
    denoised = run(f"denoise --input_dir {encoded} {SETTINGS} --seed 7 --json").json
    assert denoised == {"output": str(encoded / "stage2_latents.safetensors"), "notes": []}
    assert run(f"decode --input_dir {encoded} --mesh dp=1").out.strip() == str(encoded / "output_image.png")
    assert {file.name for file in encoded.iterdir()} == {
        "stage1_embeddings.safetensors", "stage2_latents.safetensors", "generation_config.json", "output_image.png"
    }  # fmt: skip
    np.testing.assert_array_equal(read_picture(encoded / "output_image.png"), generate(run, "--seed 7"))
    assert read_recipe_of(encoded / "output_image.png").seed == 7


def test_a_picture_to_start_from_goes_through_the_stages(run: Run, tmp_path: Path) -> None:
    start = np.random.default_rng(0).integers(0, 255, (4, 4, 3), np.uint8)
    Image.fromarray(start).resize((128, 64)).save(tmp_path / "start.png")
    flags, steps = "--image {out}/start.png --strength 0.5 --fit stretch", SETTINGS
    run(f"encode --model tiny --prompt 'a red boat' {flags} --output_dir {{out}}/stages --mesh dp=1")
    config = json.loads((tmp_path / "stages" / "generation_config.json").read_text())
    assert (config["strength"], config["fit"]) == (0.5, "stretch")
    assert config["images"] == [str(tmp_path / "start.png")]
    denoised = run(f"denoise --input_dir {{out}}/stages {steps} --seed 7")
    assert denoised.code == 0
    assert "start.png: the picture is stretched to the proportions of 64x64." in denoised.err
    assert run("decode --input_dir {out}/stages --output {out}/made.png --mesh dp=1").code == 0
    made = read_picture(tmp_path / "made.png")
    np.testing.assert_array_equal(made, generate(run, f"--seed 7 {flags}"))
    recipe = read_recipe_of(tmp_path / "whole.png")
    assert (recipe.strength, recipe.fit, recipe.images) == (0.5, "stretch", ("start.png",))
    with Image.open(tmp_path / "whole.png") as picture:
        assert "Denoising strength: 0.5" in picture.text["parameters"]
    assert np.abs(made.astype(int) - generate(run, f"--seed 7 {flags.replace('0.5', '1')}")).max() > 20


def test_stage_files_have_the_contracts_names_and_shapes(run: Run, encoded: Path) -> None:
    shapes = {name: value.shape for name, value in load_file(encoded / "stage1_embeddings.safetensors").items()}
    assert shapes == {
        "prompt_embeds": (1, 40, 80),
        "negative_prompt_embeds": (1, 40, 80),
        "pooled_prompt_embeds": (1, 48),
        "negative_pooled_prompt_embeds": (1, 48),
    }
    config = json.loads((encoded / "generation_config.json").read_text())
    assert config.keys() >= {
        "prompt", "negative_prompt", "width", "height", "num_inference_steps", "guidance_scale", "seed", "model_id"
    }  # fmt: skip


def test_one_encoding_serves_many_seeds(run: Run, encoded: Path) -> None:
    pictures = []
    for seed in (7, 8):
        folder = encoded.parent / f"seed-{seed}"
        assert run(f"denoise --input_dir {encoded} --output_dir {folder} {SETTINGS} --seed {seed}").code == 0
        assert run(f"decode --input_dir {folder} --output {folder}/picture.png --mesh dp=1").code == 0
        pictures.append(read_picture(folder / "picture.png"))
    np.testing.assert_array_equal(pictures[1], generate(run, "--seed 8"))
    assert np.abs(pictures[0].astype(int) - pictures[1]).max() > 20
    assert not (encoded / "stage2_latents.safetensors").exists()


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("generate --model tiny --prompt x --shape 100x100", "100x100 is not a shape of tiny; allowed: 64x64"),
        ("generate --model sdxl-base --prompt x --width 1000 --height 1001", "allowed: 1024x1024, 1152x896, 896x1152"),
        ("generate --model tiny --prompt x --shape big", "big is not a shape of tiny; allowed: 64x64"),
        ("generate --model tiny --prompt x --width 32", "32x64 is not a shape of tiny; allowed: 64x64"),
        ("generate --model tiny --prompt x --frames 17", "64x64x17 is not a shape of tiny"),
        ("generate --model demo-wan --prompt x --frames 16", "16 frames: a video has 4n+1 of them"),
        ("generate --model tiny --prompt x --shape nonsense --frames 17", "nonsense is not a shape of tiny"),
        ("generate --model nope --prompt x --width 64", "Known models: demo-flux2"),
        ("generate --model tiny --prompt x --width -64 --height 64", "-64x64 is not a size in pixels"),
        ("generate --model tiny --prompt x --shape 64x64 --width 32 --height 32", "contradicts"),
        ("generate --model nope --prompt x", "Known models: demo-flux2, demo-sdxl, demo-wan, sd15, "),
        ("generate --model tiny --prompt ''", "prompt: write what the picture should show"),
        ("generate --model tiny", "--prompt"),
        ("generate --model tiny --prompt x --num_inference_steps 0", "steps: 0 is out of range; allowed: 1 to"),
        (
            "generate --model tiny --prompt x --num_inference_steps many",
            "'--num-inference-steps': Input should be a valid",
        ),
        ("generate --model tiny --prompt x --guidance_scale nan", "guidance_scale: nan is out of range"),
        ("generate --model tiny --prompt x --seed -2", "seed: -2 is out of range"),
        ("generate --model tiny --prompt x --batch_size 99", "batch_size: 99 is out of range; allowed: 1 to 8"),
        ("generate --model tiny --prompt x --strength 0.5", "strength: needs a picture to start from"),
        ("generate --model tiny --prompt x --fit pad", "fit: needs a picture to start from"),
        ("generate --model tiny --prompt x --fit squeeze", "'squeeze' is not one of 'crop', 'pad', 'stretch'"),
        ("generate --model tiny --prompt x --fit strech", "'crop', 'pad', 'stretch'. Perhaps stretch is meant."),
        ("train tiny --lora --data x --epohcs 3", "No such option: --epohcs (Possible options: --epochs"),
        ("train tiny --lora --data x --remat laiers", ": 'laiers' is not one of 'auto', 'none', 'layers', 'narrow'"),
        ("generate --model demo-flux2 --prompt x --strength 0.5", "strength: demo-flux2 has no strength; leave it out"),
        (
            "generate --model tiny --prompt x --scheduler fast",
            "allowed: euler, euler_ancestral, dpmpp_2m, dpmpp_2m_sde, ddim, dpmpp_sde, er_sde, lcm, tcd",
        ),
        ("generate --model tiny --prompt x --warmup_steps -2", "warmup"),
        ("generate --model tiny --prompt x --mesh dp=3x", "'dp=3x' is not a mesh"),
        ("generate --model tiny --prompt x --mesh dp=64", "needs 64 devices; there are 8"),
        ("generate --model tiny --prompt x --no_such_flag", "no-such-flag"),
        ("generate --model tiny --prompt x --profile /proc/traces", "profile: /proc/traces cannot be a folder"),
        ("encode --model nope --prompt x", "Known models:"),
        ("paint", "paint"),
    ],
)
def test_wrong_values_end_with_2_and_one_line(run: Run, line: str, words: str) -> None:
    found = run(line)
    assert (found.code, found.out, len(found.err.splitlines())) == (2, "", 1)
    assert words in found.err


def test_stages_out_of_order_say_what_comes_first(run: Run, encoded: Path) -> None:
    for line, words in {
        "denoise --input_dir {out}/nowhere": "Run `python -m pipelines encode` first",
        "decode --input_dir {out}/nowhere": "Run `python -m pipelines encode` first",
        "decode --input_dir {out}/stages": "Run `python -m pipelines denoise` first",
    }.items():
        found = run(f"{line} --mesh dp=1")
        assert (found.code, len(found.err.splitlines())) == (1, 1)
        assert words in found.err


@pytest.mark.parametrize(
    "line",
    [
        "encode --model tiny --prompt x --output_dir {out}/verified",
        "denoise --input_dir {out}/stages",
        "encoder-server --model tiny --port 1",
    ],
)
def test_every_stage_verifies_weights_before_it_loads_them(run: Run, encoded: Path, line: str) -> None:
    found = run(f"{line} --mesh dp=1 --verify-weights")
    assert found.code == 1
    assert "SHA256SUMS" in found.err  # the tiny model has none


@pytest.mark.parametrize("damage", ["truncated", "foreign model", "other shape", "not finite"])
def test_a_bad_embeddings_file_is_refused_in_one_line(run: Run, encoded: Path, damage: str) -> None:
    file = encoded / "stage1_embeddings.safetensors"
    values = load_file(file)
    if damage == "truncated":
        file.write_bytes(file.read_bytes()[:-100])
    elif damage == "foreign model":
        write_tensors(file, values, model_id="sdxl-base")
    elif damage == "other shape":
        write_tensors(file, values | {"prompt_embeds": np.zeros((1, 77, 2048), np.float32)}, model_id="tiny")
    else:
        write_tensors(file, {name: value * np.nan for name, value in values.items()}, model_id="tiny")
    found = run(f"denoise --input_dir {encoded} {SETTINGS}")
    words = {
        "truncated": "is damaged",
        "foreign model": "is of sdxl-base, not of tiny",
        "other shape": "prompt_embeds in",
        "not finite": "not finite",
    }
    assert (found.code, found.out, len(found.err.splitlines())) == (1, "", 1)
    assert words[damage] in found.err
    assert "Run `python -m pipelines encode` for tiny again" in found.err


def test_latents_of_another_shape_are_refused_in_one_line(run: Run, encoded: Path) -> None:
    write_tensors(
        encoded / "stage2_latents.safetensors", {"latents": np.zeros((1, 4, 8, 8), np.float32)}, model_id="tiny"
    )
    found = run(f"decode --input_dir {encoded} --mesh dp=1")
    assert (found.code, len(found.err.splitlines())) == (1, 1)
    assert "has shape (1, 4, 8, 8); tiny needs (1, 4, 16, 16)" in found.err


@pytest.mark.parametrize(
    "changes",
    [
        {"width": "wide"},
        {"width": None},
        {"width": 63},
        {"seed": "x"},
        {"num_inference_steps": 10**9},
        {"model_id": "nope"},
    ],
    ids=str,
)
def test_settings_edited_to_something_wrong_end_in_one_line(run: Run, encoded: Path, changes: dict[str, Any]) -> None:
    file = encoded / "generation_config.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | changes))
    found = run(f"denoise --input_dir {encoded} --mesh dp=1")
    assert (found.code, found.out, len(found.err.splitlines())) == (2, "", 1)


def test_a_trace_of_the_making_is_written_and_people_are_told_where_to_look_at_it(run: Run, tmp_path: Path) -> None:
    generate(run, "--seed 7")  # compiles
    found = run(
        f"generate --model tiny --prompt 'a red boat' {SETTINGS} --seed 7 --profile {{out}}/traces "
        "--output {out}/traced.png --json"
    )
    assert found.json["compiles"] == 0
    (file,) = (tmp_path / "traces").glob("plugins/profile/*/perfetto_trace.json.gz")
    assert f"A trace of this job is in {file}: drag it to https://ui.perfetto.dev" in found.err
    names = {event.get("name", "") for event in json.loads(gzip.decompress(file.read_bytes()))["traceEvents"]}
    assert any("jit(denoise)" in name for name in names)
    assert not any("backend_compile" in name for name in names)
    assert (read_picture(tmp_path / "traced.png") == generate(run, "--seed 7")).all()


def test_a_process_of_its_own_prints_nothing_but_the_object(short_dir: Path, cache_dir: Path, tmp_path: Path) -> None:
    command = ["generate", "--model", "tiny", "--prompt", "a red boat", *SETTINGS.split(), "--seed", "7", "--json"]
    done = subprocess.run(
        [sys.executable, "-m", "pipelines", *command, "--output", tmp_path / "a.png", "--data-dir", short_dir],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    assert done.stderr == ""
    assert json.loads(done.stdout)["output"] == str(tmp_path / "a.png")


@pytest.mark.parametrize("output", ["{out}", "{out}/picture.jpg"])
def test_an_output_that_cannot_be_written_is_refused_before_any_work(run: Run, output: str) -> None:
    found = run(f"generate --model tiny --prompt x {SETTINGS} --output {output}")
    assert found.code == 2
    assert ".png" in found.err
    assert found.err.count("\n") == 1


def test_what_is_no_demo_model_is_refused_with_those_that_are(run: Run) -> None:
    found = run("make-demo nope")
    assert found.code == 2
    assert "demo-sdxl" in found.err


def test_all_that_is_wrong_with_a_training_is_told_at_once(run: Run) -> None:
    found = run("train tiny --lora --full --frames 6 --rank 0")
    assert found.code == 2
    assert "rank" in found.err
    found = run("train tiny --lora --full --frames 6")
    assert found.code == 2
    for field in ("data", "lora", "frames"):
        assert f"{field}:" in found.err


def test_a_name_that_is_taken_is_refused_before_anything_is_learnt(run: Run, data_dir: Path, tmp_path: Path) -> None:
    (tmp_path / "corgi").mkdir()
    Image.new("RGB", (64, 64), "red").save(tmp_path / "corgi" / "1.png")
    taken = data_dir / "loras" / "corgi.safetensors"
    taken.parent.mkdir(exist_ok=True)
    taken.write_bytes(b"of somebody")
    try:
        line = "train tiny --data {out}/corgi --caption dog --mesh dp=1 --allow-cpu"
        for kind in ("--lora", "--lora --check"):
            found = run(f"{line} {kind}")
            assert found.code == 2
            assert "corgi.safetensors is there already" in found.err
        assert not (data_dir / "training" / "corgi").exists()
        assert run(f"{line} --lora --check --name other").code == 0
        assert run(f"{line} --full --check --name tiny").code == 2
    finally:
        taken.unlink()


@pytest.mark.parametrize(
    ("given", "flow_shift", "guidance_scale_2"),
    [
        ({}, 5.0, 3.0),
        ({"shape": "832x480x81"}, None, 3.0),
        ({"shape": "832x480x81", "flow_shift": 4.0}, 4.0, 3.0),
        ({"guidance_scale": 6.0}, 5.0, None),
    ],
)
def test_a_later_stage_lets_defaults_follow_what_is_new(
    given: dict[str, Any], flow_shift: float | None, guidance_scale_2: float | None
) -> None:
    config = {"model_id": "wan2.2-a14b", "prompt": "A boat", "width": 1280, "height": 720, "frames": 81}
    earlier = from_config(config | {"flow_shift": 5.0, "guidance_scale": 4.0, "guidance_scale_2": 3.0})
    fields = choose_fields(earlier, {"seed": None} | given)
    assert (fields.get("flow_shift"), fields.get("guidance_scale_2")) == (flow_shift, guidance_scale_2)
    assert fields["shape"] == given.get("shape", "1280x720x81")

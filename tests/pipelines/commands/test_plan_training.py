"""`plan --train`: answers once compiled are kept, shown only for what they were made of, and errors come at once."""

import json
import os
import shlex
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import jax
import pytest

from pipelines.__main__ import main
from pipelines.commands.known_plans import find_shipped
from pipelines.models.catalog import load_catalog
from pipelines.plan.training_matrix import list_trainings
from pipelines.training.planning import count_rounds
from pipelines.training.settings import TrainingSettings
from tests.places import ROOT

ASKED = "--train --model tiny --topology cpu-1 --rank 3"


@pytest.fixture
def plan(
    short_dir: Path, cache_dir: Path, capsys: pytest.CaptureFixture[str]
) -> Iterator[Callable[[str], tuple[int, str, str]]]:
    """Runs `plan` on a data directory with one model: exit code, standard output, standard error."""

    def run(line: str) -> tuple[int, str, str]:
        capsys.readouterr()
        code = main(["plan", *shlex.split(line), "--data-dir", str(short_dir)])
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    jax.config.update("jax_persistent_cache_min_compile_time_secs", 1e9)  # as in test_plan.py
    yield run
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)


def read(found: tuple[int, str, str]) -> dict[str, Any]:
    code, out, err = found
    assert code == 0, err
    return json.loads(out)


def test_an_answer_is_kept_and_shown_only_for_what_it_was_made_of(
    plan: Callable[[str], tuple[int, str, str]], short_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = read(plan(f"{ASKED} --json"))
    assert (first["is_kept"], first["fits"], first["rank"], first["hours"]) == (False, True, 3, None)
    assert first.keys() >= {"model", "kind", "hbm_bytes", "step_ms", "compile_s", "dollars", "versions"}
    assert (first["stage"], first["kind"], first["batch_size"]) == ("train", "lora", 1)
    assert first["hbm_bytes"]["weights"] > 0
    again = read(plan(f"{ASKED} --json"))
    assert again["is_kept"]
    assert {**again, "is_kept": False} == first  # compile seconds and all
    assert "--again compiles it anew" in plan(ASKED)[1]

    (file,) = short_dir.rglob("training.jsonl")
    whole = file.read_text("utf-8")
    made_of = json.loads(whole)["made_of"]
    file.write_text(whole.replace(made_of, "another version's"), "utf-8")
    assert not read(plan(f"{ASKED} --json"))["is_kept"]  # traced, and found to be the same program
    assert file.read_text("utf-8").count("\n") == 1

    monkeypatch.setenv("LIBTPU_INIT_ARGS", "--xla_tpu_scoped_vmem_limit_kib=1024")
    assert not read(plan(f"{ASKED} --json"))["is_kept"]
    monkeypatch.delenv("LIBTPU_INIT_ARGS")

    file.unlink()
    file.with_name(f"{file.name}.{os.getpid()}.partial").mkdir()  # nothing can be written there
    code, _, err = plan(ASKED)
    assert code == 0 and "the answer cannot be kept" in err
    file.with_name(f"{file.name}.{os.getpid()}.partial").rmdir()

    half = whole[: len(whole) // 2]
    file.write_text(f"{half}\n{whole}[1]\n", "utf-8")
    code, out, err = plan(ASKED)  # what can be read is still known
    assert code == 0 and f"2 lines of {file} cannot be read" in err
    assert "the CPU compiler estimates no time" in out and file.read_text("utf-8").count("\n") == 3
    assert read(plan(f"{ASKED} --again --json"))["rank"] == 3
    assert file.read_text("utf-8").count("\n") == 1  # only what can be read is kept with a new answer

    file.unlink()
    file.mkdir()
    code, _, err = plan(ASKED)
    assert code == 0 and "cannot be read, and what it says would be compiled again" in err
    assert "the answer cannot be kept" in err


def test_what_is_known_is_answered_without_jax(tmp_path: Path) -> None:
    words = ["plan", "--train", "--model", "flux2-klein-4b", "--batch", "8", "--json", "--data-dir", str(tmp_path)]
    code = f"import sys; from pipelines.__main__ import main; sys.exit(main({words!r}) or 9 * ('jax' in sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    said = json.loads(done.stdout)
    assert said["is_kept"] and said["source"] == "Estimated by the TPU compiler"


def test_what_ships_is_shown_only_for_the_model_that_ships(monkeypatch: pytest.MonkeyPatch) -> None:
    question, model = list_trainings()[0], load_catalog().get("sd2-base")
    found = find_shipped(question, model)
    assert found is not None and found.is_kept and found.accumulate == 1
    assert find_shipped(question, replace(model, guidance_scale=3.0)) is not None  # of pictures, not of learning
    assert find_shipped(question, replace(model, text_length=256)) is None
    assert find_shipped(replace(question, others={"ema": 0.999}), model) is None
    assert find_shipped(replace(question, rank=8), model) is None
    monkeypatch.setenv("LIBTPU_INIT_ARGS", "--xla_tpu_scoped_vmem_limit_kib=1024")
    assert find_shipped(question, model) is None


def test_everything_that_is_wrong_is_told_at_once(plan: Callable[[str], tuple[int, str, str]]) -> None:
    code, _, err = plan("--train --model tiny --topology v6e-7 --remat all --lora --full --shape big --chip-price inf")
    assert code == 2
    for name in ("topology: ", "remat: ", "lora: choose one", "shape: big is no size", "chip_price: inf"):
        assert name in err
    code, _, err = plan("--train --model tiny --topology cpu-8 --batch 12 --shape 100x64")
    assert code == 2
    assert "batch: 12 is no multiple of 8 devices of cpu-8; take 8 or 16" in err
    assert "shape: 100x64: sides are multiples of 64 pixels" in err
    code, _, err = plan("--train --model wan2.2-ti2v-5b --topology v6e-8 --shape 720x720x5")
    assert code == 2 and "shape: 720x720x5: sides are multiples of 32 pixels" in err
    code, _, err = plan(f"{ASKED} --targets nothing --expert low")
    assert code == 2 and "targets: names none of" in err and "expert: is of models with two experts" in err
    code, _, err = plan("--train --model gone --mesh dp=8 --mode throughput")
    assert code == 2 and "mesh: goes without --train" in err and "mode: goes without --train" in err


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("--train --model nope", "Known models"),
        ("--train --topology v9", "there is no 'v9'; allowed: v4-8, v5e-1"),
        ("--topology v6e-32", "there is no 'v6e-32'"),  # for training alone
        ("--train --model demo-sdxl --topology v6e-32 --batch 8", "8 is no multiple of 32 devices of v6e-32; take 32"),
        ("--train --model demo-sdxl --lora --full", "choose one"),
        ("--train --model demo-sdxl --full --rank 8", "is of a LoRA"),
        ("--train --model demo-sdxl --remat some", "remat: input should be one of 'auto', 'none', 'layers'"),
        ("--train --model demo-sdxl --mode throughput", "mode: goes without --train"),
        ("--model demo-sdxl --rank 8", "rank: goes with --train"),
        ("--train --model demo-sdxl --shape wide", "wide is no size, such as"),
    ],
)
def test_what_is_no_training_ends_with_2_and_one_line(
    plan: Callable[[str], tuple[int, str, str]], line: str, words: str
) -> None:
    code, out, err = plan(line)
    assert (code, out, len(err.splitlines())) == (2, "", 1)
    assert words in err


def test_nothing_that_is_asked_for_is_passed_over(plan: Callable[[str], tuple[int, str, str]], tmp_path: Path) -> None:
    code, _, err = plan(f"{ASKED} --output {tmp_path}/page.md")
    assert code == 2 and "say --matrix" in err
    code, _, err = plan(f"--train --matrix --output {tmp_path}/page.md --topology v6e-8 --full")
    assert code == 2 and "say --answers" in err and "topology: --matrix chooses" in err and "full: --matrix" in err
    (tmp_path / "other.jsonl").write_text('{"a": 1}\n', "utf-8")
    code, _, err = plan(f"{ASKED} --answers {tmp_path}/other.jsonl")
    assert code == 2 and "holds something else than answers of this command" in err


@pytest.mark.parametrize(("flags", "parts"), [("", 4), ("--strict", 1)])
def test_a_strict_plan_tries_no_more_parts_than_a_strict_training(
    plan: Callable[[str], tuple[int, str, str]], flags: str, parts: int
) -> None:
    found = read(plan(f"--train --model flux2-klein-9b --full --topology v6e-1 --batch 4 {flags} --json"))
    assert (found["fits"], found["accumulate"]) == (False, parts)


def test_the_page_of_one_model_ends_with_one_object(plan: Callable[[str], tuple[int, str, str]]) -> None:
    code, out, _ = plan("--train --matrix --model flux2-klein-9b --json")
    assert code == 0
    (found,) = json.loads(out)
    assert found["model"] == "flux2-klein-9b" and found["steps"] == 1000 and found["is_kept"]


def test_a_file_of_settings_is_planned_as_it_is(plan: Callable[[str], tuple[int, str, str]], tmp_path: Path) -> None:
    file = tmp_path / "training.toml"
    file.write_text(
        'model = "tiny"\ndata = "somewhere"\nlora = true\nrank = 3\nglobal_batch_size = 2\nsteps = 50\n'
        'optimizer = "lion"\n',
        "utf-8",
    )
    found = read(plan(f"--train --config {file} --topology cpu-1 --json"))
    assert (found["batch_size"], found["rank"], found["steps"], found["others"]) == (2, 3, 50, {"optimizer": "lion"})
    assert found["hbm_bytes"]["weights"] < read(plan(f"{ASKED} --batch 2 --json"))["hbm_bytes"]["weights"]
    file.write_text('model = "tiny"\nlora = true\nstart_from = "gone"\n', "utf-8")
    code, _, err = plan(f"--train --config {file} --topology cpu-1")
    assert code == 2 and "start_from: there is no LoRA gone" in err
    file.write_text('model = "tiny"\nlora = true\nepochs = 3\n', "utf-8")
    code, _, err = plan(f"--train --config {file} --topology cpu-1")
    assert code == 2 and "epochs: there are no pictures here to count" in err


@pytest.mark.parametrize(("expert", "rounds"), [(None, 2), ("both", 2), ("high", 1)])
def test_of_two_experts_both_are_counted(expert: Any, rounds: int) -> None:
    settings = TrainingSettings(model="wan2.2-a14b", lora=True, expert=expert)
    assert count_rounds(settings, load_catalog().get("wan2.2-a14b")) == rounds

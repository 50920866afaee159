"""`train --check` finds what would fail later or do nothing before a weight is read; an error is JSON with --json."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest

from pipelines.__main__ import main
from pipelines.commands.train import DEMO_RATE, choose_rate, find_model, tell_how_to_go_on
from pipelines.errors import RecipeError
from pipelines.files.video import write_mp4
from pipelines.models.catalog import PRESETS_DIR, load_catalog
from pipelines.recipes.recipe import Recipe
from pipelines.runtime.devices import hosts
from pipelines.training.settings import TrainingSettings
from tests.pipelines.training.zorb import make


@pytest.fixture(name="data", scope="module")
def make_data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make(tmp_path_factory.mktemp("data") / "zorb", count=2, side=64)


def check(data: Path, tmp_path: Path, *words: str) -> int:
    model = [] if words and not words[0].startswith("-") else ["demo-sdxl"]
    return main(["train", *model, *words, "--data", str(data), "--check", "--data-dir", str(tmp_path / "own")])


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--lora", "--name", "../evil"), "name: '../evil' is no file's name"),
        (("--lora", "--name", ".hidden"), "is no file's name"),
        (("--lora", "--name", ""), "is no file's name"),
        (("--lora", "--name", "n" * 300), "is too long"),
        (("--lora", "--output", __file__), "cannot be a folder"),
        (("--full", "--name", "SDXL base"), "would be the model sdxl-base"),
        (("--full", "--name", "!!"), "has neither letters nor digits"),
        (("--full", "--non-ema-revision", "main"), "is of a hub repository"),
        (("--lora", "--revision", "main"), "revision: is of a hub repository"),
        (("--lora", "--non-ema-revision", "main"), "the weights that it is used with"),
        (("--lora", "--sample", ""), "a prompt is empty"),
        (("--lora", "--sample", "a" * 100_000), "cannot be made"),
        (("--lora", "--targets", "("), "is no regular expression"),
        (("--lora", "--targets", "nothing"), "names none of"),
        (("--lora", "--sigmas", "uniform"), "is of flow models"),
        (("--lora", "--expert", "both"), "has one denoiser"),
        (("--lora", "--frames", "5"), "is of videos"),
        (("demo-wan", "--lora", "--resolution", "104", "--no-buckets"), "104 is no multiple of 16"),
        (("demo-flux2", "--lora", "--snr-gamma", "5"), "is a flow model"),
        (("m" * 5000, "--lora"), "There is no model"),
        (("~nosuchuser/model", "--lora"), "There is no model"),
        (("wan2.1-i2v-14b", "--lora"), "starts from a picture"),
        (("wan2.1-flf2v-14b", "--lora"), "starts from a picture"),
        (("wan2.2-i2v-a14b", "--lora"), "starts from a picture"),
        (("--lora", "--rank", "many"), "--rank"),
    ],
)
def test_what_would_fail_later_or_do_nothing_is_found_by_check(
    data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], words: tuple[str, ...], said: str
) -> None:
    assert check(data, tmp_path, *words, "--json") in (1, 2)
    told = capsys.readouterr()
    assert said in told.err
    end = json.loads(told.out.splitlines()[-1])
    assert end["event"] == "error" and said in end["error"]


def test_check_leaves_no_folder(data: Path, tmp_path: Path) -> None:
    assert check(data, tmp_path, "--lora", "--output", str(tmp_path / "a" / "b")) == 0
    assert not (tmp_path / "a").exists()


def test_a_folder_with_a_model_that_was_not_trained_there_is_no_output(
    data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    mine = shutil.copytree(PRESETS_DIR / "demo" / "demo-sdxl", tmp_path / "mine")
    other = ["--full", "--output", str(mine)]
    assert check(data, tmp_path, *other) == 2
    assert "holds a model that no training here has made" in capsys.readouterr().err
    assert check(data, tmp_path, str(mine), *other) == 2
    assert "is the model that it learns from" in capsys.readouterr().err
    settings = TrainingSettings(model="m", data=("d",), full=True).model_dump_json()
    (mine / "settings.json").write_text(settings, "utf-8")
    assert check(data, tmp_path, *other) == 0
    assert check(data, tmp_path, str(mine), *other) == 2


def test_a_trainings_folder_among_the_data_is_refused(
    data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    mine = make(tmp_path / "mine", count=2, side=64)
    for place in (mine, mine / "out"):
        assert check(mine, tmp_path, "--lora", "--output", str(place)) == 2
        assert "choose another folder" in capsys.readouterr().err
    (mine / "out").mkdir()
    settings = TrainingSettings(model="m", data=("d",), lora=True).model_dump_json()
    (mine / "out" / "settings.json").write_text(settings, "utf-8")
    for words in (["--lora"], ["--lora", "--data", str(data)]):
        assert check(mine, tmp_path, *words) == 2
        assert "is the folder of a training" in capsys.readouterr().err
    assert check(data, tmp_path, "--lora", "--validate", str(mine)) == 2


def test_a_models_folder_anywhere_can_learn(data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert check(data, tmp_path, str(PRESETS_DIR / "demo" / "demo-sdxl"), "--lora", "--json") == 0
    assert json.loads(capsys.readouterr().out)["model"] == "demo-sdxl"
    assert check(data, tmp_path, str(data), "--lora") == 2
    assert "is not a complete diffusers checkpoint" in capsys.readouterr().err


def test_prodigy_finds_the_rate_of_small_models_by_itself() -> None:
    model = load_catalog().get("demo-sdxl")
    asked = TrainingSettings(model=model.id, data=("d",), lora=True)
    assert choose_rate(asked, model).rate == DEMO_RATE
    assert choose_rate(asked.model_copy(update={"optimizer": "prodigy"}), model).rate == 1.0
    assert choose_rate(asked.model_copy(update={"learning_rate": 1e-5}), model).rate == 1e-5


def test_a_single_file_anywhere_is_known_by_its_names(tmp_path: Path) -> None:
    file = tmp_path / "mine.safetensors"
    file.write_bytes(b"no weights")
    with pytest.raises(RecipeError, match="truncated or not a safetensors file"):
        find_model(load_catalog(), str(file))


def test_a_resolution_leaves_clips_their_frames(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    frames = np.random.default_rng(0).integers(0, 256, (20, 96, 96, 3), np.uint8)
    (tmp_path / "clips").mkdir()
    write_mp4(tmp_path / "clips" / "a.mp4", frames, Recipe(model="demo-wan", prompt="x", fps=8))
    words = ("demo-wan", "--lora", "--caption", "x", "--json", "--resolution", "128")
    for options in ((), ("--no-buckets",)):
        assert check(tmp_path / "clips", tmp_path, *words, *options) == 0
        plan = json.loads(capsys.readouterr().out.splitlines()[-1])
        assert plan["buckets"] == {"128x128x17": 1}


def test_a_host_that_is_left_says_where_the_same_command_goes_on_as_far_as_it_knows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert tell_how_to_go_on([tmp_path]) == "no state was saved; the same command begins anew."
    monkeypatch.setattr(hosts, "is_leader", lambda: False)  # and the folder is its own
    assert "goes on from the first host's state of step 8, or the one before it" in tell_how_to_go_on(
        [tmp_path], [4, 8]
    )
    assert "the first host's last state, if it has one, or begins anew" in tell_how_to_go_on([tmp_path])
    (tmp_path / "state" / "6").mkdir(parents=True)
    assert tell_how_to_go_on([tmp_path], [4, 8]) == "the same command goes on from step 6."

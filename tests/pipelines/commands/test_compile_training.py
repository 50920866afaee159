"""`compile --train`: the same options after `train` compile no step: a pack has the program of that very name."""

import json
from pathlib import Path
from typing import Any

import pytest

from pipelines.__main__ import main
from pipelines.runtime.programs.aot_packs import read_manifest
from tests.pipelines.training.zorb import make

TRAINING = ["tiny", "--lora", "--rank", "4", "--mesh", "dp=1", "--steps", "2", "--global-batch-size", "2"]

ENCODING = 3
"""Programs that a pack of steps does not have: they encode pictures and captions."""


def run(capsys: pytest.CaptureFixture[str], *words: str | Path) -> list[dict[str, Any]]:
    """The objects that a command prints."""
    capsys.readouterr()
    assert main([*map(str, words), "--json"]) == 0
    printed = capsys.readouterr().out.strip()
    if printed.startswith("{\n"):
        return [json.loads(printed)]
    return [json.loads(line) for line in printed.splitlines()]


def test_a_step_from_a_pack_is_not_compiled_and_learns(
    short_dir: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data = make(tmp_path / "zorb", count=2, side=64)
    told = ["--data", data, "--data-dir", short_dir]
    pack = tmp_path / "steps.pack"
    (packed,) = run(capsys, "compile", "--train", *TRAINING, *told, "--topology", "cpu-8", "--output", pack)
    assert packed["programs"] == ["train 64x64 none 1"]
    assert read_manifest(pack).model == "tiny, training"

    *events, end = run(capsys, "train", *TRAINING, *told, "--allow-cpu", "--output", tmp_path / "out", "--pack", pack)
    assert "compiling" not in [event["event"] for event in events]
    assert "from steps.pack" in " ".join(event["text"] for event in events if event["event"] == "note")
    assert end["compiles"] <= ENCODING  # none where another test of this run has encoded already
    assert end["loss"] > 0
    assert Path(end["output"]).is_file()


def test_without_data_sizes_and_batch_are_given(
    short_dir: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["compile", "--train", *TRAINING, "--data-dir", str(short_dir), "--topology", "cpu-1"]
    assert main([*words, "--shape", "nonsense", "--shape", "100x64", "--output", str(tmp_path / "a.pack")]) == 2
    assert "nonsense is no size" in capsys.readouterr().err
    assert main([*words, "--shape", "100x64", "--output", str(tmp_path / "a.pack")]) == 2
    assert "100x64: sides are multiples of 64" in capsys.readouterr().err
    (tmp_path / "a.pack").write_bytes(b"an earlier one")
    assert main([*words, "--global-batch-size", "3", "--accumulate", "3", "--mesh", "dp=2", "--topology", "cpu-8",
                 "--output", str(tmp_path / "a.pack")]) == 2  # fmt: skip
    said = capsys.readouterr().err
    assert "3 is no multiple of 2 devices times 3 parts" in said
    assert "a.pack will take the place of the pack that is there" in said
    told = ["--output", str(tmp_path / "a.txt"), "--topology", "v6e-7", "--optimizer", "schedule_free", "--ema", "0.9"]
    assert main([*words, *told]) == 2
    said = capsys.readouterr().err
    for text in ("should end in .pack", "there is no 'v6e-7'", "ema: schedule_free averages by itself"):
        assert text in said
    assert main([*words, "--start-from", "gone", "--output", str(tmp_path / "a.pack")]) == 2
    assert "start_from: there is no LoRA gone" in capsys.readouterr().err
    assert main([*words, "--expert", "both", "--targets", "nothing", "--output", str(tmp_path / "a.pack")]) == 2
    said = capsys.readouterr().err
    assert "expert: is of models with two experts" in said and "targets: names none of" in said
    assert main([*words, "--resolution", "100", "--output", str(tmp_path / "a.pack")]) == 2
    assert "resolution: 100x100: sides are multiples of 64" in capsys.readouterr().err
    assert main([*words, "--data", str(tmp_path), "--shape", "64x64"]) == 2
    assert "shape: sizes are those of the data" in capsys.readouterr().err
    assert main(["compile", "--train", "--model", "gone", "--lora", "--topology", "cpu-1"]) == 2
    assert "There is no model 'gone'" in capsys.readouterr().err

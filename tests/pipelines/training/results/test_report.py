"""The log of a training: lines of JSON, whatever was computed."""

import json
from pathlib import Path
from typing import Any

import pytest

from pipelines.training.results.report import Report


def refuse_constant(name: str) -> Any:
    raise AssertionError(f"{name} is no JSON")


def test_what_is_no_number_in_an_older_log_is_none_from_now_on(tmp_path: Path) -> None:
    log = tmp_path / "log.jsonl"
    log.write_text('{"event": "step", "step": 1, "loss": NaN}\n{"event": "step", "step": 2, "loss": 1.0}\n', "utf-8")
    with Report(log, None, first=1) as report:
        report.write({"event": "step", "step": 2, "loss": None})
    lines = [json.loads(line, parse_constant=refuse_constant) for line in log.read_text("utf-8").splitlines()]
    assert [(line["step"], line["loss"]) for line in lines] == [(1, None), (2, None)]


def test_no_line_has_what_is_no_json(tmp_path: Path) -> None:
    with Report(tmp_path / "log.jsonl", None, first=0) as report, pytest.raises(ValueError, match="not JSON compliant"):
        report.write({"event": "step", "step": 1, "loss": float("nan")})


def test_it_knows_what_was_done_after_a_step(tmp_path: Path) -> None:
    with Report(tmp_path / "log.jsonl", None, first=0) as report:
        report.write({"event": "sample", "step": 4})
        assert report.has("sample", 4)
        assert not report.has("sample", 4, count=2)
        assert not report.has("validation", 4)
        assert not report.has("sample", 2)

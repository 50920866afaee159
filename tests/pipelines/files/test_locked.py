"""A file that several change at once loses nothing, and every file of ours that is added to is held meanwhile."""

import json
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest

from pipelines.files.locked import hold_file
from pipelines.models.catalog import load_catalog
from pipelines.models.own_entries import append_entry, drop_entry
from pipelines.recipes import step_cache
from pipelines.recipes.step_cache import StepCache, StepCaches, Strength
from pipelines.runtime.weights.hub_pins import PINS_FILE, keep_pin, use_pins_file

COUNT = 24


def do_at_once(change: Callable[[int], object]) -> None:
    with ThreadPoolExecutor(8) as threads:
        list(threads.map(change, range(COUNT)))


def test_nobody_else_changes_a_file_that_is_held(tmp_path: Path) -> None:
    file = tmp_path / "new" / "count.txt"

    def count(_number: int) -> None:
        with hold_file(file):
            file.write_text(str(int(file.read_text("utf-8") if file.exists() else "0") + 1), "utf-8")

    do_at_once(count)
    assert file.read_text("utf-8") == str(COUNT)
    assert [entry.name for entry in file.parent.iterdir() if entry != file] == [".count.txt.lock"]


def test_what_fails_lets_the_file_go(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="no"), hold_file(tmp_path / "file"):
        raise ValueError("no")
    with hold_file(tmp_path / "file"):
        pass


def test_entries_that_are_added_and_removed_at_once_are_all_there(tmp_path: Path) -> None:
    file = tmp_path / "models.toml"
    do_at_once(lambda number: append_entry(file, {"id": f"model-{number}"}))
    assert file.read_text("utf-8").count("[[model]]") == COUNT
    do_at_once(lambda number: drop_entry(file, f"model-{number}"))
    assert "[[model]]" not in file.read_text("utf-8")


def test_step_caches_and_commits_that_are_found_at_once_are_all_kept(tmp_path: Path) -> None:
    strength = Strength(threshold=0.1, most=2)
    found = StepCache(ratios=((1.0, 0.9),), mild=strength, strong=strength)
    do_at_once(lambda number: step_cache.keep(tmp_path / "caches.json", f"model-{number}", found))
    assert len(StepCaches.read(tmp_path / "caches.json").of_model) == COUNT
    use_pins_file(tmp_path / PINS_FILE)
    models = [replace(load_catalog().models[0], repo=f"a/{number}", revision="") for number in range(COUNT)]
    do_at_once(lambda number: keep_pin(models[number], tmp_path / f"{number:040x}"))
    assert len(json.loads((tmp_path / PINS_FILE).read_text("utf-8"))) == COUNT

"""A repository without a commit in the catalogue is used at that of its first download from then on."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from pipelines.models.catalog import load_catalog
from pipelines.runtime.weights.hub_pins import PINS_FILE, choose_revision, keep_pin, use_pins_file
from tests.hub import COMMIT, REPO, make_environment, run_hub
from tests.places import ROOT

OTHER = "f" * 40


def test_what_the_catalogue_names_comes_first_then_what_was_found(tmp_path: Path) -> None:
    models = load_catalog()
    open_one, pinned = models.get("flux2-klein-base-4b"), models.get("flux2-klein-4b")
    use_pins_file(tmp_path / PINS_FILE)
    assert choose_revision(open_one) == "main"
    keep_pin(open_one, tmp_path / "no-commit")
    keep_pin(pinned, tmp_path / OTHER)
    assert not (tmp_path / PINS_FILE).exists()
    keep_pin(open_one, tmp_path / COMMIT)
    keep_pin(open_one, tmp_path / OTHER)
    assert (choose_revision(open_one), choose_revision(pinned)) == (COMMIT, pinned.revision)


@pytest.mark.parametrize("content", ["", "[]", '{"a/b": 3}', '{"a/b": "main"}'])
def test_a_damaged_file_of_commits_ends_nothing(tmp_path: Path, content: str) -> None:
    use_pins_file(tmp_path / PINS_FILE)
    (tmp_path / PINS_FILE).write_text(content, "utf-8")
    assert choose_revision(load_catalog().get("flux2-klein-base-4b")) == "main"


@pytest.mark.process
def test_the_first_download_notes_its_commit(tmp_path: Path) -> None:
    entry = f'[[model]]\nid = "own"\nlike = "sdxl-base"\nvariant = "fp16"\nrepo = "{REPO}"\nrevision = ""\n'
    (tmp_path / "models.toml").write_text(entry, "utf-8")

    def run(*words: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "pipelines", "models", *words, "--data-dir", str(tmp_path)]
        return subprocess.run(command, env=make_environment(hub, tmp_path), cwd=ROOT, capture_output=True, text=True)

    with run_hub() as hub:
        done = run("download", "own")
        assert done.returncode == 0, done.stderr
        assert json.loads((tmp_path / PINS_FILE).read_text("utf-8")) == {REPO: COMMIT}
        hub.asked.clear()
        assert run("download", "own").returncode == 0
        assert not any("/revision/main" in path for _, path, _ in hub.asked)

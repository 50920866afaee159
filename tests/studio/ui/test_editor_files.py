"""Importing the page writes nothing for editors, which takes Gradio a third of its import."""

import importlib
import sys
from pathlib import Path

import pytest

from studio.ui.editor_files import without_editor_files

COMPONENT = "from gradio.components import Component\n\n\nclass {name}(Component):\n    EVENTS = []\n"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.syspath_prepend(tmp_path)
    return tmp_path


def define(folder: Path, name: str) -> Path:
    """Imports a new component; returns the file that Gradio would write for editors."""
    (folder / f"{name}.py").write_text(COMPONENT.format(name=name.title()), "utf-8")
    importlib.invalidate_caches()
    importlib.import_module(name)
    del sys.modules[name]
    return folder / f"{name}.pyi"


def test_a_component_gets_no_file_for_editors(folder: Path) -> None:
    with without_editor_files():
        assert not define(folder, "quickly").exists()
    assert define(folder, "slowly").exists()  # or there is nothing to do without

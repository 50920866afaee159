"""A file is written whole or not at all, and everybody who writes a file of ours does it this way."""

import ast
import errno
import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from pipelines.files.whole import PRIVATE, forget_parts, put_whole, write_whole
from tests.places import ROOT

WRITES = {"write_text", "write_bytes", "save_file", "mkstemp", "NamedTemporaryFile"}
# Who writes a file otherwise, and why a torn one hurts nobody.
OTHERS = {
    "pipelines/files/whole.py": "the one that does it",
    "pipelines/runtime/programs/compiled.py": "a cache's index: renamed into place, and made again where it is torn",
    "pipelines/models/model_arrivals.py": "the start of a file, looked at in a folder that vanishes",
    "pipelines/runtime/sampling/preview.py": "a developer's command",
    "pipelines/plan/": "answers of a compiler, made again; renamed into place",
    "pipelines/runtime/weights/sharded_copies.py": "a copy of weights: flushed and renamed by its own loop",
    "studio/library/archive.py": "a zip that streams to a browser",
    "pipelines/training/": "checkpoints: renamed into place after a flush of their own; the last step's may be lost",
    "pipelines/commands/": "where somebody at a terminal wants a file",
    "pipelines/demos/": "no product path",
    "studio/library/presets/__main__.py": "a developer's command",
    "studio/worker/lock.py": "the holder's number, only read for a message",
    "studio/hosting/backup.py": "in a folder that vanishes when the backup fails",
}


def test_the_content_is_there_with_its_permissions_and_nothing_beside_it(tmp_path: Path) -> None:
    file = tmp_path / "new" / "secret.key"
    write_whole(file, b"1", mode=PRIVATE)
    write_whole(file, b"2", mode=PRIVATE)
    assert file.read_bytes() == b"2"
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert [*file.parent.iterdir()] == [file]


@pytest.mark.parametrize("call", ["fsync", "replace"])
def test_a_disk_that_fills_up_leaves_what_was_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str) -> None:
    file = tmp_path / "users.json"
    write_whole(file, b"old")

    def fail(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, call, fail)
    with pytest.raises(OSError, match="No space left"):
        write_whole(file, b"new")
    assert file.read_bytes() == b"old"
    assert [*tmp_path.iterdir()] == [file]


def test_a_failed_writer_leaves_nothing(tmp_path: Path) -> None:
    with pytest.raises(ZeroDivisionError):
        put_whole(tmp_path / "clip.mp4", lambda part: part.write_bytes(bytes(1 // 0)))
    assert not [*tmp_path.iterdir()]


def test_what_a_killed_process_left_is_swept_and_nothing_else(tmp_path: Path) -> None:
    for name in (".users.1a2b.part.json", ".secret.ffff.part.key", "users.json", ".lumesh"):
        (tmp_path / name).touch()
    forget_parts(tmp_path)
    assert sorted(file.name for file in tmp_path.iterdir()) == [".lumesh", "users.json"]


def test_every_file_of_ours_is_written_whole() -> None:
    sources = [*(ROOT / "studio").rglob("*.py"), *(ROOT / "pipelines").rglob("*.py"), ROOT / "app.py"]
    assert len(sources) > 200
    places = {
        file.relative_to(ROOT).as_posix(): [*_list_writes(ast.parse(file.read_text("utf-8")))] for file in sources
    }
    torn = {place: lines for place, lines in places.items() if lines and not place.startswith(tuple(OTHERS))}
    assert not torn, "use pipelines/files/whole.py"
    assert all(any(lines and place.startswith(other) for place, lines in places.items()) for other in OTHERS)


def _list_writes(tree: ast.AST) -> Iterator[int]:
    wholes = {
        id(inside)
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "put_whole"
        for inside in ast.walk(node)
    }
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call) or id(node) in wholes:
            continue
        name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
        modes = [one.value for one in (*node.args, *(k.value for k in node.keywords)) if isinstance(one, ast.Constant)]
        opens = name == "open" and any(str(mode) in ("w", "wb", "x", "w+", "wt") for mode in modes)
        if name in WRITES or opens:
            yield node.lineno

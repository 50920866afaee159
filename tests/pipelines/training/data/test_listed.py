"""A metadata file speaks for its folder: each of its lines is read or told, and so is what it does not name."""

import json
from pathlib import Path

import pytest

from pipelines.training.data.sources import read_examples
from tests.pipelines.training.data.pictures import read_well, write_picture


def write_lines(folder: Path, *lines: object) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / "metadata.jsonl"
    file.write_text("\n".join(map(json.dumps, lines)), "utf-8")
    return file


def test_pictures_in_subfolders_that_it_does_not_name_are_told(tmp_path: Path) -> None:
    for name in ("a.png", "b.png", "sub/c.png", "sub/deep/d.jpg", ".trash/e.png"):
        write_picture(tmp_path / name)
    (tmp_path / "sub" / "f.heic").write_bytes(b"x")
    (tmp_path / "sub" / "again").symlink_to(tmp_path)
    write_lines(tmp_path, {"file_name": "./a.png", "text": "x"})
    found = read_well(tmp_path)
    assert [one.id for one in found.examples] == ["a.png"]
    (note,) = found.notes
    assert note.endswith("not used: b.png, sub/c.png, sub/deep/d.jpg, sub/f.heic.")


def test_texts_beside_pictures_that_it_names_are_told(tmp_path: Path) -> None:
    write_picture(tmp_path / "a.png", text="from the text")
    write_lines(tmp_path, {"file_name": "a.png", "text": "from the table"})
    found = read_well(tmp_path)
    assert found.examples[0].captions == ("from the table",)
    assert "a.txt" in found.notes[0]


def test_one_bad_name_does_not_hide_the_others_and_none_is_shown_whole(tmp_path: Path) -> None:
    bad = ["n" * 5000, "nul\0.png", "\ud800.png", "nope.png", "..\\a.png", "C:\\a.png", "/etc/passwd"]
    write_picture(tmp_path / "a.png", text=None)
    write_lines(tmp_path, *({"file_name": name, "text": "x"} for name in bad), {"file_name": "a.png", "text": "x"})
    found = read_examples([tmp_path])
    assert [one.id for one in found.examples] == ["a.png"]
    assert len(found.problems) == len(bad)
    for number, problem in enumerate(found.problems, 1):
        assert problem.startswith(f"metadata.jsonl:{number} ")
        assert len(problem) < 300
        problem.encode()
        assert problem.isprintable()
    assert ["leads out" in problem for problem in found.problems] == [False] * 4 + [True] * 3


def test_paths_as_windows_writes_them_are_found(tmp_path: Path) -> None:
    write_picture(tmp_path / "sub" / "a.png")
    write_lines(tmp_path, {"file_name": "sub\\a.png", "text": "x"})
    found = read_well(tmp_path)
    assert [one.id for one in found.examples] == ["sub/a.png"] and not found.notes


@pytest.mark.parametrize("name", ["metadata.jsonl", "metadata.csv"])
def test_an_empty_one_is_refused_as_that(tmp_path: Path, name: str) -> None:
    write_picture(tmp_path / "a.png", text="x")
    (tmp_path / name).write_text("\n" if name.endswith("jsonl") else "file_name,text\n")
    (problem,) = read_examples([tmp_path]).problems
    assert problem.startswith(f"{name} names no pictures.")


def test_a_text_with_a_comma_outside_quotes_is_refused_by_its_line(tmp_path: Path) -> None:
    write_picture(tmp_path / "a.png")
    write_picture(tmp_path / "b.png")
    table = tmp_path / "metadata.csv"
    table.write_text('file_name,text\nb.png,"two\nlines",\n\na.png,A zorb, with comma\n')
    (problem,) = read_examples([tmp_path], trigger="sks").problems
    assert problem.startswith("metadata.csv:5 ") and "quotes" in problem
    table.write_text('file_name,text\na.png,"A zorb\nb.png,z\n')
    (problem,) = read_examples([tmp_path], trigger="sks").problems
    assert problem == "metadata.csv:2 cannot be read: its quotes are not closed. Mend this line."


def test_a_table_without_the_column_of_names_is_told_once(tmp_path: Path) -> None:
    write_picture(tmp_path / "a.png")
    (tmp_path / "metadata.csv").write_text("file_name;text\na.png;x\na.png;y\n")
    (problem,) = read_examples([tmp_path], trigger="sks").problems
    assert "has no column file_name; it has file_name;text." in problem


def test_a_table_without_the_column_of_captions_names_those_that_it_has(tmp_path: Path) -> None:
    write_picture(tmp_path / "a.png")
    write_lines(tmp_path, {"file_name": "a.png", "caption": "a cat", "tags": ["x"]})
    (missing, columns) = read_examples([tmp_path]).problems
    assert "1 picture has no caption: a.png." in missing
    assert "has no column text" in columns and "it has caption, tags." in columns and "--caption_column" in columns
    found = read_well(tmp_path, trigger="sks")
    assert found.notes == (columns,), "filled, but not with what the table says"
    assert read_well(tmp_path, caption_column="caption").examples[0].captions == ("a cat",)
    write_lines(tmp_path, {"file_name": "a.png"})
    assert not read_well(tmp_path, trigger="sks").notes

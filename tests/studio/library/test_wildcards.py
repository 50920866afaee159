"""Wildcards: found by name, read line by line, and never a file outside their folder."""

from pathlib import Path

import pytest

from pipelines.errors import RecipeError
from studio.library import wildcards
from studio.library.wildcards import (
    MAX_BYTES,
    WildcardError,
    delete_wildcard,
    find_wildcard,
    list_wildcards,
    read_wildcard,
    save_wildcard,
)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / "wildcards"
    (folder / "places").mkdir(parents=True)
    (folder / "animals.txt").write_text("# of the farm\ncat\n\n  dog  \n", "utf-8")
    (folder / "places" / "cities.txt").write_text("Oslo\nZürich\n", "utf-8")
    (folder / "empty.txt").touch()
    (folder / "huge.txt").write_bytes(b"x\n" * MAX_BYTES)
    (folder / "two words.txt").write_text("x", "utf-8")
    (tmp_path / "secret.txt").write_text("secret", "utf-8")
    return folder


def test_lists_are_named_by_their_files(folder: Path) -> None:
    assert list_wildcards(folder) == {"animals": 2, "empty": 0, "places/cities": 2}
    assert list_wildcards(folder / "nothing") == {}


def test_a_list_that_cannot_be_read_does_not_hide_the_others(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def read_text(file: Path, *_arguments: str, **_options: str) -> str:
        if file.name == "animals.txt":
            raise PermissionError(13, "Permission denied")
        return file.read_bytes().decode()

    monkeypatch.setattr(Path, "read_text", read_text)
    assert list_wildcards(folder) == {"empty": 0, "places/cities": 2}


def test_a_list_is_its_lines_without_remarks(folder: Path) -> None:
    assert read_wildcard(folder, "animals") == ["cat", "dog"]
    assert read_wildcard(folder, "places/cities") == ["Oslo", "Zürich"]


@pytest.mark.parametrize(
    "name", ["../secret", "/etc/passwd", "places/../../secret", "huge", "nothing", "two words", ""]
)
def test_nothing_else_can_be_named(folder: Path, name: str) -> None:
    with pytest.raises(RecipeError, match="there is no wildcard"):
        read_wildcard(folder, name)


def test_an_unknown_or_empty_list_says_what_there_is(folder: Path) -> None:
    with pytest.raises(RecipeError, match="wildcards here: animals, empty, places/cities"):
        read_wildcard(folder, "fish")
    with pytest.raises(RecipeError, match="is empty"):
        read_wildcard(folder, "empty")


def test_a_list_is_kept_as_it_came_and_used_by_its_options(folder: Path) -> None:
    lines = ["# of the sea", " whale ", "", "Tümmler"]
    assert save_wildcard(folder, "sea/animals", lines) == 2
    assert read_wildcard(folder, "sea/animals") == ["whale", "Tümmler"]
    assert find_wildcard(folder, "sea/animals") == ["# of the sea", "whale", "", "Tümmler"]
    assert save_wildcard(folder, "sea/animals", ["squid"]) == 1
    assert read_wildcard(folder, "sea/animals") == ["squid"]
    assert [file.name for file in (folder / "sea").iterdir()] == ["animals.txt"]


@pytest.mark.parametrize(
    "name", ["../secret", "/etc/passwd", "a/../b", "two words", "", ".hidden", "a//b", "a/", "x" * 81, "ümlaut", "a\0b"]
)
def test_a_name_that_could_be_something_else_names_no_list(folder: Path, name: str) -> None:
    with pytest.raises(WildcardError, match="cannot name a wildcard"):
        save_wildcard(folder, name, ["x"])
    assert find_wildcard(folder, name) is None
    assert not delete_wildcard(folder, name)
    assert (folder.parent / "secret.txt").read_text() == "secret"


@pytest.mark.parametrize("line", ["two\nlines", "a\rb", "tab\there", "\x00", "\u2028", "\ud800"])
def test_an_option_is_one_line_of_plain_text(folder: Path, line: str) -> None:
    with pytest.raises(WildcardError, match="is not one line"):
        save_wildcard(folder, "animals", ["fine", line])
    assert read_wildcard(folder, "animals") == ["cat", "dog"]


def test_a_list_that_is_too_long_or_one_too_many_changes_nothing(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(WildcardError, match="at most 1 are kept"):
        save_wildcard(folder, "animals", ["x" * 1000] * 1001)
    monkeypatch.setattr(wildcards, "MAX_LISTS", 3)
    with pytest.raises(WildcardError, match="3 wildcards already"):
        save_wildcard(folder, "fish", ["cod"])
    assert save_wildcard(folder, "animals", ["cow"]) == 1, "a list that is there may change"
    assert list_wildcards(folder) == {"animals": 1, "empty": 0, "places/cities": 2}


def test_a_deleted_list_takes_its_empty_folders_along(folder: Path) -> None:
    save_wildcard(folder, "a/b/c", ["x"])
    save_wildcard(folder, "a/d", ["x"])
    assert delete_wildcard(folder, "a/b/c")
    assert not (folder / "a" / "b").exists()
    assert list_wildcards(folder)["a/d"] == 1
    assert delete_wildcard(folder, "a/d")
    assert not (folder / "a").exists()
    assert folder.is_dir()
    assert not delete_wildcard(folder, "a/d")

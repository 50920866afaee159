"""Whatever lies in a folder of training data is read, or told by its name."""

from pathlib import Path

import pytest

from pipelines.training.data.sources import read_examples
from tests.pipelines.training.data.pictures import encode, make_picture, read_well, write_picture


def names_of(*paths: object, **options: object) -> list[str]:
    return [example.id for example in read_well(*paths, trigger="sks", **options).examples]


def find_note(folder: Path, words: str, **options: object) -> str:
    (note,) = [note for note in read_well(folder, trigger="sks", **options).notes if words in note]
    return note


@pytest.mark.parametrize("suffix", ["jfif", "jpe", "JIF", "mpo"])
def test_jpegs_under_their_other_names_are_read(tmp_path: Path, suffix: str) -> None:
    (tmp_path / f"a.{suffix}").write_bytes(encode(make_picture(), "JPEG"))
    assert names_of(tmp_path) == [f"a.{suffix}"]


@pytest.mark.parametrize("suffix", ["mpg", "mpeg", "wmv", "3gp", "flv", "MTS"])
def test_clips_of_every_kind_are_told_where_they_are_not_used(tmp_path: Path, suffix: str) -> None:
    write_picture(tmp_path / "a.png")
    (tmp_path / f"b.{suffix}").write_bytes(b"film")
    assert f"b.{suffix}" in find_note(tmp_path, "videos are not used")
    (problem,) = read_examples([tmp_path], trigger="sks", videos=True).problems
    assert problem.startswith(f"b.{suffix} cannot be used: ")


def test_pictures_of_kinds_that_are_not_read_are_refused_with_what_helps(tmp_path: Path) -> None:
    write_picture(tmp_path / "a.png")
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "b.ppm").write_bytes(b"P6")
    (problem,) = read_examples([tmp_path], trigger="sks").problems
    assert "sub/b.ppm" in problem and "iPhone" not in problem
    (tmp_path / "c.heic").write_bytes(b"x")
    (problem,) = read_examples([tmp_path], trigger="sks").problems
    assert "c.heic" in problem and "iPhone" in problem


def test_files_of_no_known_kind_and_texts_without_pictures_are_told_once_for_all_folders(tmp_path: Path) -> None:
    write_picture(tmp_path / "images" / "a.png")
    for name in ("images/a.json", "texts/a.txt", "more/b.npz", "Thumbs.db"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("x")
    assert find_note(tmp_path, "neither pictures nor texts").endswith(": images/a.json, more/b.npz.")
    assert find_note(tmp_path, "no picture of their name").endswith(": texts/a.txt.")


@pytest.mark.parametrize("name", ["0_dog", "00_scans"])
def test_a_folder_that_asks_for_no_repeats_is_refused(tmp_path: Path, name: str) -> None:
    write_picture(tmp_path / "a.png")
    write_picture(tmp_path / name / "b.png")
    for place in (tmp_path, tmp_path / name):
        (problem,) = read_examples([place], trigger="sks").problems
        assert name in problem and "no repeats" in problem


def test_pictures_with_several_captions_are_told_by_the_names_of_their_texts(tmp_path: Path) -> None:
    write_picture(tmp_path / "sub" / "a.png", text="A zorb.\n\nThe light is warm.\n")
    write_picture(tmp_path / "b.png", text="one line\n")
    write_picture(tmp_path / "c.png", text="the same\nthe same\n")
    note = find_note(tmp_path, "one is drawn each time")
    assert note.startswith("1 picture has several captions") and note.endswith(": the lines of sub/a.txt.")


@pytest.mark.parametrize("name", ["x-masklabel.png", "x_mask.jpg", "X-Mask.webp"])
def test_a_mask_beside_its_picture_is_not_learnt_and_told(tmp_path: Path, name: str) -> None:
    write_picture(tmp_path / name)
    assert names_of(tmp_path) == [name], "without its picture it is one"
    write_picture(tmp_path / "x.png", text="a cat")
    assert names_of(tmp_path) == ["x.png"]
    assert name in find_note(tmp_path, "masks")
    (tmp_path / name).with_suffix(".txt").write_text("a cat with a mask")
    assert sorted(names_of(tmp_path)) == sorted(["x.png", name])


@pytest.mark.parametrize(("pictures", "masks"), [(".", "masks"), (".", "Mask"), ("images", "masks")])
def test_a_folder_of_masks_is_not_learnt_and_told(tmp_path: Path, pictures: str, masks: str) -> None:
    for name in ("a", "b"):
        write_picture(tmp_path / pictures / f"{name}.jpg")
        write_picture(tmp_path / masks / f"{name}.png")
    assert sorted(names_of(tmp_path)) == sorted((Path(pictures) / name).as_posix() for name in ("a.jpg", "b.jpg"))
    assert f"{masks}/a.png, {masks}/b.png" in find_note(tmp_path, "masks by their names")
    assert names_of(tmp_path / masks) == ["a.png", "b.png"], "what is asked for by name is learnt"
    write_picture(tmp_path / masks / "venice.png")
    assert len(names_of(tmp_path)) == 5, "a folder of masks that people wear"

"""Every layout of training data is read, and everything that is wrong with it is told at once."""

import json
from pathlib import Path

import numpy as np
import pytest
from PIL import ExifTags, Image

from pipelines.files.video import write_mp4
from pipelines.recipes.recipe import Recipe
from pipelines.training.data.sources import Origin, read_examples
from tests.pipelines.training.data.pictures import encode, make_picture, read_well, write_picture


def captions_of(*paths: object, **options: object) -> dict[str, tuple[str, ...]]:
    return {example.id: example.captions for example in read_well(*paths, **options).examples}


def test_pictures_have_the_text_of_their_name_and_come_in_natural_order(tmp_path: Path) -> None:
    for name in ("10.png", "2.webp", "1.JPG", "b.bmp", "c.tiff", "d.avif", "e.jpeg"):
        write_picture(tmp_path / name, text=f"picture {name}")
    found = captions_of(tmp_path)
    assert [*found] == ["1.JPG", "2.webp", "10.png", "b.bmp", "c.tiff", "d.avif", "e.jpeg"]
    assert found["2.webp"] == ("picture 2.webp",)


def test_several_lines_are_alternatives_and_caption_files_are_read_too(tmp_path: Path) -> None:
    write_picture(tmp_path / "a.png", text="one\r\n\r\n| two\n|three\none\n")
    write_picture(tmp_path / "b.png")
    (tmp_path / "b.caption").write_bytes(b"\xef\xbb\xbfa caf\xc3\xa9")
    assert captions_of(tmp_path) == {"a.png": ("one", "two", "three"), "b.png": ("a café",)}


def test_folders_of_kohyas_layout_say_repeats_and_caption(tmp_path: Path) -> None:
    write_picture(tmp_path / "img" / "10_sks dog" / "a.png")
    write_picture(tmp_path / "img" / "10_sks dog" / "b.png", text="a dog runs")
    write_picture(tmp_path / "img" / "2024_trip" / "c.png", text="a beach")
    found = read_well(tmp_path).examples
    assert [(one.id, one.captions, one.repeats) for one in found] == [
        ("img/10_sks dog/a.png", ("sks dog",), 10),
        ("img/10_sks dog/b.png", ("a dog runs",), 10),
        ("img/2024_trip/c.png", ("a beach",), 1),
    ]
    alone = read_well(f"{tmp_path / 'img' / '10_sks dog'},repeats=3,prior").examples
    assert {(one.repeats, one.is_prior) for one in alone} == {(30, True)}


def test_a_folder_named_like_an_option_is_a_folder(tmp_path: Path) -> None:
    assert Origin.parse("pets,repeats=3,prior") == Origin(place="pets", repeats=3, is_prior=True)
    write_picture(tmp_path / "cats,prior" / "a.png", text="a cat")
    assert not read_well(tmp_path / "cats,prior").examples[0].is_prior
    assert read_well(f"{tmp_path / 'cats,prior'},prior").examples[0].is_prior


@pytest.mark.parametrize("kind", ["jsonl", "csv"])
def test_metadata_names_pictures_and_texts(tmp_path: Path, kind: str) -> None:
    for name in ("a.png", "sub/b.png", "left.png"):
        write_picture(tmp_path / name)
    rows = [{"file_name": "sub/b.png", "prompt": "a, \u201cb\u201d"}, {"file_name": "a.png", "prompt": "c"}]
    if kind == "jsonl":
        rows[1]["prompt"] = ["c", "d"]
        text = "\n".join(map(json.dumps, rows)) + "\n\n"
    else:
        text = '\ufefffile_name,prompt\nsub/b.png,"a, \u201cb\u201d"\na.png,c\n'
    (tmp_path / f"metadata.{kind}").write_text(text, "utf-8")
    found = read_well(tmp_path, caption_column="prompt")
    assert [(one.id, one.captions) for one in found.examples] == [
        ("sub/b.png", ("a, \u201cb\u201d",)),
        ("a.png", ("c", "d") if kind == "jsonl" else ("c",)),
    ]
    assert any("left.png" in note for note in found.notes)


def test_sizes_are_those_after_turning(tmp_path: Path) -> None:
    exif = Image.Exif()
    exif[ExifTags.Base.Orientation] = 6
    (tmp_path / "a.jpg").write_bytes(encode(make_picture(24, 16), "JPEG", exif=exif))
    example = read_well(tmp_path, trigger="sks").examples[0]
    assert (example.width, example.height, example.frames) == (16, 24, 1)
    assert example.content == example.reader.hash()


def test_hidden_files_circles_and_equal_stems_do_no_harm(tmp_path: Path) -> None:
    write_picture(tmp_path / "a.png", text="a cat")
    write_picture(tmp_path / "a.jpg")
    write_picture(tmp_path / "Dog.PNG")
    (tmp_path / "dog.txt").write_text("a dog")
    (tmp_path / "._a.png").write_bytes(b"mac")
    (tmp_path / ".DS_Store").write_bytes(b"mac")
    (tmp_path / "loop").symlink_to(tmp_path)
    assert captions_of(tmp_path) == {"a.jpg": ("a cat",), "a.png": ("a cat",), "Dog.PNG": ("a dog",)}
    twice = read_well(tmp_path, tmp_path).examples
    assert len({one.id for one in twice}) == len(twice) == 6


def test_a_missing_caption_is_given_by_the_command_or_refused_by_name(tmp_path: Path) -> None:
    write_picture(tmp_path / "a.png", text=" \n")
    write_picture(tmp_path / "b.png", text="own")
    assert captions_of(tmp_path, caption="a cat", trigger="sks") == {"a.png": ("a cat",), "b.png": ("own",)}
    assert captions_of(tmp_path, trigger="sks")["a.png"] == ("sks",)
    (problem,) = read_examples([tmp_path]).problems
    assert problem.startswith("1 picture has no caption: a.png.")
    (problem,) = read_examples([f"{tmp_path},prior"], caption="a cat", trigger="sks").problems
    assert "a.png" in problem and "1_dog" in problem
    tmp_path.rename(named := tmp_path.with_name("1_dog"))
    assert captions_of(f"{named},prior", trigger="sks")["a.png"] == ("dog",), "the advice helps"


def test_all_problems_are_told_at_once_and_by_name(tmp_path: Path) -> None:
    one, table = tmp_path / "one", tmp_path / "table"
    good = write_picture(one / "good.png", text="fine").read_bytes()
    write_picture(one / "silent.png")
    (one / "torn.png").write_bytes(good[: len(good) // 2])
    (one / "page.jpg").write_bytes(b"<html>")
    (one / "none.png").write_bytes(b"")
    (one / "lost.png").symlink_to(tmp_path / "nowhere.png")
    (one / "phone.HEIC").write_bytes(b"x")
    for name in ("torn", "page", "none"):
        (one / f"{name}.txt").write_text("text")
    (one / "good.caption").write_bytes(b"\xff\xfe")
    bomb = bytearray(encode(Image.new("1", (8, 8))))
    bomb[16:24] = (60_000).to_bytes(4) * 2
    (one / "bomb.png").write_bytes(bomb)
    (one / "bomb.txt").write_text("text")
    table.mkdir()
    lines = ["{", "[]", '{"text": "x"}', '{"file_name": "x.png"}', '{"file_name": "../one/good.png", "text": "x"}']
    (table / "metadata.jsonl").write_text("\n".join([*lines, '{"file_name": "x.png", "text": 5}']))
    (tmp_path / "empty").mkdir()
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes" / "readme.md").write_text("text")
    places = [one, table, tmp_path / "empty", tmp_path / "notes", tmp_path / "lost", "x,repeats=0", one / "good.png"]
    found = read_examples(places)
    told = "\n".join(found.problems)
    for name in ("torn.png", "page.jpg", "none.png", "bomb.png", "lost.png", "phone.HEIC", "good.caption"):
        assert name in told, name
    assert "1 picture has no caption: silent.png" in told
    for number in range(1, 7):
        assert f"metadata.jsonl:{number} " in told
    assert "empty is empty" in told
    assert "only 1 .md" in told
    assert f"no folder or file {tmp_path / 'lost'}" in told
    assert "x,repeats=0" in told and "is a single file" in told
    assert [example.id for example in found.examples] == ["good.png", "silent.png"]
    assert all(problem.endswith((".", "it.", "HEIC")) for problem in found.problems)


@pytest.mark.parametrize("place", ["", " ", ",repeats=3", "~nosuchuser/x", "x" * 3000, "no\0where"])
def test_places_that_cannot_be_are_told_and_hide_no_other(tmp_path: Path, place: str) -> None:
    write_picture(tmp_path / "a.png", text="a cat")
    found = read_examples([place, tmp_path], trigger="sks")
    assert [one.id for one in found.examples] == ["a.png"]
    (problem,) = found.problems
    assert ("is empty" in problem) == (not place.strip() or place.startswith(",")) and len(problem) < 300


def test_what_was_changed_is_told(tmp_path: Path) -> None:
    (tmp_path / "a.png").write_bytes(encode(Image.new("RGBA", (8, 8), (255, 0, 0, 9))))
    (tmp_path / "b.txt").write_text("alone")
    notes = read_well(tmp_path, trigger="sks").notes
    assert any("a.png" in note and "white" in note for note in notes)
    assert any("b.txt" in note for note in notes)


def write_clips(folder: Path) -> None:
    folder.mkdir(exist_ok=True)
    frames = np.random.default_rng(0).integers(0, 255, (10, 16, 32, 3), np.uint8)
    write_mp4(folder / "a.mp4", frames, Recipe(model="x", prompt="x", fps=8))
    stills = [Image.new("RGB", (20, 10), (at * 60, 0, 0)) for at in range(4)]
    (folder / "b.gif").write_bytes(encode(stills[0], "GIF", save_all=True, append_images=stills[1:], duration=250))
    (folder / "c.gif").write_bytes(encode(stills[0], "GIF"))


def test_clips_are_read_for_a_model_of_videos(tmp_path: Path) -> None:
    write_clips(tmp_path)
    write_picture(tmp_path / "d.png")
    found = read_well(tmp_path, trigger="sks", videos=True).examples
    sizes = [(one.id, one.width, one.height, one.frames, one.fps) for one in found]
    assert sizes == [
        ("a.mp4", 32, 16, 10, 8),
        ("b.gif", 20, 10, 4, 4),
        ("c.gif", 20, 10, 1, 0),
        ("d.png", 24, 16, 1, 0),
    ]
    pictures = read_well(tmp_path, trigger="sks")
    assert [one.id for one in pictures.examples] == ["c.gif", "d.png"], "a GIF of one frame is a picture"
    assert pictures.notes[0].endswith("learns pictures: a.mp4, b.gif.")


def test_a_folder_of_videos_is_nothing_for_a_model_of_pictures(tmp_path: Path) -> None:
    write_clips(tmp_path)
    (tmp_path / "c.gif").unlink()
    (problem,) = read_examples([tmp_path], trigger="sks").problems
    assert "holds only videos" in problem
    (tmp_path / "a.mp4").write_bytes((tmp_path / "a.mp4").read_bytes()[:900])
    (problem,) = read_examples([tmp_path], trigger="sks", videos=True).problems
    assert "a.mp4" in problem

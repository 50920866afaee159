"""Containers: texts come out of each kind, and what is torn, huge or made to do harm ends in one clear message."""

import io
import json
import zlib
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from pipelines.files.metadata import make_png_chunks
from pipelines.files.video import encode_animation, write_mp4
from pipelines.recipes.recipe import Recipe
from studio.library.foreign import containers
from studio.library.foreign.bounded import MAX_DEPTH
from studio.library.foreign.containers import MAX_BYTES, read_texts
from studio.library.foreign.errors import MetadataError, MetadataTooLargeError
from studio.library.foreign.found import ReadRecipe

Read = Callable[..., ReadRecipe]
Write = Callable[..., bytes]
Make = Callable[..., Recipe]
TEXT = "a boat\nSteps: 9, Seed: 4"


def save(picture: Image.Image, kind: str, **options: object) -> bytes:
    file = io.BytesIO()
    picture.save(file, kind, **options)
    return file.getvalue()


@pytest.fixture
def frames() -> np.ndarray:
    return np.random.default_rng(0).integers(0, 255, (9, 64, 96, 3), np.uint8)


def test_our_png_comes_back_as_it_was(read: Read, make_recipe: Make) -> None:
    recipe = make_recipe('a "red" boat\nwith лодка 🌅', negative_prompt="fog", seed=12, shape="320x192")
    found = read(save(Image.new("RGB", (8, 8)), "PNG", pnginfo=make_png_chunks(recipe)), model="sdxl-base")
    assert (found.recipe, found.source, found.unusable) == (recipe, "Lumesh", ())
    [note] = found.notes
    assert 'knows no "лодка"' in note


def test_our_video_comes_back_as_it_was(read: Read, make_recipe: Make, frames: np.ndarray, tmp_path: Path) -> None:
    recipe = make_recipe("boats; \\ = # sail\n🌅", model="clips", fps=12, flow_shift=4.0)
    write_mp4(tmp_path / "clip.mp4", frames, recipe)
    assert read((tmp_path / "clip.mp4").read_bytes()).recipe == recipe


@pytest.mark.parametrize("suffix", [".gif", ".webp"])
def test_our_animations_come_back_as_they_were(read: Read, make_recipe: Make, frames: np.ndarray, suffix: str) -> None:
    recipe = make_recipe("лодка " * 100, model="clips", fps=12)
    assert read(encode_animation(frames, recipe, suffix=suffix)).recipe == recipe


def test_a_recipe_of_another_studio_is_fitted(read: Read, make_recipe: Make) -> None:
    recipe = make_recipe(images=("upload-1", "upload-2"), model="flux2-klein-4b")
    stranger = recipe.model_copy(update={"model": "my-own-mix", "shape": "640x384", "steps": 400})
    content = save(Image.new("RGB", (8, 8)), "PNG", pnginfo=make_png_chunks(stranger))
    found = read(content, model="flux2-klein-4b", inputs=("upload-2",))
    assert (found.recipe.model, found.recipe.shape, found.recipe.steps) == ("flux2-klein-4b", "1280x768", None)
    assert found.recipe.images == ("upload-2",)
    assert [one.what for one in found.unusable] == ["Model my-own-mix", "Input pictures", "Steps: 400"]


def test_each_kind_of_png_chunk_is_read(write_png: Write, write_chunk: Write) -> None:
    packed = b"\0\1\0de\0Werte\0" + zlib.compress("größer".encode())
    chunk = write_chunk(b"iTXt", b"parameters" + packed)
    plain = write_png(prompt="é".encode("latin-1").decode("latin-1"), workflow=zlib.compress(b"packed"), other="unseen")
    content = plain[:33] + chunk + write_chunk(b"tEXt", b"dream\0caf\xe9") + plain[33:]
    assert read_texts(content) == {"parameters": "größer", "dream": "café", "prompt": "é", "workflow": "packed"}


def test_the_comment_of_a_gif_and_of_a_jpeg_is_read(read: Read) -> None:
    for kind in ("GIF", "JPEG"):
        assert read(save(Image.new("RGB", (8, 8)), kind, comment=TEXT.encode())).recipe.seed == 4


@pytest.mark.parametrize("kind", ["PNG", "JPEG", "WEBP", "GIF"])
def test_pictures_without_a_recipe_have_none(read: Read, encode_picture: Write, kind: str) -> None:
    assert read(encode_picture(kind=kind)) is None


def test_a_video_without_a_recipe_has_none(read: Read) -> None:
    box = len(b"xxxxftypisom").to_bytes(4) + b"ftypisom"
    assert read(box + (8).to_bytes(4) + b"moov") is None


@pytest.mark.parametrize(
    "content", [b"", b"hello\0", b"%PDF-1.7\xff", b"\x89PNG", b"RIFF\0\0\0\0WAVE", b"PK\3\4" + bytes(99)]
)
def test_other_files_are_told(content: bytes) -> None:
    with pytest.raises(MetadataError, match="not a PNG, JPEG, WebP, AVIF, GIF or MP4 file"):
        read_texts(content)


@pytest.mark.parametrize(
    ("content", "kind"),
    [
        (b"\xff\x0a" + bytes(20), "JPEG XL"),
        (b"\0\0\0\x18ftypheic\0\0\0\0mif1heic" + bytes(20), "HEIC"),
        (b"\x1a\x45\xdf\xa3" + bytes(20), "WebM or Matroska"),
        (b'<?xml version="1.0"?>\n<svg></svg>', "SVG"),
    ],
)
def test_kinds_that_are_not_read_are_named(content: bytes, kind: str) -> None:
    with pytest.raises(MetadataError, match=f"{kind} files cannot be read here"):
        read_texts(content)


@pytest.mark.parametrize(
    "words", ["a\u00a0boat", "\u5e06\u8239\u3000\u6d77", "a \U0001f468\u200d\U0001f469 boat", "\u200fa boat"]
)
def test_texts_may_have_any_letters(words: str) -> None:
    assert read_texts(f"{words}\n{TEXT}".encode()) == {"text": f"{words}\n{TEXT}"}


def test_exif_in_a_png_is_read(read: Read) -> None:
    exif = Image.Exif()
    exif[0x0112] = 1
    exif.get_ifd(0x8769)[0x9286] = b"UNICODE\0" + TEXT.encode("utf-16-be")
    assert read(save(Image.new("RGB", (8, 8)), "PNG", exif=exif)).recipe.seed == 4


def write_box(name: bytes, *bodies: bytes) -> bytes:
    body = b"".join(bodies)
    return (8 + len(body)).to_bytes(4) + name + body


@pytest.mark.parametrize("is_mov", [False, True])
def test_named_texts_of_a_video_are_read(is_mov: bool) -> None:  # noqa: FBT001
    """Ffmpeg writes such texts with `-movflags use_metadata_tags`; ComfyUI's own node for videos does so."""
    names = (b"encoder", b"prompt", b"com.example.workflow")
    keys = write_box(b"keys", bytes(4), len(names).to_bytes(4), *(write_box(b"mdta", name) for name in names))
    texts = [
        write_box(number.to_bytes(4), write_box(b"data", (1).to_bytes(4), bytes(4), b"%d" % number))
        for number in range(1, 5)
    ]
    meta = write_box(
        b"meta", *([] if is_mov else [bytes(4)]), write_box(b"hdlr", bytes(25)), keys, write_box(b"ilst", *texts)
    )
    moov = write_box(b"moov", meta if is_mov else write_box(b"udta", meta))
    assert read_texts(write_box(b"ftyp", b"isom") + moov) == {"prompt": "2", "workflow": "3"}


def test_a_packed_bomb_is_not_unpacked(write_png: Write) -> None:
    with pytest.raises(MetadataTooLargeError, match="The text in it has 4.0 MB or more"):
        read_texts(write_png(parameters=zlib.compress(bytes(10_000_000))))


@pytest.mark.parametrize("packed", [b"not zlib", zlib.compress(b"a text that is cut off" * 9)[:-9], b""])
def test_torn_packed_texts_are_told(write_png: Write, packed: bytes) -> None:
    with pytest.raises(MetadataError, match="This file is damaged"):
        read_texts(write_png(parameters=packed))


def test_of_texts_of_one_name_only_the_first_is_unpacked(write_png: Write, write_chunk: Write) -> None:
    again = write_chunk(b"zTXt", b"Parameters\0\0" + b"not even packed")
    content = write_png(parameters=zlib.compress(b"a boat"))
    assert read_texts(content[:-12] + again * 3 + content[-12:]) == {"parameters": "a boat"}


def test_huge_texts_and_files_are_told(write_png: Write) -> None:
    with pytest.raises(MetadataTooLargeError, match="has 5.0 MB or more"):
        read_texts(write_png(parameters="a" * 5_000_000))
    with pytest.raises(MetadataTooLargeError, match="at most 20 are read"):
        read_texts(bytes(MAX_BYTES + 1))
    assert read_texts(write_png(unknown="a" * 5_000_000)) == {}


def test_a_changed_or_cut_chunk_is_told(write_png: Write) -> None:
    content = write_png(parameters=TEXT)
    for broken in (content.replace(b"Seed: 4", b"Seed: 5"), content[:50]):
        with pytest.raises(MetadataError, match="This file is damaged"):
            read_texts(broken)


def test_a_broken_text_never_hides_a_good_one(read: Read, write_png: Write) -> None:
    content = write_png(parameters=TEXT, prompt="{}", comment=TEXT.replace("boat", "cat"))
    changed = content.replace(b"Seed: 4", b"Seed: 5", 1)  # the first one's check sum is wrong now
    found = read(changed)
    assert found.recipe.seed == 4
    assert [one.what for one in found.unusable] == ["The text 'parameters' in the file"]
    cut = read(content[:-20])
    assert cut.recipe.seed == 4
    assert [one.what for one in cut.unusable] == ["The rest of the file"]


def test_endless_rows_of_chunks_are_told(write_chunk: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(containers, "MAX_PARTS", 50)
    with pytest.raises(MetadataError, match="This file is damaged"):
        read_texts(b"\x89PNG\r\n\x1a\n" + write_chunk(b"abCd", b"") * 60)


@pytest.mark.parametrize(
    ("text", "detail"),
    [
        ("[" * 100_000, "it is not JSON"),
        ('{"a":' * 100_000, f"nested more than {MAX_DEPTH} levels"),
        ('{"a":' * (MAX_DEPTH + 1) + "1" + "}" * (MAX_DEPTH + 1), f"nested more than {MAX_DEPTH} levels"),
        ('{"a": NaN}', "NaN is not a number"),
        ('{"a": 1', "not complete JSON"),
        ('{"a": ' + "9" * 5000 + "}", "not complete JSON"),
        ('{"a": "' + "\\" * 99_999, "not complete JSON"),
        ("hello", "it is not JSON"),
        ("{}", "is required"),
    ],
    ids=lambda text: text[:12],
)
def test_hostile_json_is_told(read: Read, write_png: Write, text: str, detail: str) -> None:
    with pytest.raises(MetadataError, match=detail):
        read(write_png(lumesh=text))


def test_halves_of_characters_and_control_characters_go(read: Read, write_png: Write) -> None:
    values = {"positive_prompt": "a \ud83c boat\0\x1b[31m", "seed": 3}
    recipe = read(write_png(invokeai_metadata=json.dumps(values))).recipe
    assert recipe.prompt == "a \ufffd boat[31m"
    recipe.model_dump_json().encode()

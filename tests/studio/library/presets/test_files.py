"""Files of presets: what comes back is what went in, and what strangers send does no harm."""

import base64
import io
import json
import zipfile
from collections.abc import Callable
from typing import Any

import pytest
from PIL import Image

from studio.library.presets.files import (
    MAX_FILE_BYTES,
    MAX_PACK_BYTES,
    MAX_PACK_FILES,
    MAX_THUMBNAIL_PIXELS,
    name_file,
    read_file,
    take_thumbnail,
    write_document,
    write_pack,
)
from studio.library.presets.preset import PresetError, read_preset

Encode = Callable[..., bytes]
RECIPE = {"model": "demo-sdxl", "prompt": "A red sailboat"}


def document(**fields: Any) -> bytes:
    return json.dumps({"schema": 1, "title": "Boat", "recipe": RECIPE, **fields}).encode()


def data_url(picture: bytes, kind: str = "png") -> str:
    return f"data:image/{kind};base64,{base64.b64encode(picture).decode()}"


def pack(**names: bytes) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in names.items():
            archive.writestr(name, content)
    return file.getvalue()


def refuse(content: bytes) -> PresetError:
    with pytest.raises(PresetError) as caught:
        read_file(content)
    return caught.value


def test_loras_of_folders_and_experts_survive_too() -> None:
    loras = [{"ref": "wan/ink", "scale": -20.0, "expert": "high"}, {"ref": "wan/ink", "scale": 1.0, "expert": "low"}]
    (preset,) = read_file(document(recipe={**RECIPE, "loras": loras})).presets
    again = read_file(write_document(preset)).presets[0]
    assert again.recipe.to_recipe().to_json()["loras"] == loras
    assert "expert" not in json.dumps(
        read_file(document(recipe={**RECIPE, "loras": [{"ref": "a"}]})).presets[0].to_json()
    )


def test_a_preset_survives_its_file(encode_picture: Encode) -> None:
    fields = {"tags": ["sea", "dusk"], "author": "Ada", "licence": "CC0-1.0", "description": "Calm.\nVery."}
    recipe = {**RECIPE, "seed": 7, "steps": 9, "guidance_scale": 4, "shape": "320x192", "batch_size": 2}
    (preset,) = read_file(document(**fields, recipe=recipe, thumbnail=data_url(encode_picture("blue")))).presets
    again = read_file(write_document(preset)).presets[0]
    assert again.without_thumbnail() == preset.without_thumbnail()
    assert (again.tags, again.recipe.seed, again.description) == (("sea", "dusk"), 7, "Calm.\nVery.")
    with Image.open(io.BytesIO(take_thumbnail(again) or b"")) as picture:
        assert (picture.format, picture.size, dict(picture.getexif())) == ("WEBP", (60, 40), {})


def test_a_pack_gives_every_preset_back() -> None:
    presets = [read_preset(document(title=title)) for title in ("../../etc/passwd", "Boat", "Boat")]
    packed = write_pack(presets)
    assert list(read_file(packed).presets) == presets
    assert write_pack(presets) == packed
    names = zipfile.ZipFile(io.BytesIO(packed)).namelist()
    assert names == ["01-etc-passwd.lumesh.json", "02-boat.lumesh.json", "03-boat.lumesh.json"]


def test_a_title_names_a_file_in_letters_of_any_script_and_one_without_letters_too() -> None:
    assert name_file(read_preset(document(title="海の夕日"))) == "海の夕日.lumesh.json"
    assert name_file(read_preset(document(title="!?"))) == "preset.lumesh.json"


@pytest.mark.parametrize(
    ("fields", "at_fault"),
    [
        ({"recipe": {**RECIPE, "images": ["../../jobs.db"]}}, "recipe.images"),
        ({"recipe": {**RECIPE, "images": []}}, "recipe.images"),
        ({"recipe": {**RECIPE, "loras": [{"ref": "/etc/passwd"}]}}, "recipe.loras.0.ref"),
        ({"recipe": {**RECIPE, "loras": [{"ref": "..\\x"}]}}, "recipe.loras.0.ref"),
        ({"recipe": {**RECIPE, "loras": [{"ref": ".hidden"}]}}, "recipe.loras.0.ref"),
        ({"recipe": {**RECIPE, "loras": [{"ref": "a\u202eb"}]}}, "recipe.loras.0.ref"),
        ({"recipe": {**RECIPE, "loras": [{"ref": ""}]}}, "recipe.loras.0.ref"),
        ({"recipe": {**RECIPE, "loras": [{"ref": "x" * 256}]}}, "recipe.loras.0.ref"),
        ({"recipe": {**RECIPE, "loras": [{"ref": "a/../b"}]}}, "recipe.loras.0.ref"),
        ({"recipe": {**RECIPE, "loras": [{"ref": "a//b"}]}}, "recipe.loras.0.ref"),
        ({"recipe": {**RECIPE, "loras": [{"ref": "x", "expert": "middle"}]}}, "recipe.loras.0.expert"),
        ({"recipe": {**RECIPE, "loras": [{"ref": 7}]}}, "recipe.loras.0.ref"),
        ({"recipe": {**RECIPE, "loras": ["x"]}}, "recipe.loras.0"),
        ({"recipe": {**RECIPE, "loras": [{"ref": "x", "scale": "1"}]}}, "recipe.loras.0.scale"),
        ({"recipe": {**RECIPE, "loras": [{"ref": "x", "scale": 21}]}}, "recipe.loras.0.scale"),
        ({"recipe": {**RECIPE, "loras": [{"ref": "x", "path": "y"}]}}, "recipe.loras.0.path"),
        ({"recipe": {**RECIPE, "loras": [{"ref": "x"}] * 9}}, "recipe.loras"),
        ({"recipe": {**RECIPE, "model": "../../models/x"}}, "recipe.model"),
        ({"recipe": {**RECIPE, "model": "/abs"}}, "recipe.model"),
        ({"recipe": {**RECIPE, "shape": "../1x1"}}, "recipe.shape"),
        ({"recipe": {**RECIPE, "shape": "٣x٣"}}, "recipe.shape"),
        ({"recipe": {**RECIPE, "scheduler": "os.system"}}, "recipe.scheduler"),
        ({"recipe": {**RECIPE, "seed": "7"}}, "recipe.seed"),
        ({"recipe": {**RECIPE, "seed": 2**63}}, "recipe.seed"),
        ({"recipe": {**RECIPE, "steps": 10**9}}, "recipe.steps"),
        ({"recipe": {**RECIPE, "guidance_scale": float("nan")}}, "recipe.guidance_scale"),
        ({"recipe": {**RECIPE, "prompt": " \u200b\u202e "}}, "recipe.prompt"),
        ({"recipe": {**RECIPE, "prompt": "x" * 32_001}}, "recipe.prompt"),
        ({"recipe": None}, "recipe"),
        ({"title": ["Boat"]}, "title"),
        ({"title": ""}, "title"),
        ({"title": "x" * 81}, "title"),
        ({"tags": "sea"}, "tags"),
        ({"tags": ["t"] * 9}, "tags"),
        ({"source": {"repo": "../../x"}}, "source.repo"),
        ({"source": {"repo": "--flag/x"}}, "source.repo"),
        ({"source": {"repo": "me/x; rm -rf"}}, "source.repo"),
        ({"thumbnail": "/etc/passwd"}, "thumbnail"),
        ({"thumbnail": "https://example.com/a.png"}, "thumbnail"),
        ({"thumbnail": "data:image/svg+xml;base64,AAAA"}, "thumbnail"),
        ({"thumbnail": "data:image/png;base64,AAAAA"}, "thumbnail"),
        ({"thumbnail": data_url(b"GIF89a nothing")}, "thumbnail"),
        ({"thumbnail": data_url(bytes(600_000))}, "thumbnail"),
        ({"id": "sailboat-at-sunset"}, "id"),
        ({"origin": "shipped"}, "origin"),
        ({"__class__": "x"}, "__class__"),
    ],
)
def test_what_a_preset_may_not_say_is_refused_by_field(fields: dict[str, Any], at_fault: str) -> None:
    assert list(refuse(document(**fields)).fields) == [at_fault]


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"null",
        b"[]",
        b"hello",
        b"[" * 100_000,
        b'{"title": "\xff"}',
        b'{"title": "\\ud800"}',
        b"PK hello",
        b"\x89PNG",
    ],
    ids=["nothing", "null", "list", "text", "deep", "bytes", "surrogate", "torn pack", "picture"],
)
def test_what_is_no_preset_is_refused_with_a_message(content: bytes) -> None:
    error = refuse(content)
    assert error.detail
    assert error.title == "This preset cannot be used"


def test_a_newer_format_says_so() -> None:
    assert "another version" in refuse(document(schema=2, wonders=True)).detail


def test_a_file_that_is_too_long_is_refused() -> None:
    assert "more than 1 MB" in refuse(document(description="x" * MAX_FILE_BYTES)).detail


def test_a_thumbnail_of_too_many_pixels_is_never_decoded(encode_picture: Encode) -> None:
    side = int(MAX_THUMBNAIL_PIXELS**0.5) + 1
    bomb = encode_picture(size=(side, side), optimize=True)
    assert len(bomb) < 100_000
    assert f"{side} x {side} pixels" in refuse(document(thumbnail=data_url(bomb))).detail


def test_text_keeps_its_letters_and_loses_what_cannot_be_seen() -> None:
    preset = read_preset(
        document(
            title="<img src=x onerror=alert(1)>\n \u202eevil\u0000",
            tags=["#Sea", "sea ", "", "ﬁne"],
            recipe={**RECIPE, "prompt": "Cafe\u0301\r\nby night\u0007"},
        )
    )
    assert preset.title == "<img src=x onerror=alert(1)> evil"
    assert preset.tags == ("sea", "ﬁne")
    assert preset.recipe.prompt == "Café\nby night"


def test_a_packs_names_are_never_used_as_paths_and_its_other_files_are_named() -> None:
    found = read_file(
        pack(**{"../../evil.json": document(), "notes.txt": b"hello", "big.json": bytes(MAX_FILE_BYTES + 1)})
    )
    assert [preset.title for preset in found.presets] == ["Boat"]
    assert [(one.name, bool(one.detail)) for one in found.refused] == [("notes.txt", True), ("big.json", True)]


def test_a_zip_bomb_is_read_no_further_than_a_preset_may_be_long() -> None:
    bomb = pack(**{"bomb.json": bytes(200_000_000)})
    assert len(bomb) < 300_000
    assert "more than 1 MB" in refuse(bomb).detail


def test_packs_of_too_many_files_or_bytes_are_refused() -> None:
    many = pack(**{f"{number}.json": document() for number in range(MAX_PACK_FILES + 1)})
    assert "at most 100" in refuse(many).detail
    assert "more than 16 MB" in refuse(b"PK" + bytes(MAX_PACK_BYTES)).detail


def test_packs_with_a_password_a_lie_or_unusual_packing_are_refused() -> None:
    whole = bytearray(pack(**{"a.json": document()}))
    locked = bytearray(whole)
    locked[6] |= 1
    locked[locked.index(b"PK\x01\x02") + 8] |= 1
    assert "damaged or not a plain zip" in refuse(bytes(locked)).detail
    torn = bytearray(whole)
    torn[40] ^= 0xFF
    assert refuse(bytes(torn)).detail
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_LZMA) as archive:
        archive.writestr("a.json", document())
    assert "packed in a way" in refuse(file.getvalue()).detail
    assert "no preset in this pack" in refuse(pack()).detail

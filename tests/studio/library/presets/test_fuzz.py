"""Whatever comes as a preset or a pack: presets that are valid, or the one error for people; nothing else, ever."""

import base64
import io
import json
import warnings
import zipfile
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from PIL import Image

from studio.library.presets.files import read_file, take_thumbnail, write_document, write_pack
from studio.library.presets.preset import Preset, PresetError, read_preset

quick = settings(
    derandomize=True, deadline=None, max_examples=100, suppress_health_check=[HealthCheck.too_slow], database=None
)
DOCUMENT: dict[str, Any] = {
    "schema": 1,
    "kind": "lumesh.preset",
    "title": "Boat",
    "description": "Calm.",
    "author": "Ada",
    "tags": ["sea"],
    "licence": "CC0-1.0",
    "recipe": {"model": "demo-sdxl", "prompt": "A red sailboat", "shape": "256x256", "seed": 7, "steps": 9},
    "source": {"title": "Demo", "repo": "a/b"},
}
FIELDS = [*DOCUMENT, *DOCUMENT["recipe"], "thumbnail", "id", "guidance_scale", "batch_size", "loras", "images", "fps"]


def encode_picture(kind: str) -> bytes:
    file = io.BytesIO()
    Image.new("RGB", (6, 4), "teal").save(file, kind)
    return file.getvalue()


PICTURES = [encode_picture(kind) for kind in ("PNG", "JPEG", "WEBP")]
DOCUMENTS = [json.dumps(DOCUMENT).encode(), write_document(read_preset(json.dumps(DOCUMENT)))]
PACKS = [
    write_pack([read_preset(json.dumps({**DOCUMENT, "title": title})) for title in titles]) for titles in ("a", "abc")
]

leaves = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=20)
    | st.sampled_from(["demo-sdxl", "../x", "256x256", "9" * 400, "\ud800", "\u202e", "data:image/png;base64,AAAA"])
)
values = st.recursive(
    leaves,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.sampled_from(FIELDS), inner, max_size=5),
    max_leaves=12,
)


def read(content: bytes) -> None:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # pillow's, of pictures that are not quite right
            found = read_file(content)
    except PresetError as error:
        check_error(error.detail)
        assert all(error.fields.values())
        return
    assert found.presets
    for preset in found.presets:
        check_preset(preset)
    for refusal in found.refused:
        check_error(refusal.detail)


def check_error(detail: str) -> None:
    assert detail
    detail.encode()


def check_preset(preset: Preset) -> None:
    again = read_preset(write_document(preset))
    assert again == preset
    if (thumbnail := take_thumbnail(preset)) is not None:
        with Image.open(io.BytesIO(thumbnail)) as picture:
            assert picture.format == "WEBP"
            assert max(picture.size) <= 384


def change(content: bytes, changes: list[tuple[int, bytes]], end: int | None) -> bytes:
    changed = bytearray(content)
    for place, value in changes:
        start = place % max(len(content), 1)
        changed[start : start + len(value)] = value
    return bytes(changed[:end])


changes = st.lists(st.tuples(st.integers(0, 5000), st.binary(min_size=1, max_size=8)), max_size=5)
ends = st.none() | st.integers(0, 1500)


@quick
@given(content=st.binary(max_size=300), head=st.sampled_from([b"", b"PK\3\4", b"PK\5\6", b"{", b"[", b'{"title":']))
def test_any_bytes(content: bytes, head: bytes) -> None:
    read(head + content)


@quick
@given(value=values)
def test_any_json(value: Any) -> None:
    read(json.dumps(value).encode())


@quick
@given(
    top=st.dictionaries(st.sampled_from(FIELDS), values, max_size=3),
    inner=st.dictionaries(st.sampled_from(FIELDS), values, max_size=3),
)
def test_a_document_with_some_values_exchanged(top: dict[str, Any], inner: dict[str, Any]) -> None:
    read(json.dumps({**DOCUMENT, **top}).encode())
    read(json.dumps({**DOCUMENT, "recipe": {**DOCUMENT["recipe"], **inner}}).encode())


@quick
@given(document=st.sampled_from(DOCUMENTS), changes=changes, end=ends)
def test_changed_and_cut_documents(document: bytes, changes: list[tuple[int, bytes]], end: int | None) -> None:
    read(change(document, changes, end))


@quick
@given(pack=st.sampled_from(PACKS), changes=changes, end=ends)
def test_changed_and_cut_packs(pack: bytes, changes: list[tuple[int, bytes]], end: int | None) -> None:
    read(change(pack, changes, end))


@quick
@given(
    entries=st.lists(
        st.tuples(
            st.text(min_size=1, max_size=12).filter(lambda name: "\0" not in name and name.isprintable()),
            st.binary(max_size=40) | st.sampled_from(DOCUMENTS),
            st.sampled_from([zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2]),
        ),
        max_size=4,
    )
)
@pytest.mark.filterwarnings("ignore:Duplicate name")
def test_packs_of_anything(entries: list[tuple[str, bytes, int]]) -> None:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        for name, content, packing in entries:
            archive.writestr(name, content, packing)
    read(file.getvalue())


@quick
@given(picture=st.sampled_from(PICTURES), changes=changes, end=ends, kind=st.sampled_from(["png", "jpeg", "webp"]))
def test_changed_and_cut_thumbnails(
    picture: bytes, changes: list[tuple[int, bytes]], end: int | None, kind: str
) -> None:
    changed = base64.b64encode(change(picture, changes, end)).decode()
    read(json.dumps({**DOCUMENT, "thumbnail": f"data:image/{kind};base64,{changed}"}).encode())

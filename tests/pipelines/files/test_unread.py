"""Files that are not read are named by their kind, and no file that is read is taken for one of them."""

import io

import pytest
from PIL import Image, features

from pipelines.files.unread import name_kind


@pytest.mark.parametrize("kind", ["PNG", "JPEG", "WEBP", "GIF", "BMP", "TIFF", "AVIF"])
def test_what_is_read_has_no_name_here(kind: str) -> None:
    if kind == "AVIF" and not features.check("avif"):
        pytest.skip("this Pillow writes no AVIF")
    file = io.BytesIO()
    Image.new("RGB", (8, 8)).save(file, kind)
    assert name_kind(file.getvalue()) == ""


@pytest.mark.parametrize(
    ("brands", "kind"),
    [
        (b"heic\0\0\0\0mif1heic", "HEIC"),
        (b"mif1\0\0\0\0mif1heic", "HEIC"),
        (b"mif1\0\0\0\0mif1avif", ""),
        (b"avif\0\0\0\0mif1avif", ""),
        (b"isom\0\0\0\0isomavc1", ""),
    ],
)
def test_brands_tell_heic_from_avif_and_video(brands: bytes, kind: str) -> None:
    assert name_kind(b"\0\0\0\x20ftyp" + brands + bytes(50)) == kind


def test_a_short_file_or_a_text_is_of_no_kind() -> None:
    assert [name_kind(begin) for begin in (b"", b"\xff", b"a boat <svg", b"\xef\xbb\xbfa boat")] == ["", "", "", ""]

"""Pictures as people bring them: every kind of file becomes the RGB that its maker saw."""

import io
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image, ImageCms

from pipelines.errors import RecipeError
from pipelines.pictures.reading import (
    Picture,
    PictureError,
    PictureTooLargeError,
    measure_picture,
    open_picture,
    read_picture,
)

ON_WHITE = "Its transparent parts lie on white."


def encode(picture: Image.Image, kind: str = "PNG", **options: Any) -> bytes:
    file = io.BytesIO()
    picture.save(file, kind, **options)
    return file.getvalue()


def read(content: bytes) -> Picture:
    return read_picture(io.BytesIO(content))


def colour_of(content: bytes) -> tuple[int, ...]:
    picture = read(content).image
    assert picture.mode == "RGB"
    return picture.getpixel((3, 3))


@pytest.mark.parametrize("mode", ["1", "L", "LA", "P", "RGBA", "I;16"])
def test_every_kind_of_pixel_becomes_rgb(mode: str) -> None:
    pixels = np.full((8, 8), 0x8000 if mode == "I;16" else 128, np.uint16 if mode == "I;16" else np.uint8)
    grey = Image.fromarray(pixels)
    content = encode(grey if mode == "I;16" else grey.convert(mode, dither=Image.Dither.NONE))
    assert colour_of(content) == ((255,) * 3 if mode == "1" else (128,) * 3)


@pytest.mark.parametrize("kind", ["PNG", "TIFF"])
def test_sixteen_bits_of_grey_keep_their_ramp(kind: str) -> None:
    ramp = np.linspace(0, 65_535, 256).astype(np.uint16)[None].repeat(4, 0)
    found = np.asarray(read(encode(Image.fromarray(ramp), kind)).image)
    assert np.array_equal(found[0, :, 0], np.arange(256))


def make_rgb16_png(colour: tuple[int, int, int]) -> bytes:
    def chunk(kind: bytes, content: bytes) -> bytes:
        return len(content).to_bytes(4) + kind + content + zlib.crc32(kind + content).to_bytes(4)

    row = b"\0" + b"".join(value.to_bytes(2) for value in colour) * 8
    header = (8).to_bytes(4) * 2 + bytes([16, 2, 0, 0, 0])
    parts = chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(row * 8)) + chunk(b"IEND", b"")
    return b"\x89PNG\r\n\x1a\n" + parts


def test_sixteen_bits_of_colour_are_read() -> None:
    assert colour_of(make_rgb16_png((0xFFFF, 0x8000, 0x0123))) == (255, 128, 1)


@pytest.mark.parametrize("kind", ["PNG", "WEBP", "TIFF", "AVIF"])
def test_hidden_colours_never_show(kind: str) -> None:
    """Most drawing programs leave some colour where nothing is seen."""
    options = {} if kind in ("PNG", "TIFF") else {"lossless": True} if kind == "WEBP" else {"quality": 100}
    content = encode(Image.new("RGBA", (8, 8), (0, 255, 0, 0)), kind, **options)
    assert min(colour_of(content)) >= 254
    assert read(content).notes == (ON_WHITE,)


def test_hidden_colours_of_palettes_and_of_one_colour_that_counts_as_none_do_not_show_either() -> None:
    palette = Image.new("P", (8, 8), 1)
    palette.putpalette([0, 0, 0, 255, 0, 255])
    for content in (
        encode(palette, transparency=bytes([255, 0])),
        encode(Image.new("LA", (8, 8), (0, 0))),
        encode(Image.new("RGB", (8, 8), "lime"), transparency=(0, 255, 0)),
        encode(Image.fromarray(np.full((8, 8), 777, np.uint16)), transparency=777),
    ):
        assert colour_of(content) == (255, 255, 255)


def test_what_shines_through_half_is_mixed_with_white() -> None:
    assert colour_of(encode(Image.new("RGBA", (8, 8), (0, 0, 0, 128)))) == (127, 127, 127)


def test_a_picture_that_could_be_transparent_and_is_not_stays_as_it_is() -> None:
    picture = read(encode(Image.new("RGBA", (8, 8), (10, 20, 30, 255))))
    assert (picture.image.getpixel((0, 0)), picture.notes) == ((10, 20, 30), ())


def make_wide_profile() -> bytes:
    """An ICC profile of Display P3: sRGB's curve with the primaries of its specification (SMPTE EG 432-1)."""
    profile = bytearray(ImageCms.ImageCmsProfile(ImageCms.createProfile("sRGB")).tobytes())
    # The colorants of Display P3 at D50, as Apple's own profile has them, in s15Fixed16.
    colorants = {
        b"rXYZ": (0.51512, 0.2412, -0.00105),
        b"gXYZ": (0.29198, 0.69225, 0.04189),
        b"bXYZ": (0.1571, 0.06657, 0.78407),
    }
    for tag, values in colorants.items():
        place = profile.index(tag, 128)
        offset = int.from_bytes(profile[place + 4 : place + 8]) + 8
        profile[offset : offset + 12] = b"".join(round(value * 65_536).to_bytes(4, signed=True) for value in values)
    return bytes(profile)


@pytest.mark.parametrize("mode", ["RGB", "RGBA"])
def test_colours_of_another_space_become_srgb(mode: str) -> None:
    """The same green as in CSS: color(display-p3 0.2353 0.7059 0.3529) is rgb(0 183 78)."""
    content = encode(Image.new(mode, (8, 8), (60, 180, 90)), icc_profile=make_wide_profile())
    assert np.abs(np.subtract(colour_of(content), (0, 183, 78))).max() <= 1
    assert read(content).notes == ("Its colours were converted to sRGB.",)


def test_a_profile_that_is_srgb_moves_no_pixel() -> None:
    pixels = np.random.default_rng(0).integers(0, 255, (16, 16, 3), dtype=np.uint8)
    profile = ImageCms.ImageCmsProfile(ImageCms.createProfile("sRGB")).tobytes()
    picture = read(encode(Image.fromarray(pixels), icc_profile=profile))
    assert np.array_equal(np.asarray(picture.image), pixels)
    assert picture.notes == ()


@pytest.mark.parametrize("profile", [b"profile", make_wide_profile()])
def test_a_profile_that_fits_no_such_pixels_is_told_and_left_out(profile: bytes) -> None:
    picture = read(encode(Image.new("L", (8, 8), 128), icc_profile=profile))
    assert (picture.image.getpixel((0, 0)), len(picture.notes)) == ((128, 128, 128), 1)


@pytest.mark.parametrize("kind", ["TIFF", "JPEG"])  # in a JPEG they are inverted, as Adobe writes it
def test_print_colours_are_read(kind: str) -> None:
    content = encode(Image.new("CMYK", (8, 8), (0, 255, 255, 0)), kind)
    assert np.abs(np.subtract(colour_of(content), (255, 0, 0))).max() < 5


@pytest.mark.parametrize("kind", ["GIF", "WEBP", "PNG", "TIFF"])
def test_of_what_moves_the_first_frame_is_taken_and_told(kind: str) -> None:
    red, blue = (Image.new("RGB", (8, 8), colour) for colour in ("red", "blue"))
    content = encode(red, kind, save_all=True, append_images=[blue])
    assert np.abs(np.subtract(colour_of(content), (255, 0, 0))).max() <= 3
    assert read(content).notes == ("It has several frames or pages; the first one is used.",)


@pytest.mark.parametrize("kind", ["BMP", "GIF"])
def test_kinds_of_old_programs_are_read(kind: str) -> None:
    assert colour_of(encode(Image.new("RGB", (8, 8), "red"), kind)) == (255, 0, 0)


@pytest.mark.parametrize("kind", ["JPEG", "PNG", "WEBP", "TIFF", "AVIF"])
def test_a_photo_is_upright_and_measured_as_it_is_opened(tmp_path: Path, kind: str) -> None:
    exif = Image.Exif()
    exif[0x0112] = 6
    file = tmp_path / "photo"
    file.write_bytes(encode(Image.new("RGB", (60, 40), "red"), kind, exif=exif))
    assert measure_picture(file) == open_picture(file).size == (40, 60)


@pytest.mark.parametrize("kind", ["JPEG", "PNG"])
def test_a_large_photo_is_scaled_down_and_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    monkeypatch.setattr("pipelines.pictures.reading.MAX_KEPT_PIXELS", 2000)
    exif = Image.Exif()
    exif[0x0112] = 6
    file = tmp_path / "photo"
    file.write_bytes(encode(Image.linear_gradient("L").resize((81, 61)).convert("RGB"), kind, exif=exif))
    assert measure_picture(file) == open_picture(file).size == (31, 41)
    with file.open("rb") as stream:
        assert read_picture(stream).notes == ("It has 81 x 61 pixels and is used at 1/2 of its size.",)


def test_a_side_that_is_too_long_is_refused_however_few_pixels_there_are() -> None:
    with pytest.raises(PictureTooLargeError, match=r"It has 1 x 40000 pixels; a side may have 32768\. Cut it"):
        read(encode(Image.new("L", (1, 40_000))))


@pytest.mark.parametrize(("kind", "side_px"), [("WEBP", 70), ("PNG", 90), ("JPEG", 130)])
def test_what_takes_too_much_memory_is_refused_by_its_header(
    monkeypatch: pytest.MonkeyPatch, kind: str, side_px: int
) -> None:
    for name, pixels in (("MAX_WEBP_PIXELS", 4000), ("MAX_PIXELS", 6500), ("MAX_JPEG_PIXELS", 15_000)):
        monkeypatch.setattr(f"pipelines.pictures.reading.{name}", pixels)
    assert read(encode(Image.new("RGB", (side_px - 10, side_px - 10)), kind))
    with pytest.raises(PictureTooLargeError, match=f"It has {side_px} x {side_px} pixels. A JPEG may have"):
        read(encode(Image.new("RGB", (side_px, side_px)), kind))


def test_a_progressive_jpeg_is_held_as_a_whole_and_so_limited_like_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pipelines.pictures.reading.MAX_PIXELS", 6500)
    picture = Image.new("RGB", (90, 90))
    assert read(encode(picture, "JPEG"))
    with pytest.raises(PictureTooLargeError):
        read(encode(picture, "JPEG", progressive=True))


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "not a picture of a known kind. PNG, JPEG, WebP, AVIF, GIF, BMP and TIFF are read"),
        (b"a boat", "not a picture of a known kind"),
        (b"<svg/>", "SVG files cannot be read here"),
        (b"\0\0\0\x18ftypheic\0\0\0\0mif1heic" + bytes(50), "HEIC files cannot be read here. Export it as JPEG"),
        (b"\xff\x0a" + bytes(50), "JPEG XL files cannot be read here. Export it as PNG"),
        (b"\0\0\0\x0cJXL \r\n\x87\n" + bytes(50), "JPEG XL files"),
        (b"\0\0\0\x0cjP  \r\n\x87\n" + bytes(50), "JPEG 2000 files"),
        (encode(Image.new("F", (8, 8)), "TIFF"), "Its pixels have 32 bits"),
        (encode(Image.new("RGB", (80, 80)))[:60], "damaged"),
    ],
)
def test_what_is_no_picture_says_why_and_what_to_do(content: bytes, message: str) -> None:
    with pytest.raises(PictureError, match=message):
        read(content)


def test_a_file_of_the_command_line_is_named_without_its_folder(tmp_path: Path) -> None:
    (tmp_path / "notes.png").write_text("hello")
    for name in ("notes.png", "none.png"):
        with pytest.raises(RecipeError, match=f"images: {name} cannot be read as a picture: ") as told:
            open_picture(tmp_path / name)
        assert str(tmp_path) not in str(told.value)

"""Pictures that people bring, read in one way for uploads and for files of the command line.

Whatever the file holds becomes 8-bit RGB in sRGB, upright, with transparent parts on white: a colour that could not be
seen never shows. What had to be changed is said in `Picture.notes`. Large photos are scaled down while they are
decoded, and what would take too much memory is refused by its header. Needs neither jax nor torch.
Not here: how a picture fills a size (fitting.py), bytes and quotas of uploads (studio/library/uploads.py).
"""

import contextlib
import io
import struct
import warnings
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

import numpy as np
from PIL import ExifTags, Image, ImageCms, ImageOps

from pipelines.errors import LumeshError, RecipeError
from pipelines.files.unread import BEGIN_BYTES, name_kind
from pipelines.messages import Message, say
from pipelines.pictures import gif_blocks

# MPO is a JPEG with a second picture behind it, as phones write it; HEIF is known to Pillow only with a plugin.
FORMATS = ("PNG", "JPEG", "MPO", "WEBP", "AVIF", "GIF", "BMP", "TIFF", "HEIF")
MAX_KEPT_PIXELS = 40_000_000  # larger ones are halved, perhaps twice
MAX_PIXELS = 65_000_000  # of a file that is decoded in full: Pillow takes 4 bytes for each
MAX_JPEG_PIXELS = 150_000_000  # a JPEG is scaled down while it is decoded, unless it is progressive
MAX_WEBP_PIXELS = MAX_KEPT_PIXELS  # its decoder holds the picture four times
MAX_SIDE_PX = 32_768  # Pillow takes about 40 bytes more for each row, however short
SIDEWAYS = (5, 6, 7, 8)  # values of the EXIF orientation that swap width and height
BACKGROUND = "white"  # of transparent parts: most such pictures were drawn for a page
HEIC_ADVICE = say("Export it as JPEG; an iPhone keeps JPEGs with Settings, Camera, Formats, Most Compatible.")
SAME_COLOUR = 2  # levels of 255 by which two implementations of sRGB may differ
# What Pillow raises for damaged or malicious files, found by changing bytes of good ones.
DECODING_ERRORS = (OSError, ValueError, SyntaxError, EOFError, TypeError, IndexError, struct.error, zlib.error)


class PictureError(LumeshError):
    """The file is no picture, or not a usable one."""

    title = say("This picture cannot be used")


class PictureTooLargeError(PictureError):
    """The picture has too many pixels."""

    title = say("This picture is too large")


@dataclass(frozen=True, kw_only=True)
class Picture:
    """An upright RGB picture in sRGB without metadata, and sentences on what of the file is not in it."""

    image: Image.Image
    notes: tuple[Message, ...] = ()


def open_picture(file: Path) -> Image.Image:
    """Returns the picture in a file; raises RecipeError when it is none or too large."""
    return read_file(file).image


def read_file(file: Path) -> Picture:
    """Reads the picture in a file; raises RecipeError when it is none or too large."""
    with _told_of_file(file), file.open("rb") as stream:
        return read_picture(stream)


def measure_picture(file: Path) -> tuple[int, int]:
    """Returns the width and height that `open_picture` gives, from the header alone; raises RecipeError."""
    with _told_of_file(file), file.open("rb") as stream:
        return measure_stream(stream)


def measure_stream(stream: BinaryIO) -> tuple[int, int]:
    """Returns the width and height that `read_picture` gives, from the header alone; raises PictureError."""
    with _open(stream) as opened:
        factor = _choose_factor(opened)
        width, height = (-(-side // factor) for side in opened.size)
        with _told_as_damaged():  # the size of a TIFF is upright already
            turned = opened.format != "TIFF" and opened.getexif().get(ExifTags.Base.Orientation)
        return (height, width) if turned in SIDEWAYS else (width, height)


def read_picture(stream: BinaryIO, *, max_pixels: int | None = None) -> Picture:
    """Decodes a picture; raises PictureError, and PictureTooLargeError by its header alone.

    `max_pixels` is for pictures of which only small ones are expected.

    Beside the file it takes up to 650 MB for a moment, as measured at these limits (2026-11-25), a lossless WebP with
    transparency 960 MB; and 160 MB afterwards.
    """
    notes: list[Message] = []
    with _open(stream) as opened:
        (width, height), factor = opened.size, _choose_factor(opened, max_pixels)
        profile = opened.info.get("icc_profile")
        with _told_as_damaged():
            if opened.format != "MPO" and getattr(opened, "is_animated", False):
                notes.append(say("It has several frames or pages; the first one is used."))
            if factor > 1:
                opened.draft(None, (width // factor, height // factor))  # does nothing to other kinds than JPEG
            opened.load()
            picture = _to_plain_mode(opened)
            if picture.width * picture.height == width * height and factor > 1:
                picture = picture.reduce(factor)
            ImageOps.exif_transpose(picture, in_place=True)
    if factor > 1:
        size = say(
            "It has {width} x {height} pixels and is used at 1/{factor} of its size.",
            width=width,
            height=height,
            factor=factor,
        )
        notes.append(size)
    colours, alpha = _split_alpha(picture)
    colours = _to_srgb(colours, profile, notes)
    if alpha is not None and alpha.getextrema() != (255, 255):
        notes.append(say("Its transparent parts lie on white."))
        colours = Image.composite(colours, Image.new("RGB", colours.size, BACKGROUND), alpha)
    colours.info.clear()
    return Picture(image=colours, notes=tuple(notes))


@contextlib.contextmanager
def _told_of_file(file: Path) -> Iterator[None]:
    """Words errors for a recipe; where a file lies on a server is nobody's business."""
    try:
        yield
    except PictureError as error:
        raise RecipeError({"images": _word_unreadable(file, error.whole)}) from error
    except OSError as error:
        raise RecipeError({"images": _word_unreadable(file, error.strerror or type(error).__name__)}) from error


def _word_unreadable(file: Path, reason: str) -> Message:
    return say("{file} cannot be read as a picture: {reason}", file=file.name, reason=reason)


@contextlib.contextmanager
def _told_as_damaged() -> Iterator[None]:
    try:
        yield
    except DECODING_ERRORS as error:
        raise PictureError(
            say("This file is damaged: it begins like a picture, but cannot be read to its end."),
            advice=say("Save or download the picture again."),
        ) from error


def _open(stream: BinaryIO) -> Image.Image:
    """Opens the file's header; raises PictureError."""
    Image.init()
    begin = stream.read(BEGIN_BYTES)
    stream.seek(0)
    if begin.startswith(b"GIF8") and gif_blocks.holds_too_much(stream):
        raise PictureError(
            say("It holds more text than a picture has."), advice=say("Save it again without its comments.")
        )
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", Image.DecompressionBombWarning)  # `_choose_factor` has limits of its own
            return Image.open(stream, formats=[name for name in FORMATS if name in Image.OPEN])
    except Image.DecompressionBombError as error:
        raise PictureTooLargeError(say("It has far too many pixels."), advice=_advise_smaller()) from error
    except DECODING_ERRORS as error:
        if kind := name_kind(begin):
            raise PictureError(
                say("{kind} files cannot be read here.", kind=kind),
                advice=HEIC_ADVICE if kind == "HEIC" else say("Export it as PNG, JPEG or WebP."),
            ) from error
        raise PictureError(
            say("This file is not a picture of a known kind."),
            advice=say("PNG, JPEG, WebP, AVIF, GIF, BMP and TIFF are read."),
        ) from error


def _choose_factor(opened: Image.Image, max_pixels: int | None = None) -> int:
    """Returns by how much the picture is scaled down; raises PictureTooLargeError."""
    width, height = opened.size
    most = MAX_WEBP_PIXELS if opened.format == "WEBP" else MAX_PIXELS
    if opened.format in ("JPEG", "MPO") and not opened.info.get("progressive"):
        most = MAX_JPEG_PIXELS
    if max(width, height) > MAX_SIDE_PX:
        detail = say(
            "It has {width} x {height} pixels; a side may have {most}.", width=width, height=height, most=MAX_SIDE_PX
        )
        raise PictureTooLargeError(detail, advice=say("Cut it or make it smaller."))
    if width * height > min(most, max_pixels or most):
        raise PictureTooLargeError(
            say("It has {width} x {height} pixels.", width=width, height=height), advice=_advise_smaller()
        )
    factor = 1
    while width * height > MAX_KEPT_PIXELS * factor**2:
        factor *= 2
    return factor


def _advise_smaller() -> Message:
    jpeg, webp, other = (most // 1_000_000 for most in (MAX_JPEG_PIXELS, MAX_WEBP_PIXELS, MAX_PIXELS))
    return say(
        "A JPEG may have {jpeg} megapixels, a WebP {webp}, others {other}; make it smaller.",
        jpeg=jpeg,
        webp=webp,
        other=other,
    )


def _to_plain_mode(opened: Image.Image) -> Image.Image:
    """Returns the picture in a mode that can be scaled: L, LA, RGB, RGBA, CMYK or LAB; raises PictureError."""
    mode, hidden = opened.mode, opened.info.get("transparency")
    if mode.startswith("I;16"):  # Pillow's own conversion would clip instead of dividing
        values = np.asarray(opened)
        grey = Image.fromarray((values >> 8).astype(np.uint8))
        if isinstance(hidden, int):
            grey.putalpha(Image.fromarray(np.where(values == hidden, 0, 255).astype(np.uint8)))
        grey.info["exif"] = opened.info.get("exif", b"")
        return grey
    if mode in ("I", "F"):
        raise PictureError(
            say("Its pixels have 32 bits, without a word on which value is white."),
            advice=say("Save it with 8 or 16 bits."),
        )
    if mode == "RGB" and isinstance(hidden, tuple) and max(hidden) > 255:  # of 16 bits, whose upper half Pillow reads
        opened.info["transparency"] = tuple(value >> 8 for value in hidden)
    if opened.has_transparency_data:
        return opened if mode in ("LA", "RGBA") else opened.convert("RGBA")
    if mode in ("L", "RGB", "CMYK", "LAB"):
        return opened
    return opened.convert("L" if mode == "1" else "RGB")


def _split_alpha(picture: Image.Image) -> tuple[Image.Image, Image.Image | None]:
    if picture.mode not in ("LA", "RGBA"):
        return picture, None
    return picture.convert(picture.mode[:-1]), picture.getchannel("A")


def _to_srgb(picture: Image.Image, profile: bytes | None, notes: list[Message]) -> Image.Image:
    """Returns the picture in sRGB, by its ICC profile if it has one for such pixels.

    A profile that is sRGB by another name leaves every pixel as it is: colours of a coarse cube tell.
    """
    if profile:
        try:
            srgb = ImageCms.createProfile("sRGB")
            source = ImageCms.ImageCmsProfile(io.BytesIO(profile))
            transform = ImageCms.buildTransform(source, srgb, picture.mode, "RGB")
            if picture.mode != "RGB" or _moves_colours(transform):
                converted = ImageCms.applyTransform(picture, transform)
                assert converted is not None
                notes.append(say("Its colours were converted to sRGB."))
                return converted
        except (ImageCms.PyCMSError, OSError, ValueError, TypeError):
            notes.append(say("Its colour profile cannot be used; its colours are taken as sRGB."))
    return picture if picture.mode == "RGB" else _without_profile(picture)


def _without_profile(picture: Image.Image) -> Image.Image:
    with _told_as_damaged():
        if picture.mode == "LAB":
            lab = ImageCms.createProfile("LAB")
            converted = ImageCms.profileToProfile(picture, lab, ImageCms.createProfile("sRGB"), outputMode="RGB")
            assert converted is not None
            return converted
        return picture.convert("RGB")


def _moves_colours(transform: ImageCms.ImageCmsTransform) -> bool:
    levels = np.linspace(0, 255, 9).astype(np.uint8)
    cube = np.stack(np.meshgrid(levels, levels, levels), axis=-1).reshape(27, 27, 3)
    moved = ImageCms.applyTransform(Image.fromarray(cube), transform)
    return bool(np.abs(np.asarray(moved, int) - cube).max() > SAME_COLOUR)

"""Reads the texts in picture and video files, within limits and without decoding a single pixel.

Sources are PNG text chunks, the EXIF and XMP blocks of JPEG and WebP, AVIF's EXIF and XMP, GIF comments, the comment
tag of MP4, and files of text: A1111's `.txt` beside a picture, ComfyUI's `.json`. Only texts that may be recipes are
read; lengths are checked before anything is copied or decompressed. A broken text never hides another one.
"""

import codecs
import io
import itertools
import re
import zlib
from collections.abc import Callable, Iterator

from PIL import Image

from pipelines.files.unread import name_kind
from pipelines.messages import say
from pipelines.pictures.gif_blocks import size_of_palette
from studio.library.foreign.bounded import MAX_TEXT_BYTES
from studio.library.foreign.errors import MetadataError, MetadataTooLargeError
from studio.library.foreign.exif import decode_text, read_exif

MAX_BYTES = 20_000_000  # the same limit as for uploads
MAX_NAMES = 1000  # of texts in a video
MAX_PARTS = 200_000  # chunks of one file: GIFs of that length are cut into blocks of 255 bytes

# PNG keywords under which programs store recipes, in lower case
KEYWORDS = frozenset(
    (
        "lumesh",
        "lumesh-grid",
        "parameters",
        "invokeai_metadata",
        "sd-metadata",
        "dream",
        "prompt",
        "workflow",
        "comment",
        "metadata",
        "software",
        "source",
        "xml:com.adobe.xmp",
    )
)
TEXT = "text"  # the keyword of a file that is nothing but text
XMP = "xml:com.adobe.xmp"
XMP_HEAD = b"http://ns.adobe.com/xap/1.0/\0"
GIF_COMMENT, GIF_EXTENSION, GIF_IMAGE, GIF_END = 0xFE, 0x21, 0x2C, 0x3B

_CONTROL = re.compile(r"[\x00-\x08\x0e-\x1f\x7f-\x84\x86-\x9f]")  # letters that no text has


class Texts(dict[str, str]):
    """A file's texts by keyword; `broken` are those that cannot be read, with the reason."""

    def __init__(self) -> None:
        super().__init__()
        self.broken: dict[str, MetadataError] = {}


Parts = Iterator[tuple[str, str | MetadataError]]


def read_texts(content: bytes) -> Texts:
    """Returns texts by keyword; raises MetadataError for another kind of file, or one of which none can be read."""
    if len(content) > MAX_BYTES:
        raise MetadataTooLargeError(
            say(
                "It has {size} MB; at most {limit} are read.",
                size=f"{len(content) / 1e6:.1f}",
                limit=MAX_BYTES // 1_000_000,
            )
        )
    if kind := name_kind(content):
        raise MetadataError(
            say("{kind} files cannot be read here.", kind=kind),
            advice=say("Choose the PNG, JPEG, WebP or MP4 that the program saved, or its settings as text."),
        )
    for is_kind, read in _KINDS:
        if is_kind(content):
            return _collect(read(content))
    text = _decode_file(content)
    if text is not None:
        texts = Texts()
        texts[TEXT] = text
        return texts
    raise MetadataError(
        say("It is not a PNG, JPEG, WebP, AVIF, GIF or MP4 file."), advice=say("Choose a picture, a video or a text.")
    )


def _collect(parts: Parts) -> Texts:
    texts = Texts()
    try:
        for keyword, text in parts:
            if isinstance(text, MetadataError):
                texts.broken.setdefault(keyword, text)
            else:
                texts.setdefault(keyword, text)
    except MetadataError as error:
        texts.broken.setdefault("", error)
    if texts.broken and not texts:
        raise next(iter(texts.broken.values()))
    return texts


def _decode_file(content: bytes) -> str | None:
    """Decodes a file of text; None for anything else."""
    if len(content) > MAX_TEXT_BYTES or not content.strip():
        return None
    encoding = "utf-16" if content[:2] in (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE) else "utf-8-sig"
    try:
        text = content.decode(encoding)
    except UnicodeDecodeError:
        return None
    return None if _CONTROL.search(text[:2000]) else text


def _damaged() -> MetadataError:
    return MetadataError(
        say("This file is damaged: a part of it is cut off or changed."), advice=say("Save or download it again.")
    )


def _too_long(length: int) -> MetadataTooLargeError:
    return MetadataTooLargeError(
        say(
            "The text in it has {size} MB or more; a recipe has at most {limit}.",
            size=f"{length / 1e6:.1f}",
            limit=MAX_TEXT_BYTES // 1_000_000,
        )
    )


def _read_png(content: bytes) -> Parts:
    place = 8
    seen: set[str] = set()  # only the first text of a keyword counts: thousands of compressed ones would take minutes
    for _ in range(MAX_PARTS):
        length = int.from_bytes(content[place : place + 4])
        kind, end = content[place + 4 : place + 8], place + 12 + length
        if kind == b"IEND":
            return
        if end > len(content):
            raise _damaged()
        if kind == b"eXIf":
            yield from read_exif(content[place + 8 : end - 4]).items()
        elif kind in (b"tEXt", b"zTXt", b"iTXt"):
            name = content[place + 8 : min(place + 8 + 80, end - 4)].partition(b"\0")[0]
            keyword = decode_text(name).lower()
            if keyword in KEYWORDS and keyword not in seen:
                seen.add(keyword)
                body = content[place + 8 + len(name) + 1 : end - 4]
                try:
                    if zlib.crc32(content[place + 4 : end - 4]) != int.from_bytes(content[end - 4 : end]):
                        raise _damaged()
                    yield keyword, _decode_png_text(kind, body)
                except MetadataError as error:
                    yield keyword, error
        place = end
    raise _damaged()


def _decode_png_text(kind: bytes, body: bytes) -> str:
    """Decodes `body`, a text chunk without its keyword."""
    is_packed = kind == b"zTXt"
    if is_packed:
        body = body[1:]  # skips the compression method, of which there is only one
    elif kind == b"iTXt":
        is_packed = body[:1] == b"\1"
        _language, _, rest = body[2:].partition(b"\0")
        _translated, _, body = rest.partition(b"\0")
    if is_packed:
        unpacker = zlib.decompressobj()
        try:
            body = unpacker.decompress(body, MAX_TEXT_BYTES + 1)
        except zlib.error as error:
            raise _damaged() from error
        if not unpacker.eof and len(body) <= MAX_TEXT_BYTES:
            raise _damaged()
    if len(body) > MAX_TEXT_BYTES:
        raise _too_long(len(body))
    return decode_text(body)


def _read_jpeg(content: bytes) -> Parts:
    place = 2
    for _ in range(MAX_PARTS):
        if content[place : place + 1] != b"\xff":
            raise _damaged()
        marker = content[place + 1 : place + 2]
        if marker == b"\xff":  # padding
            place += 1
            continue
        if marker in (b"\xda", b"\xd9"):  # start of the image data, or end of the file
            return
        length = int.from_bytes(content[place + 2 : place + 4])
        body = content[place + 4 : place + 2 + length]
        if length < 2 or len(body) != length - 2:
            raise _damaged()
        if marker == b"\xe1" and body.startswith(b"Exif\0\0"):
            yield from read_exif(body).items()
        elif marker == b"\xe1" and body.startswith(XMP_HEAD):
            yield XMP, decode_text(body.removeprefix(XMP_HEAD))
        elif marker == b"\xfe":
            yield "comment", decode_text(body)
        place += 2 + length
    raise _damaged()


def _read_webp(content: bytes) -> Parts:
    place = 12
    for _ in range(MAX_PARTS):
        if place + 8 > len(content):
            return
        length = int.from_bytes(content[place + 4 : place + 8], "little")
        if place + 8 + length > len(content):
            raise _damaged()
        if content[place : place + 4] == b"EXIF":
            if length > MAX_TEXT_BYTES:
                raise _too_long(length)
            yield from read_exif(content[place + 8 : place + 8 + length]).items()
        elif content[place : place + 4] == b"XMP " and length <= MAX_TEXT_BYTES:
            yield XMP, decode_text(content[place + 8 : place + 8 + length])
        place += 8 + length + length % 2
    raise _damaged()


def _read_avif(content: bytes) -> Parts:
    """Reads what Pillow finds in the file's header: its boxes lead to the blocks over several tables."""
    try:
        with Image.open(io.BytesIO(content), formats=["AVIF"]) as picture:
            exif, xmp = picture.info.get("exif", b""), picture.info.get("xmp", b"")
    except Exception as error:  # a decoder's own errors, as for any damaged picture
        raise _damaged() from error
    if len(exif) > MAX_TEXT_BYTES or len(xmp) > MAX_TEXT_BYTES:
        raise _too_long(max(len(exif), len(xmp)))
    yield from read_exif(exif).items()
    if xmp:
        yield XMP, decode_text(xmp)


def _read_gif(content: bytes) -> Parts:
    """Reads only the first comment: recipes are before the image data."""
    place = 13 + size_of_palette(content[10:11])
    for _ in range(MAX_PARTS):
        kind = content[place : place + 1]
        if kind == bytes([GIF_EXTENSION]):
            is_comment = content[place + 1 : place + 2] == bytes([GIF_COMMENT])
            body, place = _join_blocks(content, place + 2, is_kept=is_comment)
            if is_comment:
                yield "comment", decode_text(body)
                return
        elif kind == bytes([GIF_IMAGE]):
            palette = size_of_palette(content[place + 9 : place + 10])
            _, place = _join_blocks(content, place + 10 + palette + 1, is_kept=False)
        elif kind == bytes([GIF_END]):
            return
        else:
            raise _damaged()
    raise _damaged()


def _join_blocks(content: bytes, place: int, *, is_kept: bool) -> tuple[bytes, int]:
    """Joins sub-blocks up to the empty one; returns them and the position after it."""
    body = bytearray()
    for _ in range(MAX_PARTS):
        if place >= len(content):
            raise _damaged()
        length = content[place]
        if length == 0:
            return bytes(body), place + 1
        if is_kept:
            body += content[place + 1 : place + 1 + length]
        if len(body) > MAX_TEXT_BYTES:
            raise _too_long(len(body))
        place += 1 + length
    raise _damaged()


def _read_mp4(content: bytes) -> Parts:
    """Reads the metadata below `moov`: the comment that ffmpeg and most others write, and named texts, as ComfyUI's."""
    moov = _find_box(content, (0, len(content)), b"moov")
    udta = moov and _find_box(content, moov, b"udta")
    comment = udta and _find_box(content, udta, b"\xa9cmt")
    if comment:  # of a MOV, behind its length and language
        yield "comment", decode_text(content[comment[0] + 4 : min(comment[1], comment[0] + MAX_TEXT_BYTES)])
    for parent in filter(None, (udta, moov)):
        meta = _find_box(content, parent, b"meta")
        if meta is None:
            continue
        start, end = meta
        start += 0 if content[start + 4 : start + 8] == b"hdlr" else 4  # MP4 has version and flags here, MOV does not
        names = _read_mp4_names(content, (start, end))
        texts = _find_box(content, (start, end), b"ilst")
        for box, inner, inner_end in _list_boxes(content, *texts) if texts else ():
            keyword = "comment" if box == b"\xa9cmt" else names.get(int.from_bytes(box), "")
            data = _find_box(content, (inner, inner_end), b"data") if keyword in KEYWORDS else None
            if data is None:
                continue
            text = content[data[0] + 8 : data[1]]  # without type and language
            yield keyword, _too_long(len(text)) if len(text) > MAX_TEXT_BYTES else decode_text(text)


def _read_mp4_names(content: bytes, meta: tuple[int, int]) -> dict[int, str]:
    """Reads the names of texts that have a number in place of a name; ffmpeg's `use_metadata_tags` writes such."""
    keys = _find_box(content, meta, b"keys")
    if keys is None:
        return {}
    boxes = itertools.islice(_list_boxes(content, keys[0] + 8, keys[1]), MAX_NAMES)
    return {
        number: decode_text(content[start : min(end, start + 80)]).rpartition(".")[2].lower()
        for number, (_, start, end) in enumerate(boxes, 1)
    }


def _find_box(content: bytes, place: tuple[int, int], name: bytes) -> tuple[int, int] | None:
    """Returns where the first box of this name begins and ends within another."""
    return next(((start, end) for box, start, end in _list_boxes(content, *place) if box == name), None)


def _list_boxes(content: bytes, start: int, end: int) -> Iterator[tuple[bytes, int, int]]:
    """Yields the name of each box, and the start and end of its body."""
    for _ in range(MAX_PARTS):
        if start + 8 > end:
            return
        size, head = int.from_bytes(content[start : start + 4]), 8
        if size == 1:  # then the size follows, in 64 bits
            size, head = int.from_bytes(content[start + 8 : start + 16]), 16
        elif size == 0:
            size = end - start
        if size < head or start + size > end:
            raise _damaged()
        yield content[start + 4 : start + 8], start + head, start + size
        start += size


def _is_png(content: bytes) -> bool:
    return content.startswith(b"\x89PNG\r\n\x1a\n")


def _is_jpeg(content: bytes) -> bool:
    return content.startswith(b"\xff\xd8\xff")


def _is_webp(content: bytes) -> bool:
    return content.startswith(b"RIFF") and content[8:12] == b"WEBP"


def _is_gif(content: bytes) -> bool:
    return content.startswith((b"GIF87a", b"GIF89a"))


def _is_avif(content: bytes) -> bool:
    return _is_mp4(content) and re.search(rb"avi[fs]", content[8:64]) is not None


def _is_mp4(content: bytes) -> bool:
    return content[4:8] == b"ftyp"


_KINDS: tuple[tuple[Callable[[bytes], bool], Callable[[bytes], Parts]], ...] = (
    (_is_png, _read_png),
    (_is_jpeg, _read_jpeg),
    (_is_webp, _read_webp),
    (_is_gif, _read_gif),
    (_is_avif, _read_avif),
    (_is_mp4, _read_mp4),
)

"""Reads the few EXIF texts in which programs store recipes.

Every offset is checked against the block; entries that do not lead to a text are skipped, because a camera's odd EXIF
is no reason to refuse a picture.
"""

import codecs
import contextlib
import struct
from collections.abc import Iterator

POINTER = 0x8769  # tag of the pointer to the directory with the user comment
USER_COMMENT = 0x9286
LABELLED = (0x010E, 0x010F, 0x0110)  # description, make, model: ComfyUI's WebP has `workflow:{...}` and `prompt:{...}`
LABELS = ("prompt", "workflow")
TEXT_TYPES = (1, 2, 7)  # byte, ASCII, undefined: one byte each
LONG = 4
MAX_ENTRIES = 500


def read_exif(block: bytes) -> dict[str, str]:
    """Returns `comment`, `prompt` and `workflow`, as far as they are present."""
    block = block.removeprefix(b"Exif\0\0")
    order = {b"II*\0": "<", b"MM\0*": ">"}.get(block[:4])
    if order is None or len(block) < 8:
        return {}
    texts: dict[str, str] = {}
    entries = list(_list_entries(block, struct.unpack_from(f"{order}I", block, 4)[0], order))
    pointers = [offset for tag, kind, _, offset in entries if (tag, kind) == (POINTER, LONG)]
    if pointers:
        entries += _list_entries(block, pointers[0], order)
    for tag, kind, count, offset in entries:
        if kind not in TEXT_TYPES:
            continue
        # A value of up to four bytes is stored in the entry itself, but no recipe is that short.
        value = block[offset : offset + count]
        if tag == USER_COMMENT and "comment" not in texts:
            texts["comment"] = _decode_comment(value)
        elif tag in LABELLED:
            label = value[:10].partition(b":")[0].decode("latin-1").lower()
            if label in LABELS and label not in texts:
                texts[label] = decode_text(value[len(label) + 1 :])
    return texts


def _list_entries(block: bytes, start: int, order: str) -> Iterator[tuple[int, int, int, int]]:
    """Yields tag, type, count and offset of each entry of one directory."""
    if start + 2 > len(block):
        return
    count = min(struct.unpack_from(f"{order}H", block, start)[0], MAX_ENTRIES)
    for place in range(start + 2, min(start + 2 + 12 * count, len(block) - 11), 12):
        yield struct.unpack_from(f"{order}HHII", block, place)


def decode_text(value: bytes) -> str:
    """Decodes UTF-8, or Latin-1 if that fails: formats ask for one of them, programs write either."""
    value = value.rstrip(b"\0")
    try:
        return value.decode("utf-8-sig")
    except UnicodeDecodeError:
        return value.decode("latin-1")


def _decode_comment(value: bytes) -> str:
    """Decodes a user comment: eight bytes name the encoding.

    UNICODE is UTF-16, whose byte order is told by a mark or guessed from where zeros are, and since EXIF 3 UTF-8, which
    has no zeros.
    """
    if value[:8].upper() == b"UNICODE\0":
        value = value[8:]
        if value[:2] in (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE):
            return value.decode("utf-16", "replace").rstrip("\0")
        if b"\0" not in value.rstrip(b"\0"):
            with contextlib.suppress(UnicodeDecodeError):
                return value.rstrip(b"\0").decode("utf-8-sig")
        is_big = value[0::2].count(0) >= value[1::2].count(0)
        return value.decode("utf-16-be" if is_big else "utf-16-le", "replace").rstrip("\0")
    for prefix in (b"ASCII\0\0\0", b"\0" * 8):
        value = value.removeprefix(prefix)
    return decode_text(value)

"""Files that are small and ask for much: told apart within bounded memory, whoever reads them."""

import io
import json
import struct
import tracemalloc
import zipfile
import zlib
from collections.abc import Callable

import pytest
from PIL import Image

from pipelines.errors import LumeshError
from pipelines.models.catalog import load_catalog
from studio.library import uploads
from studio.library.foreign import read_file as read_recipe
from studio.library.foreign import read_grid
from studio.library.presets.files import MAX_PACK_BYTES
from studio.library.presets.files import read_file as read_preset

MOST_BYTES = 200_000_000
CATALOG = load_catalog()
DEEP, WIDE = "[" * 1_000_000, "[" + '{"":0},' * 60_000 + "0]"


def write_chunk(kind: bytes, body: bytes) -> bytes:
    return len(body).to_bytes(4) + kind + body + zlib.crc32(kind + body).to_bytes(4)


def write_png(*chunks: bytes) -> bytes:
    file = io.BytesIO()
    Image.new("RGB", (4, 4)).save(file, "PNG")
    return file.getvalue()[:33] + b"".join(chunks) + file.getvalue()[33:]


def write_text(keyword: str, text: str) -> bytes:
    return write_chunk(b"zTXt", keyword.encode() + b"\0\0" + zlib.compress(text.encode()))


def write_box(name: bytes, body: bytes) -> bytes:
    return (len(body) + 8).to_bytes(4) + name + body


def write_pack(**entries: bytes) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in entries.items():
            archive.writestr(f"{name}.json", content)
    return file.getvalue()


def write_directory(entries: int) -> bytes:
    """A zip that is nothing but a list of files, each with one letter for a name."""
    entry = struct.pack("<4s6H3I5H2I", b"PK\1\2", 20, 20, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0) + b"a"
    end = struct.pack("<4s4H2IH", b"PK\5\6", 0, 0, entries & 0xFFFF, entries & 0xFFFF, entries * len(entry), 0, 0)
    return b"PK\3\4" + entry * entries + end


def write_wide_png() -> bytes:
    """Its header says 60 000 x 60 000 pixels."""
    header = struct.pack(">2I5B", 60_000, 60_000, 8, 2, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + write_chunk(b"IHDR", header) + write_chunk(b"IDAT", zlib.compress(bytes(1000)))


PICTURES: dict[str, Callable[[], bytes]] = {
    "every text packed": lambda: write_png(
        *(write_text(key, "a" * 3_900_000) for key in ("lumesh", "prompt", "dream"))
    ),
    "one name a thousand times": lambda: write_png(write_text("parameters", "a" * 3_900_000) * 1000),
    "more than may be": lambda: write_png(write_text("parameters", "a" * 50_000_000)),
    "deep": lambda: write_png(write_text("lumesh", DEEP), write_text("prompt", DEEP)),
    "deep objects": lambda: write_png(write_text("workflow", '{"a":' * 500_000)),
    "wide": lambda: write_png(write_text("prompt", '{"1": ' + WIDE + "}"), write_text("lumesh-grid", WIDE)),
    "a long number": lambda: write_png(write_text("lumesh", '{"seed": ' + "9" * 1_000_000 + "}")),
    "a long text": lambda: write_png(write_text("lumesh", json.dumps({"model": "x", "prompt": "a" * 3_000_000}))),
    "a wide picture": write_wide_png,
    "gif blocks": lambda: b"GIF89a" + bytes(7) + b"!\xfe" + (b"\xff" + bytes(255)) * 70_000,
    "a long comment of a video": lambda: write_box(b"ftyp", b"isom") + _nest(bytes(15_000_000)),
    "a box without an end": lambda: write_box(b"ftyp", b"isom") + b"\0\0\0\1moov" + b"\xff" * 8,
    "many boxes": lambda: write_box(b"ftyp", b"isom") + write_box(b"free", b"") * 20_000,
    "exif": lambda: b"RIFF\0\0\0\0WEBPEXIF" + (16_000_000).to_bytes(4, "little") + bytes(16_000_000),
}
PACKS: dict[str, Callable[[], bytes]] = {
    "a directory without files": lambda: write_directory((MAX_PACK_BYTES - 100) // 47),
    "zeros": lambda: write_pack(**{f"n{number}": bytes(20_000_000) for number in range(3)}),
    "deep": lambda: write_pack(deep=DEEP[:999_000].encode()),
    "deep document": lambda: ('{"recipe":' * 90_000).encode(),
    "wide": lambda: write_pack(**{f"n{number}": b'{"tags":' + b"[0," * 300_000 for number in range(3)}),
    "wide document": lambda: json.dumps({"title": "x", "tags": ["a"] * 190_000}).encode(),
}


def _nest(body: bytes) -> bytes:
    for name in (b"data", b"\xa9cmt", b"ilst", b"meta", b"udta", b"moov"):
        body = write_box(name, (b"\0\0\0\0" if name == b"meta" else b"") + body)
    return body


def measure_bytes(read: Callable[[bytes], object], content: bytes) -> int:
    """The most that reading takes at once; a LumeshError with a detail is an answer like any other."""
    tracemalloc.start()
    try:
        read(content)
    except LumeshError as error:
        assert error.detail
        assert len(error.detail) < 2000
    finally:
        _, most = tracemalloc.get_traced_memory()
        tracemalloc.stop()
    return most


@pytest.mark.parametrize("name", PICTURES)
def test_a_picture_that_asks_for_much_gets_little(name: str) -> None:
    content = PICTURES[name]()
    assert measure_bytes(lambda one: read_recipe(one, CATALOG, CATALOG.default, lambda _: True), content) < MOST_BYTES
    assert measure_bytes(read_grid, content) < MOST_BYTES
    assert measure_bytes(uploads.decode, content) < MOST_BYTES


@pytest.mark.parametrize("name", PACKS)
def test_a_pack_that_asks_for_much_gets_little(name: str) -> None:
    assert measure_bytes(read_preset, PACKS[name]()) < MOST_BYTES / 4

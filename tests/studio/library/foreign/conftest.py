"""Files as other programs write them, made here byte by byte, and the reading of them."""

import io
import zlib
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from pipelines.loras.files import LoraFile
from pipelines.models.catalog import Catalog
from studio.library.foreign import read_file
from studio.library.foreign.found import ReadRecipe

Read = Callable[..., ReadRecipe | None]


def write_chunk(kind: bytes, body: bytes) -> bytes:
    return len(body).to_bytes(4) + kind + body + zlib.crc32(kind + body).to_bytes(4)


def write_png(**texts: str | bytes) -> bytes:
    """A PNG with one text chunk each, before its pixels; `sd_metadata` stands for `sd-metadata`; bytes are a zTXt."""
    file = io.BytesIO()
    Image.new("RGB", (8, 8), "teal").save(file, "PNG")
    plain, chunks = file.getvalue(), b""
    for name, text in texts.items():
        keyword = name.replace("_metadata", "-metadata") if name.startswith("sd") else name
        if isinstance(text, bytes):
            chunks += write_chunk(b"zTXt", keyword.encode() + b"\0\0" + text)
        elif text.isascii():
            chunks += write_chunk(b"tEXt", keyword.encode() + b"\0" + text.encode())
        else:
            chunks += write_chunk(b"iTXt", keyword.encode() + b"\0\0\0\0\0" + text.encode())
    return plain[:33] + chunks + plain[33:]


@pytest.fixture(name="write_chunk")
def give_write_chunk() -> Callable[..., bytes]:
    return write_chunk


@pytest.fixture(name="write_png")
def give_write_png() -> Callable[..., bytes]:
    return write_png


@pytest.fixture
def write_exif() -> Callable[..., bytes]:
    """A JPEG or WebP whose EXIF has these tags, those above 0x9000 in the inner directory unless `is_flat`."""

    def write(tags: dict[int, Any], *, kind: str = "JPEG", is_flat: bool = False) -> bytes:
        exif = Image.Exif()
        for tag, value in tags.items():
            (exif if is_flat or tag < 0x9000 else exif.get_ifd(0x8769))[tag] = value
        file = io.BytesIO()
        Image.new("RGB", (8, 8), "teal").save(file, kind, exif=exif)
        return file.getvalue()

    return write


@pytest.fixture
def read(catalog: Catalog) -> Read:
    """Reads a file's recipe; `model` is the chosen one, `inputs` the pictures and `loras` the SDXL LoRAs here."""

    def read(
        content: bytes,
        *,
        model: str = "demo-sdxl",
        inputs: tuple[str, ...] = (),
        loras: tuple[str, ...] = (),
        family: str = "sdxl",
    ) -> ReadRecipe | None:
        files = tuple(LoraFile(ref, ref, family, Path(f"{ref}.safetensors"), 1) for ref in loras)
        here = replace(catalog, own_loras=files)
        return read_file(content, here, here.get(model), lambda image: image in inputs)

    return read


@pytest.fixture
def read_parameters(read: Read) -> Read:
    """The same from the text of a PNG's `parameters`."""
    return lambda text, **options: read(write_png(parameters=text), **options)

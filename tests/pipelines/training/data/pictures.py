"""Pictures and folders for tests of training data."""

import io
from pathlib import Path

import numpy as np
from PIL import Image

from pipelines.training.data.examples import Example, FileReader
from pipelines.training.data.sources import Found, read_examples


def encode(picture: Image.Image, kind: str = "PNG", **options: object) -> bytes:
    file = io.BytesIO()
    picture.save(file, kind, **options)
    return file.getvalue()


def make_picture(width: int = 24, height: int = 16, *, seed: int = 0) -> Image.Image:
    return Image.fromarray(np.random.default_rng(seed).integers(0, 256, (height, width, 3), np.uint8))


def write_picture(file: Path, width: int = 24, height: int = 16, *, text: str | None = None) -> Path:
    """Writes a picture whose content depends on its path, and its caption."""
    file.parent.mkdir(parents=True, exist_ok=True)
    seed = int.from_bytes(file.name.encode()) % 2**32
    kind = {".jpg": "JPEG", ".jpeg": "JPEG", ".tif": "TIFF"}.get(file.suffix.lower(), file.suffix[1:].upper())
    file.write_bytes(encode(make_picture(width, height, seed=seed), kind))
    if text is not None:
        file.with_suffix(".txt").write_text(text, "utf-8")
    return file


def read_well(*paths: object, **options: object) -> Found:
    """Reads examples where nothing may be wrong."""
    found = read_examples([str(path) for path in paths], **options)
    assert not found.problems
    return found


def make_example(name: str = "a.png", width: int = 64, height: int = 64, **fields: object) -> Example:
    """Makes an example of a file that is never read."""
    given = {"captions": ("a cat",), "known_content": name, **fields}
    return Example(id=name, reader=FileReader(Path(name)), width=width, height=height, **given)

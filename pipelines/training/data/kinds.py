"""What a file of training data is, by its name alone: a picture, a clip, a table, a text, a mask, or nothing read here.

Not here: whether files hold what their names say (checks.py).
"""

import re
from collections.abc import Collection
from pathlib import Path

from PIL import Image

from pipelines.messages import Message, say
from pipelines.pictures.reading import HEIC_ADVICE

PICTURE_SUFFIXES = (
    *(".jpg", ".jpeg", ".jpe", ".jfif", ".jif", ".mpo", ".png", ".apng"),
    *(".webp", ".bmp", ".tif", ".tiff", ".avif"),
)
VIDEO_SUFFIXES = (
    *(".mp4", ".webm", ".gif", ".mov", ".mkv", ".avi", ".m4v", ".mpg", ".mpeg", ".m2v"),
    *(".wmv", ".3gp", ".3g2", ".flv", ".ogv", ".ts", ".mts", ".m2ts"),
)
HEIC_SUFFIXES = (".heic", ".heif")
UNREAD_SUFFIXES = (
    *HEIC_SUFFIXES,
    *(".jxl", ".jp2", ".j2k", ".jpx", ".jxr", ".psd", ".svg", ".ico", ".tga", ".exr", ".hdr", ".qoi", ".dds", ".eps"),
    *(".ppm", ".pgm", ".pbm", ".pnm", ".pfm", ".pcx"),
    *(".dng", ".cr2", ".cr3", ".nef", ".arw", ".orf", ".raf", ".rw2"),
)
TABLE_SUFFIXES = (".parquet", ".arrow")
CAPTION_SUFFIXES = (".txt", ".caption")
METADATA = ("metadata.jsonl", "metadata.csv")
MASK_FOLDERS = ("mask", "masks")
_MASK = re.compile(r"(.+)(?:-masklabel|[-_]mask)", re.DOTALL | re.IGNORECASE)
_KEPT_BY_SYSTEMS = ("thumbs.db", "desktop.ini")


def is_read(file: Path) -> bool:
    """Returns whether a file of this name is read as pictures or a clip."""
    suffix = file.suffix.lower()
    return suffix in (*PICTURE_SUFFIXES, *VIDEO_SUFFIXES, *TABLE_SUFFIXES) or (
        suffix in HEIC_SUFFIXES and "HEIF" in Image.OPEN
    )


def is_unread(file: Path) -> bool:
    """Returns whether a file of this name is a picture of a kind that is not read here."""
    return file.suffix.lower() in UNREAD_SUFFIXES and not is_read(file)


def is_text(file: Path) -> bool:
    """Returns whether a file of this name holds a picture's captions."""
    return file.suffix.lower() in CAPTION_SUFFIXES


def is_other(file: Path) -> bool:
    """Returns whether a file of this name is neither data nor what systems leave in folders of pictures."""
    is_data = is_read(file) or is_unread(file) or is_text(file) or file.name in METADATA
    return not is_data and file.name.casefold() not in _KEPT_BY_SYSTEMS


def is_mask_of(file: Path, stems: Collection[str], *, is_in_mask_folder: bool = False) -> bool:
    """Returns whether a file of this name is the mask of a picture whose case-folded stem is among `stems`.

    `a_mask.png`, `a-mask.png` and `a-masklabel.png` are masks of a.jpg, and in a folder of masks a.png is, too.
    """
    match = _MASK.fullmatch(file.stem)
    return (is_in_mask_folder and file.stem.casefold() in stems) or (match is not None and match[1].casefold() in stems)


def is_there(path: Path) -> bool:
    """Returns whether there is a file of this path; False for a name that no system can have."""
    try:
        return path.is_file()
    except OSError:
        return False


def advise_unread(names: Collection[str]) -> Message:
    """Says what to do with pictures that are not read."""
    if any(name.lower().endswith(HEIC_SUFFIXES) for name in names):
        return HEIC_ADVICE
    return say("Export them as PNG or JPEG.")

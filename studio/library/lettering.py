"""Draws text on pictures, in any script: each character in the first font that has it.

Lumesh's own font has Latin letters; for others the system's fonts are searched once, at the first character that needs
one. A character that no font has is drawn as the empty box of a missing glyph: Chinese labels need a Chinese font.
"""

import functools
from collections.abc import Iterator
from itertools import groupby
from pathlib import Path

from PIL import Image, ImageDraw, ImageFont

OWN_DIR = Path(__file__).resolve().parent.parent / "ui" / "static" / "fonts"
OWN = tuple(OWN_DIR / name for name in ("inter-latin.woff2", "inter-latin-ext.woff2"))
SYSTEM_DIRS = (
    Path("/usr/share/fonts"),
    Path("/usr/local/share/fonts"),
    Path("~/.local/share/fonts").expanduser(),
    Path("/System/Library/Fonts"),
    Path("/Library/Fonts"),
)
SUFFIXES = (".ttf", ".otf", ".ttc")
MAX_FILES = 400  # a limit for systems with thousands of fonts, whose first ones include a plain one
NOWHERE = "\U0010ffff"  # a character that no font has: it shows what a missing glyph looks like
PROBE_PX = 24
LINE = 1.3  # line height, in heights of the letters

Font = ImageFont.FreeTypeFont


class Lettering:
    """Measures and draws lines of text of one size."""

    def __init__(self, size_px: int) -> None:
        self.size_px = size_px
        self.line_px = round(LINE * size_px)

    def measure(self, text: str) -> float:
        """Returns the width of one line in pixels."""
        return sum(font.getlength(part) for font, part in self._split(text))

    def draw(self, canvas: ImageDraw.ImageDraw, text: str, *, at: tuple[float, float], fill: str) -> None:
        """Draws one line with its top left corner at `at`."""
        left, top = at
        for font, part in self._split(text):
            canvas.text((left, top + self.size_px), part, font=font, fill=fill, anchor="ls")
            left += font.getlength(part)

    def wrap(self, text: str, *, width_px: float, lines: int) -> list[str]:
        """Breaks text into at most `lines` lines of this width; text that does not fit ends with an ellipsis."""
        wrapped: list[str] = []
        rest = clean(text)
        while rest and len(wrapped) < lines:
            line = self._fit(rest, width_px)
            rest = rest[len(line) :].lstrip()
            wrapped.append(line.rstrip())
        if rest and wrapped:
            last = wrapped[-1]
            while last and self.measure(f"{last}…") > width_px:
                last = last[:-1]
            wrapped[-1] = f"{last.rstrip()}…"
        return wrapped

    def _fit(self, text: str, width_px: float) -> str:
        """Returns as much of the beginning as fits: whole words, or letters of a word that is too long."""
        if self.measure(text) <= width_px:
            return text
        low, high = 1, len(text)
        while low < high:
            middle = (low + high + 1) // 2
            low, high = (middle, high) if self.measure(text[:middle]) <= width_px else (low, middle - 1)
        space = text.rfind(" ", 0, low + 1)
        return text[:space] if space > 0 else text[:low]

    def _split(self, text: str) -> Iterator[tuple[Font, str]]:
        """Splits text into runs of characters that share a font."""
        for file, characters in groupby(text, key=find_font):
            yield _open(file, self.size_px), "".join(characters)


def clean(text: str) -> str:
    """Joins text into one line and drops unprintable characters."""
    return "".join(character for character in " ".join(text.split()) if character.isprintable())


@functools.lru_cache(maxsize=4096)
def find_font(character: str) -> Path:
    """Returns the first font that has the character, or our own if none has."""
    if character.isspace():
        return OWN[0]
    return next((file for file in (*OWN, *_list_system()) if _has(file, character)), OWN[0])


def _has(file: Path, character: str) -> bool:
    try:
        font = _open(file, PROBE_PX)
        return _look(font, character) != _look(font, NOWHERE)
    except OSError:  # a font that FreeType cannot read
        return False


def _look(font: Font, character: str) -> bytes:
    picture = Image.new("L", (2 * PROBE_PX, 2 * PROBE_PX))
    ImageDraw.Draw(picture).text((PROBE_PX // 2, PROBE_PX), character, font=font, fill=255, anchor="ls")
    return picture.tobytes()


@functools.lru_cache(maxsize=64)
def _open(file: Path, size_px: int) -> Font:
    return ImageFont.truetype(file, size_px)


@functools.cache
def _list_system() -> tuple[Path, ...]:
    """Lists the system's fonts, plain upright faces first; bold, slanted, narrow and monospaced ones come last."""
    files = [file for folder in SYSTEM_DIRS if folder.is_dir() for file in sorted(folder.rglob("*"))]
    fonts = [file for file in files if file.suffix.lower() in SUFFIXES]
    return tuple(sorted(fonts, key=_rank)[:MAX_FILES])


def _rank(file: Path) -> tuple[bool, bool, str]:
    name = file.stem.lower()
    is_special = any(word in name for word in ("bold", "italic", "oblique", "mono", "narrow", "condensed", "light"))
    return is_special, "sans" not in name, name

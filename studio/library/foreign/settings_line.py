"""Finds and reads A1111's settings in a text: `Name: value` between commas, wherever they stand.

Programs put any setting first, wrap the line, or write it behind the negative prompt; so a line of settings is one with
several names that are known here, not one that begins with `Steps:`. Values in quotes may hold commas and line breaks,
as may JSON; a quote within a value is an inch. Read in one pass: one regular expression for all of it could be made to
backtrack for ever.
Not here: what the settings mean (a1111.py).
"""

import json
import re
from typing import NamedTuple

from pipelines.messages import say
from studio.library.foreign.bounded import limit_text
from studio.library.foreign.errors import MetadataError

MAX_SETTINGS = 300
ENOUGH = 3  # known names that make a line one of settings
MAX_LINES = 2000  # looked at from the end
MAX_VALUE_LINES = 50  # of one value in quotes

KNOWN = frozenset(
    (
        *("Steps", "Sampler", "Schedule type", "Scheduler", "CFG scale", "Distilled CFG Scale", "Seed", "Size"),
        *("Model", "Model hash", "VAE", "VAE hash", "Batch size", "Batch pos", "Denoising strength", "Clip skip"),
        *("Version", "App", "Pipeline", "Shift", "Lora hashes", "TI hashes", "Hires upscale", "Hires steps"),
        *("Hires upscaler", "Face restoration", "Eta", "ENSD", "RNG", "Civitai resources", "Created Date", "Backend"),
    )
)
_SPELLINGS = {name.lower(): name for name in KNOWN} | {"guidance scale": "CFG scale", "cfg": "CFG scale"}
_NAME = re.compile(r"[ \t]*([A-Za-z][\w \-/.]{0,60}):[ \t]*")
_QUOTED = re.compile(r'"(?:[^"\\]|\\.)*+"(?=[ \t]*(?:,|\n|\Z))', re.DOTALL)
_LINE = re.compile(r"[^,\n]*")
_NAMES = "|".join(sorted(map(re.escape, KNOWN), key=len, reverse=True))
_INLINE = re.compile(rf"(?<=[\s,.])(?:{_NAMES}): ")
_WITHIN = re.compile(rf"(?:^|[\s.])(?:Negative prompt|{_NAMES})$")  # of a name: words of the prompt stand before it
_STEPS = re.compile(r"Steps: *\d")
_JSON = json.JSONDecoder()


class Settings(NamedTuple):
    """The settings by name, and the text before them."""

    values: dict[str, str]
    before: str


def find_settings(text: str) -> Settings | None:
    """Returns the last settings in the text, and what stands before them; None when it has none."""
    lines = text.split("\n")
    starts = [0]
    for line in lines:
        starts.append(starts[-1] + len(line) + 1)
    for number in reversed(range(max(0, len(lines) - MAX_LINES), len(lines))):
        if not _begins_with_name(lines[number]):
            continue
        first = _find_first(lines, number)
        values, _ = _read(text, starts[first])
        if len(values.keys() & KNOWN) >= ENOUGH or _STEPS.match(lines[first]):
            return _find_around(text, lines, starts, first) or Settings(values, text[: starts[first]])
    for number in reversed(range(max(0, len(lines) - MAX_LINES), len(lines))):
        for place in _INLINE.finditer(lines[number]):
            start = starts[number] + place.start()
            values, _ = _read(text, start)
            if len(values.keys() & KNOWN) >= ENOUGH:
                return Settings(values, text[:start])
            break  # what is behind a later name is less
    return None


def _begins_with_name(line: str) -> bool:
    """Tells whether a line begins with a known setting, or consists of settings only, some of them known."""
    name = _NAME.match(line)
    if name is None or line[:1].isspace():
        return False
    if name[1].lower() in _SPELLINGS:
        return True
    names = [found and found[1] for found in map(_NAME.match, line.split(", "))]
    if any(name is None or (name not in KNOWN and _WITHIN.search(name)) for name in names):
        return False
    return len(_read(line, 0)[0].keys() & KNOWN) >= 2


def _find_first(lines: list[str], last: int) -> int:
    """Returns the line that the settings begin with, when they are wrapped over several lines."""
    first, names = last, set(_read(lines[last], 0)[0])
    while first and _begins_with_name(lines[first - 1]):
        above = set(_read(lines[first - 1], 0)[0])
        if len(above & KNOWN) < 2 or above & names:
            break
        first, names = first - 1, names | above
    return first


def _find_around(text: str, lines: list[str], starts: list[int], first: int) -> Settings | None:
    """Returns settings that begin above and reach here: then this line stood within a value of several lines."""
    for number in range(first - 1, max(-1, first - MAX_VALUE_LINES), -1):
        if lines[number].count('"') % 2 and _begins_with_name(lines[number]):
            values, end = _read(text, starts[number])
            if end > starts[first] and len(values.keys() & KNOWN) >= ENOUGH:
                return Settings(values, text[: starts[number]])
    return None


def _read(text: str, start: int) -> tuple[dict[str, str], int]:
    """Reads settings from `start` on, up to a line that begins with no known name; returns them and their end."""
    values: dict[str, str] = {}
    last = ""
    place = start
    while place < len(text):
        name = _NAME.match(text, place)
        if name is None:
            rest = _LINE.match(text, place)
            assert rest is not None, "it matches nothing too"
            if last not in KNOWN and last and rest[0].strip():
                values[last] = f"{values[last]}, {rest[0].strip()}"  # a comma within a value that has no quotes
            place = rest.end()
        else:
            value, place = _read_value(text, name.end())
            last = _SPELLINGS.get(name[1].strip().lower(), name[1].strip())
            values.setdefault(last, limit_text(value, last))
            if len(values) > MAX_SETTINGS:
                raise MetadataError(say("Its recipe has more than {limit} settings.", limit=MAX_SETTINGS))
        if text[place : place + 1] == "\n" and not _goes_on(text, place + 1):
            break
        place += 1
    return values, place


def _goes_on(text: str, place: int) -> bool:
    name = _NAME.match(text, place)
    return name is not None and text[place : place + 1].isalpha() and name[1].lower() in _SPELLINGS


def _read_value(text: str, place: int) -> tuple[str, int]:
    """Returns a value and where it ends: one in quotes, JSON, or all up to the next comma."""
    sign = text[place : place + 1]
    if sign == '"' and (quoted := _QUOTED.match(text, place)):
        return _unquote(quoted[0]), quoted.end()
    if sign in ("[", "{"):
        try:
            _, end = _JSON.raw_decode(text, place)
        except (ValueError, RecursionError):
            pass
        else:
            return text[place:end], end
    plain = _LINE.match(text, place)
    assert plain is not None, "it matches nothing too"
    return plain[0].strip(), plain.end()


def _unquote(quoted: str) -> str:
    try:
        inner = json.loads(quoted, strict=False)
    except ValueError:
        return quoted[1:-1]
    return inner if isinstance(inner, str) else quoted

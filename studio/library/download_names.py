"""Names of files that people save: what was asked for and the seed, as in `a-red-sailboat-42.png`.

A name is valid on every system: letters and digits of any script with hyphens between, no longer than file systems
allow, never a name that Windows reserves. Not here: names in the outputs folder (files.py), which never change.
"""

import re
import unicodedata
from collections.abc import Iterable, Iterator
from pathlib import PurePosixPath

from pipelines.prompts.lora_tags import remove_tags
from studio.library.records import Output

MAX_LETTERS = 56  # with a seed of 19 digits and a suffix about 80
MAX_BYTES = 160  # file systems take 255 for a whole name; Chinese needs 3 a letter


def make_slug(text: str) -> str:
    """Returns the text's letters and digits, lower-case, with a hyphen for everything else; "" when there are none."""
    kept = "".join(
        letter if unicodedata.category(letter)[0] in "LMN" else " "
        for letter in unicodedata.normalize("NFKC", text).replace("'", "").replace("’", "").lower()
    )
    return _shorten("-".join(kept.split()))


def name_download(output: Output, suffix: str) -> str:
    """Returns the name for an output that is saved as `suffix`, such as ".png"."""
    return f"{make_slug(remove_tags(output.recipe.prompt)) or output.kind}-{output.seed}{suffix}"


def name_downloads(outputs: Iterable[Output]) -> Iterator[tuple[Output, str]]:
    """Pairs each output with a name that none of the others has, also where upper and lower case are one."""
    taken: set[str] = set()
    for output in outputs:
        first = PurePosixPath(name_download(output, PurePosixPath(output.file).suffix))
        name, count = first.name, 1
        while name.casefold() in taken:
            count += 1
            name = f"{first.stem}-{count}{first.suffix}"
        taken.add(name.casefold())
        yield output, name


def _shorten(slug: str) -> str:
    """Cuts between words where it can; a letter's bytes and its accents stay together."""
    short = slug[:MAX_LETTERS].encode()[:MAX_BYTES].decode(errors="ignore")
    if short != slug and not slug[len(short) :].startswith("-"):
        short = re.sub(r"-[^-]*$", "", short)
    return short.strip("-")

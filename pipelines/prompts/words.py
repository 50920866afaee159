"""Which words of a prompt a small model never learnt, and prompts of its own that come nearest.

A model whose folder has a words.txt was trained on those words alone, and draws others as if they were not there. Words
that only shape a sentence or praise a picture are not told, nor a word in another form than the one in the list. A
model without that file is taken to know every word.
Not here: how many word pieces a model reads (pieces.py), the sentence for people (reading.py).
"""

import functools
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from pipelines.models.model import Example, Model

WORDS_FILE = "words.txt"
MAX_NAMED = 5  # unknown words, in the order of the prompt
OFFERED = 3  # prompts

_WORD = re.compile(r"[^\W\d_]+")
_ENDINGS = re.compile(r"(?:ing|ed|es|s|e)$")
_MIN_LETTERS = 3  # of a word that is told, and of what is left of one without its ending

# English words that name nothing to draw: of grammar, and of what people write for any picture in any program.
_NAMES_NOTHING = """
    a about above across after against all along also among amongst an and another any are around as at be been before
    behind being below beneath beside between beyond both but by can do does doing down during each else etc every few
    for from get gets getting had has have having he her here hers him his how i if in inside into is it its itself just
    like made make makes making many me more most much my near next no none nor not now of off on once one only onto or
    other our ours out outside over own per please she should show showing shown shows so some such than that the their
    theirs them then there these they this those through to together too toward towards two three four five under until
    up upon us very was we were what when where which while who whose why will with within without would you your yours
    break something anything everything nothing someone anyone
    bright calm cold dark float floating fly flying lie lies lying new old sit sits sitting soft stand stands standing
    warm young
    amazing art artwork award awesome background beautiful best bokeh cinematic close closeup composition detail
    detailed details drawing drawn elegant epic extreme extremely film fine focus foreground gorgeous great hd hdr high
    highly hyper hyperrealistic illustration image intricate landscape lighting lovely masterpiece mood nice painted
    painting perfect photo photograph photographic photography photorealism photorealistic picture portrait postcard
    poster pretty professional quality realism realistic render rendered rendering resolution scene sharp shot shots
    small big large little huge tiny simple still stunning style styled super trending uhd ultra view vivid wallpaper
    winning wonderful artstation
"""


@dataclass(frozen=True, kw_only=True)
class Unknown:
    """Words of a prompt that a model does not know, and examples of its own that come nearest to the prompt."""

    words: tuple[str, ...]
    offers: tuple[Example, ...]


def find_unknown(model: Model, prompt: str, *, has_loras: bool = False) -> Unknown | None:
    """Returns the prompt's unknown words as they are written there, each once; None when there are none.

    There are none with LoRAs, which teach a model words that its list does not have.
    """
    known = frozenset[str]() if has_loras else _read_words(model)
    if not known:
        return None
    words = dict[str, str]()
    for word in _list_words(prompt):
        words.setdefault(word.casefold(), word)
    unknown = [word for name, word in words.items() if _is_told(name) and not _forms(name) & known]
    if not unknown:
        return None
    return Unknown(words=tuple(unknown[:MAX_NAMED]), offers=_choose_offers(model, prompt))


def _list_words(text: str) -> Iterator[str]:
    return (found[0] for found in _WORD.finditer(text))


def _is_told(word: str) -> bool:
    is_short = word.isascii() and len(word) < _MIN_LETTERS
    return not is_short and not _forms(word) & _SILENT


def _forms(word: str) -> set[str]:
    """Returns the word and its stem: `cities` is `city`, `rising` is `rises`."""
    stem = f"{word[:-3]}y" if word.endswith("ies") else _ENDINGS.sub("", word)
    stem = stem[:-1] if len(stem) > _MIN_LETTERS and stem[-1] == stem[-2] else stem
    return {word, stem} if len(stem) >= _MIN_LETTERS else {word}


_SILENT = frozenset(form for word in _NAMES_NOTHING.split() for form in _forms(word))


def _choose_offers(model: Model, prompt: str) -> tuple[Example, ...]:
    """Returns the examples that share most words with the prompt, in the model's order where they share as many."""
    told = {name for word in _list_words(prompt) if _is_told(name := word.casefold())}
    wanted = {form for name in told for form in _forms(name)}

    def count_missing(example: Example) -> int:
        own = {form for word in _list_words(example.prompt) for form in _forms(word.casefold())}
        return -len(own & wanted)

    return tuple(sorted(model.examples, key=count_missing)[:OFFERED])


def _read_words(model: Model) -> frozenset[str]:
    folder = model.in_place.path
    file = None if folder is None else folder / WORDS_FILE
    if file is None or not file.is_file():
        return frozenset()
    return _read_file(file, file.stat().st_mtime_ns)


@functools.lru_cache(maxsize=8)
def _read_file(file: Path, _mtime_ns: int) -> frozenset[str]:
    words = _list_words(file.read_text("utf-8", errors="replace").casefold())
    return frozenset(form for word in words for form in _forms(word))

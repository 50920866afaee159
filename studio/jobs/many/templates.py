"""Prompt templates, which stand for many prompts: `A {red|blue} boat`, `A boat in __weather__`.

`{a|b}` is one of its options, `__name__` one line of a list; both nest. The prompts are counted without enumerating
them, so a template for a billion costs no more than one for ten. Braces without a bar are text, and so are those of
JSON, whatever stands in them: FLUX.2 takes prompts written as JSON. `\\{`, `\\|`, `\\}`, `\\_` and `\\\\` are the
characters themselves. dynamicprompts, the field's library, has had no release since 2024 and can only enumerate; its
weights (`2::red`) and multiple picks (`2$$a|b|c`) are refused here rather than drawn as text.
Not here: where lists come from (library/wildcards.py), seeds and jobs (sweep.py).
"""

import random
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import prod

from pipelines.errors import RecipeError
from pipelines.messages import Message, say

MANY = 10**9  # counting stops here
MAX_DEPTH = 8  # levels of lists that name lists
MAX_BRACES = 20  # levels of nested braces
DRAWS_FOR_EACH = 20  # attempts for each distinct prompt, before fewer are returned
ESCAPABLE = "{|}_\\"

ReadList = Callable[[str], Sequence[str]]
"""Returns the lines of the named list; raises RecipeError when it does not exist."""

_TOKEN = re.compile(r"\\[{|}_\\]|__(?P<list>[A-Za-z0-9][A-Za-z0-9/-]*(?:_[A-Za-z0-9/-]+)*)__|[{|}]")
_JSON = re.compile(r'\s*"(?:[^"\\]|\\.){0,200}"\s*:')  # how a JSON object begins, behind its brace
_FOREIGN = re.compile(r"^\s*(?P<what>\d*\.?\d+\s*::|\d*(?:-\d+)?\$\$)")


@dataclass(frozen=True)
class Text:
    """Literal text."""

    text: str
    count = 1

    def pick(self, _number: int) -> str:
        return self.text

    def draw(self, _rng: random.Random) -> str:
        return self.text


@dataclass(frozen=True)
class Choice:
    """A node that stands for one of its options."""

    options: "tuple[Row | Choice | Text, ...]"

    @cached_property
    def count(self) -> int:
        return min(MANY, sum(option.count for option in self.options))

    def pick(self, number: int) -> str:
        for option in self.options:
            if number < option.count:
                return option.pick(number)
            number -= option.count
        raise IndexError(number)

    def draw(self, rng: random.Random) -> str:
        return rng.choice(self.options).draw(rng)


@dataclass(frozen=True)
class Row:
    """A node that stands for its parts, one after the other."""

    parts: "tuple[Choice | Text, ...]"

    @cached_property
    def count(self) -> int:
        return min(MANY, prod(part.count for part in self.parts))

    def pick(self, number: int) -> str:
        """Returns the prompt of this number, below `MANY`; the last part changes first."""
        texts: list[str] = []
        for part in reversed(self.parts):
            number, here = divmod(number, part.count)
            texts.append(part.pick(here))
        return "".join(reversed(texts))

    def draw(self, rng: random.Random) -> str:
        return "".join(part.draw(rng) for part in self.parts)


@dataclass(frozen=True, kw_only=True)
class Template:
    """A parsed prompt; `is_plain` when it has no choices."""

    row: Row
    is_plain: bool

    @property
    def count(self) -> int:
        """The number of prompts, at most `MANY`; duplicates count too."""
        return self.row.count

    def list_prompts(self, limit: int) -> list[str]:
        """Returns the first prompts in order; the last choice changes first."""
        return [self.row.pick(number) for number in range(min(limit, self.count))]

    def draw_prompts(self, number: int, rng: random.Random) -> list[str]:
        """Returns `number` distinct random prompts, drawing each choice independently; all, if there are no more."""
        if self.count <= number:
            return self.list_prompts(number)
        drawn: dict[str, None] = {}
        for _ in range(number * DRAWS_FOR_EACH):
            drawn[self.row.draw(rng)] = None
            if len(drawn) == number:
                break
        return list(drawn)


def read_template(prompt: str, read_list: ReadList) -> Template:
    """Parses a prompt; raises RecipeError for it when a brace has no partner or a list does not exist."""
    row, is_plain = _Reader(prompt, read_list).read()
    return Template(row=row, is_plain=is_plain)


class _Reader:
    """Parses one text: the prompt, or a line of a list that it names."""

    def __init__(
        self, text: str, read_list: ReadList, *, inside: tuple[str, ...] = (), lists: dict[str, Choice] | None = None
    ) -> None:
        self._text = text
        self._read_list = read_list
        self._inside = inside  # the lists that are being expanded, to detect cycles
        self._lists = {} if lists is None else lists  # cache: each list is parsed once
        self._is_plain = True

    def read(self) -> tuple[Row, bool]:
        # A stack, the innermost open brace last: its options so far, and the parts of the current option.
        open_braces: list[int] = []
        options: list[list[Row]] = [[]]
        parts: list[list[Choice | Text]] = [[]]
        end = 0
        for token in _TOKEN.finditer(self._text):
            parts[-1].append(Text(self._text[end : token.start()]))
            end = token.end()
            what = token.group()
            if token["list"] and not self._is_within_word(token):
                parts[-1].append(self._open_list(token["list"]))
            elif what == "{":
                if len(open_braces) == MAX_BRACES:
                    raise _refuse(say("more than {limit} braces stand inside one another", limit=MAX_BRACES))
                open_braces.append(token.start())
                options.append([])
                parts.append([])
            elif what == "|" and open_braces:
                options[-1].append(Row(tuple(parts.pop())))
                parts.append([])
            elif what == "}":
                if not open_braces:
                    raise _refuse(
                        say(
                            "the } at character {count} was never opened; write \\} for the sign",
                            count=token.start() + 1,
                        )
                    )
                start = open_braces.pop()
                earlier, last = options.pop(), parts.pop()
                if earlier and _JSON.match(self._text, start + 1):
                    parts[-1].append(Text("{"))
                    for row in earlier:
                        parts[-1] += [*row.parts, Text("|")]
                    parts[-1] += [*last, Text("}")]
                elif earlier:
                    _refuse_foreign(self._text[start + 1 : end - 1])
                    self._is_plain = False
                    parts[-1].append(Choice((*earlier, Row(tuple(last)))))
                else:
                    parts[-1] += [Text("{"), *last, Text("}")]
            else:
                parts[-1].append(Text(what if token["list"] else what[-1]))
        if open_braces:
            raise _refuse(
                say("the { at character {count} is never closed; write \\{ for the sign", count=open_braces[-1] + 1)
            )
        return Row((*parts[0], Text(self._text[end:]))), self._is_plain

    def _is_within_word(self, token: re.Match[str]) -> bool:
        """Tells whether letters stand on both sides, as in `foo__bar__baz`: then it is a name, as in programs."""
        before, after = self._text[: token.start()][-1:], self._text[token.end() :][:1]
        return before.isalnum() and after.isalnum()

    def _open_list(self, name: str) -> Choice:
        self._is_plain = False
        if name in self._inside or len(self._inside) >= MAX_DEPTH:
            raise _refuse(
                say(
                    "the wildcard __{name}__ leads back to itself, or through more than {limit} others",
                    name=name,
                    limit=MAX_DEPTH,
                )
            )
        if name not in self._lists:
            inside = (*self._inside, name)
            lines = [_Reader(line, self._read_list, inside=inside, lists=self._lists) for line in self._read_list(name)]
            self._lists[name] = Choice(tuple(line.read()[0] for line in lines))
        return self._lists[name]


def _refuse_foreign(inner: str) -> None:
    for option in inner.split("|"):
        if found := _FOREIGN.match(option):
            raise _refuse(
                say(
                    "{what} in {{inner}} is not known here: write the options alone",
                    what=found["what"].strip(),
                    inner=inner[:40],
                )
            )


def _refuse(message: Message) -> RecipeError:
    return RecipeError({"prompt": message})

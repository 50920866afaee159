"""What a command says of its work besides the result: sentences on what was changed, left out or guessed.

People read each once, on stderr, as soon as it is known; scripts find them all under `notes` of the JSON.
"""

from collections.abc import Iterable

import typer

from pipelines.messages import Message


class Notes:
    """The sentences so far, in order; silent for scripts."""

    def __init__(self, *, is_silent: bool) -> None:
        self.all: list[Message] = []
        self._is_silent = is_silent

    def add(self, notes: Iterable[Message]) -> None:
        """Keeps and prints those that are new."""
        for note in notes:
            if note in self.all:
                continue
            self.all.append(note)
            if not self._is_silent:
                typer.echo(note, err=True)

"""Imports Gradio without what it does for editors at each import.

Every component of Gradio, while its class is made, parses its own source to write a `.pyi` file next to it. That takes
0.7 of the two seconds of an import, and in the end finds the files as they are (Gradio 6.31, component_meta.py). It
leaves out classes whose source cannot be found: for those of its own, here it cannot.
"""

import contextlib
import inspect
from collections.abc import Iterator
from typing import Any

METACLASS = "ComponentMeta"


@contextlib.contextmanager
def without_editor_files() -> Iterator[None]:
    """Lets Gradio's components that are defined meanwhile go without `.pyi` files."""
    find = inspect.getfile

    def find_all_others(thing: Any) -> str:
        if type(thing).__name__ == METACLASS:
            raise OSError(f"the source of {thing} is not asked for")
        return find(thing)

    inspect.getfile = find_all_others  # pyrefly: ignore[bad-assignment] - its parameter is called `object`
    try:
        yield
    finally:
        inspect.getfile = find

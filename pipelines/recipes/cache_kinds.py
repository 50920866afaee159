"""The kinds of step cache; a run with one has a program of its own. Which steps it spares: step_cache.py, taylor.py."""

MAGCACHE = "magcache"
"""A step may add what all layers of an earlier one found."""
TAYLOR = "taylor"
"""A step's answer may be extrapolated from earlier ones."""

SUFFIXES = {"": "", MAGCACHE: " with a step cache", TAYLOR: " with TaylorSeer"}
"""What a kind adds to the names of programs, as people read them."""


def find_kind(text: str | None) -> str:
    """Returns the kind that a recipe's `step_cache` asks for; "" for None."""
    if text is None:
        return ""
    return TAYLOR if text.startswith(TAYLOR) else MAGCACHE

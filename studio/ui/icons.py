"""The page's icons and wordmark, drawn here: one sprite (icons.svg), referenced by name from panels and scripts.

Each icon is a 16 x 16 stroke drawing; colour and width come from the style sheet (static/css/base.css).
"""

import re
from pathlib import Path

SPRITE = (Path(__file__).parent / "icons.svg").read_text("utf-8")
_NAMES = set(re.findall(r'id="lu-i-(\w+)"', SPRITE))

_DOTS = [(x, y) for y in (4, 12, 20) for x in (4, 12, 20)]
_LIT = {(4, 4): 0.6, (4, 12): 0.8, (4, 20): 1.0, (12, 20): 0.8, (20, 20): 0.6}

# A mesh of nine nodes; the lit ones draw an L, brightest where its strokes meet.
MARK = (
    '<svg viewBox="0 0 24 24" aria-hidden="true"><path d="M4 4v16h16" fill="none" stroke="#ff9d3c" stroke-opacity=".45"'
    ' stroke-width="1.6"/>'
    + "".join(
        f'<circle cx="{x}" cy="{y}" r="3" fill="#ff9d3c" fill-opacity="{_LIT[x, y]}"/>'
        if (x, y) in _LIT
        else f'<circle cx="{x}" cy="{y}" r="1.7" fill="currentColor" fill-opacity=".28"/>'
        for x, y in _DOTS
    )
    + "</svg>"
)


def icon(name: str) -> str:
    """Returns the icon's markup; fails for a name that does not exist."""
    assert name in _NAMES, name
    return f'<svg class="lu-icon" aria-hidden="true"><use href="#lu-i-{name}"></use></svg>'

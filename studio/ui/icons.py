"""The page's icons and wordmark, drawn here: one sprite, referenced by name from panels and scripts.

Each is a 16 x 16 stroke drawing; colour and width come from the style sheet (static/css/base.css).
"""

_DRAWINGS = {
    "spark": '<path d="M8 1.8c.5 3.3 1.8 5.1 6.2 6.2-4.4 1.1-5.7 2.9-6.2 6.2C7.5 10.9 6.2 9.1 1.8 8 6.2 6.9 7.5 5.1 8 1.8Z"/>',
    "stop": '<rect x="4" y="4" width="8" height="8" rx="1.6"/>',
    "close": '<path d="m4 4 8 8M12 4l-8 8"/>',
    "retry": '<path d="M13.2 8a5.2 5.2 0 1 1-1.6-3.750"/><path d="M13.4 2.2v3h-3"/>',
    "download": '<path d="M8 2.2v7.6M4.8 6.8 8 10l3.2-3.2M2.6 13.4h10.8"/>',
    "sliders": '<path d="M2 5h6.5M12 5h2M2 11h2M7.5 11H14"/><circle cx="10.2" cy="5" r="1.7"/><circle cx="5.7" cy="11" r="1.7"/>',
    "copy": '<rect x="5.4" y="5.4" width="8.2" height="8.2" rx="1.8"/><path d="M10.6 2.4H4.2a1.8 1.8 0 0 0-1.8 1.8v6.4"/>',
    "seed": '<path d="M8 14V8.4M8 8.6C8 5.4 5.8 3.6 2.6 3.4c0 3.2 2 5.2 5.4 5.2ZM8 10.6c0-2.8 2-4.6 5.4-4.8 0 3-2 4.8-5.4 4.8Z"/>',
    "dice": '<rect x="2.4" y="2.4" width="11.2" height="11.2" rx="2.6"/><path d="M5.7 5.7h.01M10.3 10.3h.01M10.3 5.7h.01M5.7 10.3h.01M8 8h.01" stroke-width="2"/>',
    "lock": '<rect x="3.2" y="7.2" width="9.6" height="6.4" rx="1.6"/><path d="M5.2 7.2V5a2.8 2.8 0 0 1 5.6 0v2.2"/>',
    "unlock": '<rect x="3.2" y="7.2" width="9.6" height="6.4" rx="1.6"/><path d="M5.2 7.2V5a2.8 2.8 0 0 1 5.4-1"/>',
    "sun": '<circle cx="8" cy="8" r="2.9"/><path d="M8 1.4v1.2M8 13.4v1.2M1.4 8h1.2M13.4 8h1.2M3.3 3.3l.9.9M11.8 11.8l.9.9M12.7 3.3l-.9.9M4.2 11.8l-.9.9"/>',
    "moon": '<path d="M13.6 9.7A5.9 5.9 0 0 1 6.3 2.4a5.9 5.9 0 1 0 7.3 7.3Z"/>',
    "keyboard": '<rect x="1.6" y="3.8" width="12.8" height="8.4" rx="1.8"/><path d="M4.3 6.6h.01M6.8 6.6h.01M9.3 6.6h.01M11.8 6.6h.01" stroke-width="1.9"/><path d="M5.2 9.6h5.6"/>',
    "queue": '<path d="M2.4 4h11.2M2.4 8h11.2M2.4 12h6.8"/>',
    "chevron": '<path d="m6 3.6 4.4 4.4L6 12.4"/>',
    "alert": '<path d="M8 5.2v3.6M8 11.2h.01M6.9 2.4 1.7 11.6a1.3 1.3 0 0 0 1.1 2h10.4a1.3 1.3 0 0 0 1.1-2L9.1 2.4a1.3 1.3 0 0 0-2.2 0Z"/>',
    "pause": '<path d="M5.4 3.4v9.2M10.6 3.4v9.2"/>',
    "minus": '<path d="M3.6 8h8.8"/>',
    "left": '<path d="M10 3.6 5.6 8l4.4 4.4"/>',
    "grid": '<rect x="2.4" y="2.4" width="4.6" height="4.6" rx="1.2"/><rect x="9" y="2.4" width="4.6" height="4.6" rx="1.2"/><rect x="2.4" y="9" width="4.6" height="4.6" rx="1.2"/><rect x="9" y="9" width="4.6" height="4.6" rx="1.2"/>',
}  # fmt: skip

SPRITE = (
    '<svg width="0" height="0" style="position:absolute" aria-hidden="true">'
    + "".join(f'<symbol id="lu-i-{name}" viewBox="0 0 16 16">{drawing}</symbol>' for name, drawing in _DRAWINGS.items())
    + "</svg>"
)

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
    """The icon `name` as markup; fails on a name that is not drawn."""
    assert name in _DRAWINGS, name
    return f'<svg class="lu-icon" aria-hidden="true"><use href="#lu-i-{name}"></use></svg>'

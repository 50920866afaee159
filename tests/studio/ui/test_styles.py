"""What the style sheets promise: where the keyboard is does not look like what is chosen."""

import re

from studio.ui import page

THEMES = (":root {", ':root[data-theme="dark"] {')


def read_colours(theme: str) -> dict[str, str]:
    tokens = (page.STATIC_DIR / "css" / "tokens.css").read_text("utf-8")
    block = tokens.partition(theme)[2].partition("\n}")[0]
    return dict(re.findall(r"(--[\w-]+): (#\w+);", block))


def test_the_focus_ring_is_blue_in_both_themes_and_the_selection_is_not() -> None:
    for theme in THEMES:
        colours = read_colours(theme)
        red, _, blue = (int(colours["--focus-line"][at : at + 2], 16) for at in (1, 3, 5))
        assert blue > red + 50, theme
        red, _, blue = (int(colours["--accent-line"][at : at + 2], 16) for at in (1, 3, 5))
        assert red > blue + 50, theme
    film = (page.STATIC_DIR / "css" / "film.css").read_text("utf-8")
    both = film.partition('[aria-current="true"]:focus-visible {')[2].partition("}")[0]
    assert "--accent-line" in both and "--focus-line" in both

"""The picker of a language: a browser's own list of choices behind an icon, or beside the word where there is room.

Set and read by static/js/core/language.js.
"""

from studio.ui.catalogues import LANGUAGES
from studio.ui.icons import icon

_OPTIONS = "".join(
    f'<option value="{name}" lang="{language.tag}">{language.name}</option>' for name, language in LANGUAGES.items()
)


def make_picker(element_id: str, *, is_worded: bool = False) -> str:
    """For the header; `is_worded` is for places where narrow screens find it."""
    style = "lu-button" if is_worded else "lu-icon-button"
    word = '<span data-text="picker.language"></span>' if is_worded else ""
    return (
        f'<label class="lu-language {style}" data-text-title="picker.language">{icon("globe")}{word}'
        f'<select id="{element_id}" data-languages data-text-aria-label="picker.language">{_OPTIONS}</select></label>'
    )

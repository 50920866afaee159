"""The language picker: a native select behind an icon, or beside the word where there is room.

static/js/core/language.js sets and reads it.
"""

from studio.ui.catalogues import LANGUAGES
from studio.ui.icons import icon

_OPTIONS = "".join(
    f'<option value="{name}" lang="{language.tag}">{language.name}</option>' for name, language in LANGUAGES.items()
)


def make_picker(element_id: str, *, is_worded: bool = False) -> str:
    """Returns the picker's markup for the header, or, with `is_worded`, for the place that narrow screens use."""
    style = "lu-button" if is_worded else "lu-icon-button"
    word = '<span data-text="picker.language"></span>' if is_worded else ""
    return (
        f'<label class="lu-language {style}" data-text-title="picker.language">{icon("globe")}{word}'
        f'<select id="{element_id}" data-languages data-text-aria-label="picker.language">{_OPTIONS}</select></label>'
    )

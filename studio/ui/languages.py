"""The language picker: a native select behind an icon.

static/js/core/language.js sets and reads it; on narrow screens static/js/system/more.js offers its languages in a menu.
"""

from studio.ui.catalogues import LANGUAGES
from studio.ui.icons import icon

_OPTIONS = "".join(
    f'<option value="{name}" lang="{language.tag}">{language.name}</option>' for name, language in LANGUAGES.items()
)


PICKER = (
    f'<label class="lu-language lu-icon-button" data-text-title="picker.language">{icon("globe")}'
    f'<select id="lu-language" data-text-aria-label="picker.language">{_OPTIONS}</select></label>'
)

"""The login page leads to the studio from wherever it is shown."""

import re

from studio.access_settings import Mode
from studio.ui.login_page import LoginForm, show_login


def test_below_the_callback_font_and_link_are_found_too() -> None:
    """The hub's answer that failed is shown at /login/callback."""
    for root in ("", "../"):
        visit = LoginForm(language="en", onward="presets", problem="Try again.", root=root)
        text = bytes(show_login(Mode.HUGGINGFACE, visit).body).decode()
        found = re.findall(r'(?:url\("|class="button" href=")([^"]+)"', text)
        assert found[-1] == f"{root}login/huggingface?next=presets"
        assert f"{root}login/inter.woff2" in found

"""The manual in a real browser: opened from Help, in the studio's colours, within its policy, for everybody (axe)."""

from collections.abc import Callable
from typing import Any

import pytest

pytest.importorskip("playwright.sync_api")
from playwright.sync_api import expect

from tests.browser.axe import run_axe

pytestmark = pytest.mark.browser
DESK = {"width": 1440, "height": 900}
PHONE = {"width": 390, "height": 844}
BACKGROUNDS = {"dark": "rgb(11, 12, 14)", "light": "rgb(243, 243, 241)"}
SLOW_MS = 60_000  # axe looks at every element


@pytest.mark.parametrize(("viewport", "scheme"), [(DESK, "dark"), (PHONE, "light")], ids=["desk", "phone"])
def test_a_page_of_the_manual_opens_from_help(
    open_page: Callable[..., Any], keep: Callable[[Any, str], None], viewport: dict[str, int], scheme: str
) -> None:
    studio = open_page(viewport=viewport, color_scheme=scheme)
    if viewport is PHONE:
        studio.click("#lu-more")
        studio.get_by_role("menuitem", name="Help").click()
    else:
        studio.keyboard.press("Escape")  # leaves the prompt
        studio.keyboard.press("?")
    with studio.context.expect_page() as opened:
        studio.click("#lu-keys a[href='help/settings']")
    page = opened.value
    page.set_default_timeout(SLOW_MS)
    refused: list[str] = []
    page.on("console", lambda message: refused.append(message.text) if message.type == "error" else None)
    page.reload()
    expect(page.locator("h1")).to_have_text("Settings")
    expect(page.locator("body")).to_have_css("background-color", BACKGROUNDS[scheme])
    for name in ("settings", "measured", "demos"):
        page.click(f"#pages a[href='{name}']")
        expect(page.locator(f"#pages a[href='{name}']")).to_have_attribute("aria-current", "page")
        assert page.evaluate("document.documentElement.scrollWidth") == viewport["width"], f"{name} scrolls sideways"
        violations = run_axe(page)
        assert [one["id"] for one in violations if one["impact"] in ("serious", "critical")] == [], name
        keep(page, f"manual-{name}-{scheme}")
    page.wait_for_function("[...document.images].some((image) => image.naturalWidth > 0)")
    assert refused == []
    page.click("header a[href='../']")
    expect(page.locator("#lu-sizes")).to_be_attached()

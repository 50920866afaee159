"""What a newcomer does first: look at the model, type before and after the page is ready, wait for a picture."""

import re
from collections.abc import Callable
from typing import Any

import pytest
from playwright.sync_api import expect

pytestmark = pytest.mark.browser
STUDIO_FLAGS = ("--prewarm", "demo-sdxl:256x256*2")  # and conftest.py's --model demo-sdxl, not the catalogue's first
PHONE = {"width": 390, "height": 844}
DESK = {"width": 1440, "height": 900}
CARD = "#lu-sizes [role=radio][data-key='256x256']"
# The big clock, and the clock in the line below it, as they stand at the same moment.
CLOCKS = """() => {
  const big = document.querySelector(".lu-frame-wait b")?.textContent;
  const line = document.querySelector("#lu-phase")?.textContent.split(" · ")[0];
  return [big, line].every((one) => / (passed|left)$/.test(one)) ? [big, line] : null;
}"""

OpenPage = Callable[..., Any]
Keep = Callable[[Any, str], None]


def test_the_page_opens_with_the_operators_model_and_says_what_is_warm_for_so_many_images(
    open_page: OpenPage, keep: Keep
) -> None:
    page = open_page()
    expect(page.locator("#lu-model")).to_have_value("demo-sdxl")
    hint = page.locator("#lu-size-hint")
    expect(hint).to_have_text("Compiled and in memory: starts at once.")
    page.click("#lu-batch [data-key='2']")
    expect(hint).to_have_text("For 2 images at once: compiled and in memory, starts at once.", timeout=30_000)
    page.fill("#lu-guidance_scale-value", "1")
    page.click("#lu-batch [data-key='4']")
    expect(hint).to_have_text(re.compile("For 4 images at once without guidance: never compiled here"))
    page.click("#lu-batch [data-key='1']")
    expect(hint).to_have_text(re.compile("For one image without guidance: compiled and in memory"))
    page.fill("#lu-guidance_scale-value", "4")
    page.click("#lu-batch [data-key='4']")
    expect(page.locator(CARD)).to_have_attribute("data-state", "cold")
    keep(page, "size-of-four-dark")

    page.fill("#lu-prompt", "A red sailboat")
    page.fill("#lu-steps-value", "4")
    page.click("#lu-generate")
    big, line = page.wait_for_function(CLOCKS, polling="raf").json_value()
    assert big == line
    assert re.fullmatch(r"\d+ s (passed|left)", big)
    keep(page, "clock-dark")
    expect(hint).to_have_text("For 4 images at once: compiled and in memory, starts at once.")
    keep(page, "size-of-four-warm-dark")


def test_what_is_typed_reaches_the_prompt_whatever_has_the_focus_and_letters_act_on_results_alone(
    open_page: OpenPage, keep: Keep
) -> None:
    page = open_page(viewport=PHONE, color_scheme="light")
    prompt, view = page.locator("#lu-prompt"), page.locator("html")
    expect(prompt).not_to_be_focused()  # a phone's keyboard would pop up
    page.select_option("#lu-model", "demo-flux2")
    page.set_viewport_size(DESK)
    page.click("#lu-keys-button")
    page.uncheck("#lu-single-keys")
    keep(page, "help-keys-light")

    held: list[Any] = []
    page.route("**/js/page.js", lambda route: held.append(route))
    page.reload(wait_until="commit")
    prompt.fill("An early boat")
    page.keyboard.press("Control+Enter")
    page.evaluate("document.activeElement.blur()")
    page.keyboard.type(" at sea", delay=1)
    held[0].continue_()
    tile = page.locator(".lu-film-item").first
    expect(page.locator(".lu-bar-main")).to_have_text("An early boat at sea", timeout=30_000)
    expect(prompt).to_have_value("An early boat at sea")
    expect(prompt).to_be_focused()
    expect(page.locator("#lu-model")).to_have_value("demo-flux2")  # the visitor's own choice stays

    for place in (page.locator("#lu-generate"), page.locator(".lu-views [data-view=create]"), tile):
        place.press("s")  # on the tile too: single keys are switched off
        expect(prompt).to_be_focused()
    expect(prompt).to_have_value("An early boat at seasss")
    page.click("#lu-keys-button")
    page.check("#lu-single-keys")
    page.keyboard.press("Escape")
    for key, name in (("s", "system"), ("l", "gallery"), ("g", "presets")):
        tile.press(key)
        expect(view).to_have_attribute("data-view", name)
        page.keyboard.press("Escape")
        expect(prompt).to_be_focused()
    page.locator("#lu-generate").press("t")
    expect(view).to_have_attribute("data-theme", "light")
    expect(prompt).to_have_value("An early boat at seassst")

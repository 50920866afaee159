"""A grid, from its dialog to its sheet and back, by keyboard and on a phone."""

from collections.abc import Callable
from typing import Any

import pytest

pytest.importorskip("playwright.sync_api")
from playwright.sync_api import expect

pytestmark = pytest.mark.browser
PHONE = {"width": 390, "height": 844}

OpenPage = Callable[..., Any]
Keep = Callable[[Any, str], None]


def test_a_grid_is_counted_queued_shown_and_used_again(open_page: OpenPage, keep: Keep) -> None:
    page = open_page()
    page.fill("#lu-prompt", "A red boat")
    page.click("#lu-xyz-open")
    expect(page.locator("#lu-xyz-x-values")).to_be_focused()
    page.keyboard.type("many")
    page.select_option("#lu-xyz-y-field", "prompt")
    page.fill("#lu-xyz-y-values", "red, blue")
    expect(page.locator("#lu-xyz-x-message")).to_contain_text("neither a number nor a range")
    page.fill("#lu-xyz-x-values", "1-2")
    expect(page.locator("#lu-xyz-x-message")).to_be_empty()
    expect(page.locator("#lu-xyz-count")).to_contain_text("2 × 2 = 4 jobs")

    page.select_option("#lu-xyz-z-field", "shape")
    page.click("#lu-xyz-z-all")
    expect(page.locator("#lu-xyz-costs li[data-state=cold]").first).to_contain_text("is compiled first")
    expect(page.locator("#lu-xyz-queue")).to_have_text("Queue 16 jobs")
    keep(page, "grid-dark")
    page.fill("#lu-xyz-z-values", "1-2-3")
    expect(page.locator("#lu-xyz-z-message")).to_contain_text("is not a shape")
    page.select_option("#lu-xyz-z-field", "")
    expect(page.locator("#lu-xyz-queue")).to_have_text("Queue 4 jobs")
    page.locator("#lu-xyz-y-values").press("Enter")
    expect(page.locator("#lu-xyz")).to_be_hidden()

    show = page.get_by_role("button", name="Show", exact=True)
    expect(show).to_be_visible(timeout=60_000)
    facts, film = page.locator("#lu-bar .lu-bar-sub"), page.locator(".lu-film-item")
    expect(facts).to_contain_text("Steps: 1-2 · Prompt: red, blue")  # the sheet, where its cells were
    expect(film).to_have_count(5)
    expect(film.first).to_have_attribute("aria-current", "true")
    card = page.locator(".lu-queue-item").first
    expect(card.locator(".lu-queue-prompt")).to_have_text("Steps: 1-2 · Prompt: red, blue · A red boat")
    expect(card.locator(".lu-queue-state")).to_have_text("Grid · just now")
    expect(card.locator("img")).to_be_visible()
    expect(page.locator("#lu-bar .lu-button").first).to_have_text("Download")
    show.click()
    expect(page.locator("#lu-detail")).to_be_visible()
    expect(page.locator("#lu-detail-body")).to_contain_text("Prompt: red, blue")
    page.wait_for_function("document.querySelector('#lu-detail-stage img')?.naturalWidth > 512")
    keep(page, "grid-sheet-dark")
    page.get_by_role("button", name="Use grid").click()
    expect(page.locator("#lu-xyz")).to_be_visible()
    expect(page.locator("#lu-xyz-x-values")).to_have_value("1-2")
    expect(page.locator("#lu-prompt")).to_have_value("A red boat")
    page.keyboard.press("Escape")
    expect(page.locator("#lu-xyz")).to_be_hidden()
    page.reload()
    expect(facts).to_contain_text("Steps: 1-2 · Prompt: red, blue")
    page.locator("#lu-favourite").click()
    expect(film.first.locator(".lu-film-star")).to_be_visible()
    page.get_by_role("button", name="Clear").click()
    expect(page.locator(".lu-queue-item")).to_have_count(0)
    film.first.press("Delete")
    expect(film).to_have_count(4)
    page.locator("#lu-toasts").get_by_role("button", name="Undo").click()
    expect(film).to_have_count(5)
    film.first.click()
    page.locator("#lu-bar").get_by_role("button", name="Use grid").click()
    expect(page.locator("#lu-xyz-y-values")).to_have_value("red, blue")


def test_the_dialog_fits_a_phone(open_page: OpenPage, keep: Keep) -> None:
    page = open_page(viewport=PHONE, color_scheme="light")
    page.fill("#lu-prompt", "A red boat")
    page.click("#lu-xyz-open")
    page.fill("#lu-xyz-x-values", "1-200")
    page.fill("#lu-xyz-y-values", "2-8 (+2)")
    expect(page.locator("#lu-xyz-x-message")).to_contain_text("at most 100")
    page.fill("#lu-xyz-x-values", "1-50")
    expect(page.locator("#lu-xyz-count")).to_contain_text("50 × 4 = 200 jobs; at most 100 at a time")
    page.fill("#lu-xyz-x-values", "4, 8")
    expect(page.locator("#lu-xyz-queue")).to_have_text("Queue 8 jobs")
    keep(page, "grid-phone-light")
    box = page.locator("#lu-xyz").bounding_box()
    assert box["x"] >= 0 and box["x"] + box["width"] <= PHONE["width"]
    assert page.evaluate("document.documentElement.scrollWidth") <= PHONE["width"]

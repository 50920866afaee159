"""The column of settings: its order and its widths, what is folded, and what stands there once."""

from collections.abc import Callable
from typing import Any

import pytest

pytest.importorskip("playwright.sync_api")
from playwright.sync_api import expect

pytestmark = pytest.mark.browser
WIDTHS = (390, 1024, 1280, 1440, 1920)
# The styles whose name does not fit.
FOOT = """() => {
  const [foot, style] = ["prompt-foot", "style"].map((name) => document.querySelector(`.lu-${name}`));
  const chosen = style.value;
  const clipped = [...style.options].filter((option) => {
    style.value = option.value;
    const isInside = style.getBoundingClientRect().right <= foot.getBoundingClientRect().right;
    return !(isInside && foot.scrollWidth <= foot.clientWidth && style.scrollWidth <= style.clientWidth);
  });
  style.value = chosen;
  return clipped.map((option) => option.textContent);
}"""

OpenPage = Callable[..., Any]
Keep = Callable[[Any, str], None]


def _top(page: Any, field: str) -> float:
    return page.locator(f"#lu-controls [data-field={field}]").bounding_box()["y"]


def test_what_is_changed_most_stands_first_and_the_rest_is_folded_as_it_was_left(
    open_page: OpenPage, keep: Keep
) -> None:
    page = open_page()
    fold, style = page.locator("#lu-fold"), page.locator("#lu-style")
    expect(style.locator("option:checked")).to_have_text("Style: none")
    expect(page.locator("#lu-empty")).to_be_visible()
    expect(page.locator("#lu-examples button").first).to_be_hidden()  # its card says the same
    page.fill("#lu-prompt", "A red boat at sea")
    for language in ("zh", "en"):
        page.evaluate("(language) => localStorage.setItem('lumesh.language', language)", language)
        page.reload()
        expect(page.locator("#lu-prompt-count")).not_to_be_empty()
        expect(style.locator("option")).not_to_have_count(1)
        for width in WIDTHS:
            page.set_viewport_size({"width": width, "height": 900})
            assert page.evaluate(FOOT) == [], (language, width)
    page.set_viewport_size({"width": 1440, "height": 900})
    tops = [_top(page, field) for field in ("prompt", "model", "shape", "batch_size", "seed", "steps")]
    assert tops == sorted(tops)
    seed, dock = page.locator("#lu-seed").bounding_box(), page.locator(".lu-dock").bounding_box()
    assert seed and dock and seed["y"] + seed["height"] < dock["y"]
    fold.locator("summary").click()
    expect(page.locator("#lu-steps")).to_be_hidden()
    expect(page.locator("#lu-fold-facts")).to_have_text("12 steps · guidance 4 · Euler")
    keep(page, "controls-folded-dark")
    page.reload()
    expect(page.locator("#lu-fold-facts")).to_be_visible()
    page.locator("#lu-steps-value").evaluate(
        "(field) => { field.value = 101; field.dispatchEvent(new Event('input')); }"
    )
    page.click("#lu-generate")
    expect(page.locator("[data-message=steps]")).to_contain_text("101 is out of range")  # opened for what is wrong
    page.fill("#lu-steps-value", "2")
    page.click("#lu-generate")
    expect(page.locator(".lu-result")).to_be_visible()
    expect(page.locator("#lu-examples button").first).to_be_visible()


def test_a_model_that_is_not_here_is_downloaded_only_after_its_size_was_told(open_page: OpenPage) -> None:
    page = open_page()
    room: dict[str, int | None] = {"bytes": None, "free_bytes": 412_000_000_000}

    def without_weights(route: Any) -> None:
        answer = route.fetch().json()
        for model in answer["models"]:
            model["is_here"] = model["id"] != "sdxl-base"
        route.fulfill(json=answer)

    page.route("**/api/v1/models", without_weights)
    page.route("**/api/v1/models/sdxl-base/download", lambda route: route.fulfill(json=room))
    asked: list[str] = []
    page.on("dialog", lambda dialog: (asked.append(dialog.message), dialog.dismiss()))
    page.reload()
    page.select_option("#lu-model", "sdxl-base")
    expect(page.locator("#lu-model option:checked")).to_have_text("Stable Diffusion XL 1.0 (not on this machine)")
    page.fill("#lu-prompt", "A boat")
    for size, words in (
        (6_938_000_000, "(6.9 GB, 412 GB free). Download now?"),
        (500_000_000_000, "it needs 500 GB, and only 412 GB are free, so it will not fit"),
        (None, "the Hub does not tell now; 412 GB are free"),
    ):
        room["bytes"] = size
        with page.expect_event("dialog"):
            page.click("#lu-generate")
        assert words in asked[-1]
        expect(page.locator("#lu-generate")).not_to_have_attribute("aria-disabled", "true")
    expect(page.locator(".lu-queue-item[data-state=queued], .lu-queue-item[data-state=running]")).to_have_count(0)

"""The Train view: twelve pictures dropped, captioned in one click, learnt from, paused, gone on with, and used."""

import io
import re
from collections.abc import Callable
from typing import Any

import pytest
from PIL import Image

playwright_api = pytest.importorskip("playwright.sync_api", reason="browser tests need `pip install playwright`")
expect = playwright_api.expect

from tests.browser.axe import run_axe

OpenPage = Callable[..., Any]
Keep = Callable[[Any, str], None]
PHONE = {"width": 390, "height": 844}
DONE_MS = 60_000
DROP = """(files) => {
  const data = new DataTransfer();
  for (const [name, bytes] of files) data.items.add(new File([new Uint8Array(bytes)], name, { type: "image/png" }));
  const options = { bubbles: true, cancelable: true, dataTransfer: data };
  document.querySelector("#lu-train").dispatchEvent(new DragEvent("drop", options));
}"""


def draw_files(count: int, *, first: int = 0) -> list[list[Any]]:
    files = []
    for number in range(first, first + count):
        png = io.BytesIO()
        shade = 20 * number % 256
        Image.radial_gradient("L").resize((96, 72)).convert("RGB").point(lambda v, s=shade: (v + s) % 256).save(
            png, "PNG"
        )
        files.append([f"zorb-{number}.png", list(png.getvalue())])
    return files


def open_train(open_page: OpenPage, **options: Any) -> Any:
    page = open_page(**options)
    page.locator("#lu-nav-train").click()
    expect(page.locator("#lu-train-title")).to_be_focused()
    expect(page.locator("#lu-train-model option")).not_to_have_count(0)
    return page


def drop(page: Any, count: int, *, first: int = 0) -> None:
    page.evaluate(DROP, draw_files(count, first=first))
    expect(page.locator("#lu-train-pictures li")).to_have_count(count)
    expect(page.locator("#lu-train-pictures .lu-input-state:not([hidden])")).to_have_count(0)


def check_access(page: Any) -> None:
    """Whether everybody can use the view, as far as axe-core sees."""
    found = run_axe(page, "#lu-train")
    assert not found, [(one["id"], [node["html"] for node in one["nodes"]]) for one in found]


def test_twelve_pictures_become_a_lora_that_is_used(open_page: OpenPage, keep: Keep) -> None:
    page = open_train(open_page)
    drop(page, 12)
    page.locator("#lu-train-all").fill("A zorb on a table")
    page.get_by_role("button", name="Use for all").click()
    expect(page.get_by_role("textbox", name="Caption of picture 12")).to_have_value("A zorb on a table")
    page.get_by_role("textbox", name="Trigger word").fill("zorb")
    expect(page.get_by_role("textbox", name="Name")).to_have_value("zorb")
    page.get_by_role("radio", name="Gentle").click()
    expect(page.locator("#lu-train-numbers")).to_have_text("400 steps · rank 8 · learning rate 0.001")
    expect(page.locator("#lu-train-cost")).to_have_text(re.compile("no training of this model was measured here"))
    expect(page.locator("#lu-train-keep-note")).to_have_text(re.compile("without the trigger word"))
    page.get_by_role("radio", name="Other things").click()
    expect(page.locator("#lu-train-keep-note")).to_have_text(re.compile("^First the model makes 12 pictures"))
    page.get_by_role("textbox", name="What to keep").fill("A dog\nA boat\n" + "x" * 2001)
    page.get_by_role("button", name="Train", exact=True).click()
    expect(page.locator('[data-message="prior_prompts"]')).to_have_text(
        re.compile("^Line 3: string should have at most")
    )
    page.get_by_role("textbox", name="What to keep").fill("A dog\nA boat")
    check_access(page)
    keep(page, "train-form-dark")
    page.get_by_role("button", name="Train", exact=True).click()

    card = page.locator("#lu-train-cards article")
    expect(card.locator("h3")).to_have_text("zorb")
    expect(page.locator("#lu-train-pictures li")).to_have_count(0)
    expect(card.locator(".lu-training-strip img")).not_to_have_count(0)
    pause = card.get_by_role("button", name="Pause")
    pause.click()
    expect(card).to_have_attribute("data-state", "paused")
    expect(card.locator(".lu-training-state")).to_have_text(re.compile(r"^Paused · saved at step \d+/400"))
    keep(page, "train-paused-dark")
    card.get_by_role("button", name="Go on").click()
    expect(card).to_have_attribute("data-state", "done", timeout=DONE_MS)
    expect(card.locator("figcaption").first).to_have_text(re.compile(r"^Loss from [\d.]+ to [\d.]+, step 400 of 400$"))
    expect(card.locator(".lu-training-strip figcaption").first).to_have_text("Step 400")
    check_access(page)
    keep(page, "train-done-dark")

    card.get_by_role("button", name="Use it: zorb").click()
    expect(page.locator('#lu-loras-list li[data-key="zorb"]')).to_be_visible()
    expect(page.locator("#lu-prompt")).to_have_value("A zorb on a table")


def test_what_is_missing_is_said_where_it_is_missing(open_page: OpenPage) -> None:
    page = open_train(open_page)
    page.get_by_role("button", name="Train", exact=True).click()
    expect(page.locator('[data-message="pictures"]')).to_have_text("Add at least one picture.")
    drop(page, 2, first=12)
    page.get_by_role("textbox", name="Caption of picture 1").fill("A zorb")
    page.get_by_role("button", name="Train", exact=True).click()
    expect(page.locator("#lu-train-pictures li").nth(1).get_by_role("alert")).to_have_text(re.compile("trigger word"))
    expect(page.locator('[data-message="name"]')).to_have_text("Needs a letter or a digit.")
    page.reload()
    expect(page.locator("#lu-train-pictures li")).to_have_count(2)
    expect(page.get_by_role("textbox", name="Caption of picture 1")).to_have_value("A zorb")


def test_it_fits_a_phone(open_page: OpenPage, keep: Keep) -> None:
    page = open_train(open_page, viewport=PHONE, color_scheme="light")
    drop(page, 3, first=20)
    assert page.evaluate("document.querySelector('#studio').scrollWidth") <= PHONE["width"]
    check_access(page)
    keep(page, "train-phone-light")
    page.locator("#lu-train-go").scroll_into_view_if_needed()
    keep(page, "train-phone-form-light")

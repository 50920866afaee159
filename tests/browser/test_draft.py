"""What somebody typed outlives every click: Undo, Ctrl+Z, and the prompts of before; examples and unknown words."""

import json
import re
import urllib.request
from collections.abc import Callable
from typing import Any

import pytest

pytest.importorskip("playwright.sync_api")
from playwright.sync_api import expect

pytestmark = pytest.mark.browser
OWN = "A yellow boat of my own,\nwith words that took me an hour"
PROMPT, RESULT, UNDO = "#lu-prompt", ".lu-result", "#lu-toasts button"

OpenPage = Callable[..., Any]
Keep = Callable[[Any, str], None]


def read_jobs(studio: Any) -> list[dict[str, Any]]:
    with urllib.request.urlopen(f"{studio.url}/api/v1/jobs") as answer:
        return sorted(json.load(answer)["jobs"], key=lambda job: job["created_at"])


def read_model(studio: Any) -> dict[str, Any]:
    """The one that the page opens with."""
    with urllib.request.urlopen(f"{studio.url}/api/v1/models") as answer:
        found = json.load(answer)
    return next(model for model in found["models"] if model["id"] == found["default"])


def wait_idle(page: Any, count: int, studio: Any) -> dict[str, Any]:
    """Waits for so many jobs that are done; returns the newest."""
    page.wait_for_function("!document.querySelector('#lu-generate[aria-disabled=true]')")
    for _ in range(150):
        jobs = read_jobs(studio)
        if len(jobs) == count and all(job["state"] == "done" for job in jobs):
            return jobs[-1]
        page.wait_for_timeout(100)
    raise AssertionError(f"no {count} jobs that are done: {[job['state'] for job in read_jobs(studio)]}")


def test_a_first_visitor_makes_an_example_with_one_click_and_learns_which_words_are_unknown(
    open_page: OpenPage, studio: Any, keep: Keep
) -> None:
    page = open_page()
    expect(page.locator("#lu-empty")).to_be_visible()
    model = read_model(studio)
    cards = page.locator(".lu-card")
    expect(cards).to_have_count(len(model["examples"]))
    page.wait_for_function(
        "[...document.querySelectorAll('.lu-card img, .lu-chip img')].every((one) => one.naturalWidth > 64)"
    )
    assert page.locator(".lu-card img").count() == len(model["examples"])
    keep(page, "cards-dark")
    assert page.get_attribute("#lu-steps", "max") == "40"
    assert page.get_attribute("#lu-steps-value", "max") == "100"

    cards.nth(3).click()
    expect(page.locator(RESULT)).to_be_visible()
    example, made = model["examples"][3], wait_idle(page, 1, studio)
    assert (made["recipe"]["prompt"], made["recipe"]["seed"]) == (example["prompt"], example["seed"])
    assert (made["recipe"]["shape"], made["recipe"]["steps"]) == (
        model["defaults"]["shape"],
        model["defaults"]["steps"],
    )
    expect(page.locator("#lu-toasts")).to_be_empty()  # nothing was lost
    expect(page.locator("#lu-seed")).to_have_value("")
    width = page.evaluate("document.querySelector('.lu-result').getBoundingClientRect().width")
    assert width == 512  # twice as large as it is
    expect(page.locator(".lu-frame-caption")).to_contain_text("256 × 256")
    keep(page, "postcard-dark")

    page.fill(PROMPT, "Portrait of a cat astronaut, cinematic")
    unknown = page.locator("#lu-prompt-unknown")
    expect(unknown).to_contain_text("This model knows no “cat”, “astronaut”.")
    expect(unknown.get_by_role("button")).to_have_count(3)
    expect(page.locator("#lu-prompt-notes")).to_be_hidden()
    keep(page, "unknown-before")
    page.click("#lu-generate")
    above = page.locator("#lu-lacking")
    expect(above).to_contain_text("This model knows no “cat”, “astronaut”.")
    expect(unknown).to_be_hidden()  # said once
    wait_idle(page, 2, studio)
    expect(page.locator("#lu-bar")).to_contain_text(
        re.compile(r"^Portrait of a cat astronaut, cinematicPostcards.* · seed \d")
    )
    keep(page, "unknown-after")
    above.get_by_role("button").first.click()
    assert wait_idle(page, 3, studio)["recipe"]["seed"] == model["examples"][0]["seed"]
    expect(above).to_be_hidden()

    page.select_option("#lu-model", "sdxl-base")
    expect(page.locator(".lu-chip img")).to_have_count(0)
    expect(page.locator("#lu-prompt-unknown")).to_be_hidden()


def test_what_was_typed_comes_back_and_so_do_earlier_prompts(open_page: OpenPage, studio: Any, keep: Keep) -> None:
    page = open_page()
    before = len(read_jobs(studio))
    expect(page.locator("#lu-prompt-history")).to_be_hidden()
    page.fill(PROMPT, OWN)
    page.fill("#lu-steps-value", "5")
    chips = page.locator("#lu-examples button")

    page.locator("#lu-examples button:visible, #lu-cards button:visible").nth(1).click()  # it is made at once
    expect(page.locator(PROMPT)).to_have_value(chips.nth(1).get_attribute("title"))
    expect(page.locator("#lu-steps-value")).to_have_value("12")
    expect(page.locator("#lu-toasts")).to_contain_text("The example replaced your draft")
    keep(page, "undo-dark")
    page.click(UNDO)
    expect(page.locator(PROMPT)).to_have_value(OWN)
    expect(page.locator("#lu-steps-value")).to_have_value("5")

    wait_idle(page, before + 1, studio)
    page.get_by_role("button", name="Use settings").click()
    expect(page.locator(PROMPT)).to_have_value(chips.nth(1).get_attribute("title"))
    expect(page.locator(UNDO)).to_have_text("Undo")
    page.locator(PROMPT).press("Control+z")
    expect(page.locator(PROMPT)).to_have_value(OWN)
    expect(page.locator("#lu-steps-value")).to_have_value("5")

    page.select_option("#lu-model", "demo-flux2")
    expect(page.locator("#lu-steps-value")).to_have_value("8")
    page.click(UNDO)
    expect(page.locator("#lu-model")).to_have_value("demo-sdxl")
    expect(page.locator("#lu-steps-value")).to_have_value("5")

    page.press(PROMPT, "Control+Enter")
    wait_idle(page, before + 2, studio)
    page.fill(PROMPT, "half a")
    field = page.locator(PROMPT)
    field.press("Home")
    field.press("ArrowUp")
    expect(field).to_have_value(OWN)
    field.press("ArrowUp")
    expect(field).to_have_value(chips.nth(1).get_attribute("title"))
    field.press("ArrowUp")  # there is no older one
    expect(field).to_have_value(chips.nth(1).get_attribute("title"))
    field.press("ArrowDown")
    field.press("ArrowDown")
    expect(field).to_have_value("half a")
    field.press("ArrowUp")
    field.press("Control+End")
    field.press("ArrowUp")  # within its two lines
    expect(field).to_have_value(OWN)
    page.keyboard.type("!")
    field.press("Control+z")
    expect(field).to_have_value(OWN)
    field.press("Control+z")
    expect(field).to_have_value("half a")  # what stood there before arrow up

    page.set_viewport_size({"width": 390, "height": 844})
    page.reload()
    page.wait_for_selector("#lu-sizes [role=radio]")
    page.fill(PROMPT, "half a boat")
    page.locator("#lu-prompt-history").press("Enter")
    items = page.get_by_role("menuitem")
    expect(items).to_have_count(3)
    keep(page, "history-phone")
    items.first.press("Enter")
    expect(field).to_have_value(OWN)
    expect(field).to_be_focused()
    field.press("Control+z")
    expect(field).to_have_value("half a boat")
    page.locator("#lu-prompt-history").press("Enter")
    page.get_by_role("menuitem", name="Forget them all").click()
    expect(page.locator("#lu-prompt-history")).to_be_hidden()

"""Answers that events or later answers have overtaken: what the page shows stays as it is.

Not here: the order of the line (test_queue.py), the state of a training (test_training_cards.py).
"""

from collections.abc import Callable, Iterator
from typing import Any

import pytest

pytest.importorskip("playwright.sync_api")
from playwright.sync_api import expect

from tests.browser.held import hold_first
from tests.browser.test_queue import call
from tests.browser.test_training_cards import DONE_MS, ask, card_of, open_train
from tests.browser.test_training_cards import call as call_page

pytestmark = pytest.mark.browser
OpenPage = Callable[..., Any]
STAR = ".lu-shot[data-index='0'] .lu-shot-favourite"


@pytest.fixture(autouse=True)
def _as_before(studio: Any) -> Iterator[None]:
    """No test leaves a pause behind for the next one."""
    yield
    call(studio, "POST", "queue/resume")


def test_the_answer_to_a_pause_does_not_undo_that_another_tab_went_on(open_page: OpenPage, studio: Any) -> None:
    page = open_page()
    held = hold_first(page, "/api/v1/queue/pause$")
    button = page.locator("#lu-queue-pause")
    button.click()
    assert held.wait(page)["is_paused"]
    expect(button).to_have_attribute("aria-pressed", "true")  # an event has told it
    call(studio, "POST", "queue/resume")
    expect(button).to_have_attribute("aria-pressed", "false")
    held.release(page)
    expect(button).to_have_attribute("aria-pressed", "false")
    button.click()
    expect(button).to_have_attribute("aria-pressed", "true")


def test_the_engine_of_an_earlier_answer_does_not_replace_what_an_event_told(open_page: OpenPage, studio: Any) -> None:
    page = open_page()
    engine = page.locator(".lu-engine")
    expect(engine).to_have_attribute("data-state", "idle")
    held = hold_first(page, "/api/v1/health$")
    call(studio, "POST", "jobs", {"model": "demo-sdxl", "prompt": "A boat", "steps": 2})
    assert held.wait(page)["engine"]["state"] != "stopped"
    expect(page.locator("img.lu-result")).to_be_visible()
    expect(engine).to_have_attribute("data-state", "idle")
    page.evaluate(
        """() => {
          const engine = document.querySelector(".lu-engine");
          const seen = (globalThis.seenEngines = [engine.dataset.state]);
          new MutationObserver(() => seen.push(engine.dataset.state)).observe(engine, { attributes: true });
        }"""
    )
    held.release(page)
    assert {*page.evaluate("seenEngines")} == {"idle"}, "not even for a moment"


def test_an_older_list_of_loras_does_not_replace_a_later_one(open_page: OpenPage) -> None:
    page = open_page()
    open_train(page)
    job_id = ask(page, "passing", steps=8)
    expect(card_of(page, job_id)).to_have_attribute("data-state", "done", timeout=DONE_MS)
    page.get_by_role("link", name="Create").click()
    offered = page.locator("#lu-loras-choice option", has_text="passing")
    expect(offered).to_have_count(1)
    held = hold_first(page, "/api/v1/loras$")
    page.select_option("#lu-model", "demo-flux2")
    assert len(held.wait(page)["loras"]) == 1
    assert call_page(page, "DELETE", "loras/passing") == 204
    page.select_option("#lu-model", "demo-sdxl")
    expect(offered).to_have_count(0)
    held.release(page)
    expect(offered).to_have_count(0)
    assert call_page(page, "DELETE", f"trainings/{job_id}") == 204


def make(page: Any, studio: Any, prompt: str) -> str:
    """Makes a picture and opens the gallery; returns the picture's id."""
    call(studio, "POST", "jobs", {"model": "demo-sdxl", "prompt": prompt, "steps": 1})
    expect(page.locator(f"img.lu-result[alt='{prompt}']")).to_be_visible()
    page.get_by_role("link", name="Gallery").click()
    expect(page.locator(STAR)).to_have_attribute("aria-pressed", "false")
    return call(studio, "GET", "outputs")["outputs"][0]["id"]


def test_an_older_look_at_an_output_does_not_take_its_star_away(open_page: OpenPage, studio: Any) -> None:
    page = open_page()
    output, star = make(page, studio, "A star"), page.locator(STAR)
    held = hold_first(page, f"/api/v1/outputs/{output}$")
    call(studio, "PATCH", f"outputs/{output}", {"tags": ["seen"]})
    assert not held.wait(page)["favourite"]
    call(studio, "PATCH", f"outputs/{output}", {"favourite": True})
    expect(star).to_have_attribute("aria-pressed", "true")
    held.release(page)
    expect(star).to_have_attribute("aria-pressed", "true")


def test_a_search_that_began_before_a_star_was_given_does_not_take_it_away(open_page: OpenPage, studio: Any) -> None:
    page = open_page()
    make(page, studio, "A comet")
    star = page.locator(STAR)
    held = hold_first(page, r"/api/v1/outputs\?q=comet")
    page.fill("#lu-gallery-search", "comet")
    assert not held.wait(page)["outputs"][0]["favourite"]
    star.click()
    expect(star).to_have_attribute("aria-pressed", "true")
    held.release(page)
    expect(star).to_have_attribute("aria-pressed", "true")


def test_a_list_of_trainings_that_was_asked_for_earlier_takes_no_card_away(open_page: OpenPage) -> None:
    page = open_page()
    held = hold_first(page, r"/api/v1/trainings\?limit=200$")
    open_train(page)
    assert held.wait(page)["trainings"] == []
    card = card_of(page, ask(page, "early", steps=8))
    expect(card).to_have_attribute("data-state", "done", timeout=DONE_MS)
    held.release(page)
    expect(card).to_be_visible()

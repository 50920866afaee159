"""Cards of trainings: what they tell while one learns, after a lost connection, and what can be done with them."""

import re
import urllib.request
from collections.abc import Callable, Iterator
from typing import Any

import httpx
import pytest

playwright_api = pytest.importorskip("playwright.sync_api", reason="browser tests need `pip install playwright`")
expect = playwright_api.expect

from tests.browser.axe import run_axe
from tests.browser.conftest import Studio
from tests.browser.test_training import draw_files

OpenPage = Callable[..., Any]
Keep = Callable[[Any, str], None]
DONE_MS = 60_000
LONG = 1200  # steps: some twenty seconds
WATCH_BAR = """() => {
  const seen = (globalThis.seenBars = []);
  const card = document.querySelector("#lu-train-cards .lu-training");
  const note = () => {
    if (card.dataset.state !== "running") return;
    const text = card.querySelector(".lu-training-state").textContent;
    const done = Number(card.querySelector(".lu-training-bar").style.getPropertyValue("--done"));
    seen.push([done, text]);
  };
  new MutationObserver(note).observe(card, { subtree: true, childList: true, attributes: true, characterData: true });
}"""


@pytest.fixture
def client(studio: Studio) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=studio.url) as client:
        yield client


def ask(page: Any, name: str, *, steps: int, **fields: Any) -> str:
    """Asks for a training of one picture as this page's visitor, and returns its id."""
    [[_, png]] = draw_files(1)
    return page.evaluate(
        """async ([png, asked]) => {
          const form = new FormData();
          form.append("file", new File([new Uint8Array(png)], "zorb.png", { type: "image/png" }));
          const { id } = await (await fetch("api/v1/uploads", { method: "POST", body: form })).json();
          const body = JSON.stringify({ ...asked, pictures: [{ id, caption: "A zorb" }] });
          const headers = { "Content-Type": "application/json" };
          return (await (await fetch("api/v1/trainings", { method: "POST", headers, body })).json()).id;
        }""",
        [png, {"model": "demo-sdxl", "name": name, "trigger": "zorb", "steps": steps, **fields}],
    )


def read(page: Any, path: str) -> Any:
    return page.evaluate("async (path) => (await fetch(`api/v1/${path}`)).json()", path)


def call(page: Any, method: str, path: str) -> int:
    return page.evaluate(
        "async ([method, path]) => (await fetch(`api/v1/${path}`, { method })).status", [method, path]
    )


def open_train(page: Any) -> None:
    page.locator("#lu-nav-train").click()
    expect(page.locator("#lu-train-title")).to_be_focused()


def card_of(page: Any, job_id: str) -> Any:
    return page.locator(f'.lu-training[data-key="{job_id}"]')


def cancel(page: Any, job_id: str) -> None:
    call(page, "DELETE", f"jobs/{job_id}")
    expect(card_of(page, job_id)).to_have_attribute("data-state", "cancelled")


def test_the_bar_is_the_share_of_its_steps_and_never_goes_backwards(open_page: OpenPage) -> None:
    page = open_page()
    open_train(page)
    job_id = ask(page, "bars", steps=200)
    card = card_of(page, job_id)
    expect(card).to_be_visible()
    page.evaluate(WATCH_BAR)
    page.wait_for_function(
        "seenBars.some(([done]) => done > 0.1)"
    )
    card.get_by_role("button", name="Pause").click()
    expect(card).to_have_attribute("data-state", "paused")
    card.get_by_role("button", name="Go on").click()
    expect(card).to_have_attribute("data-state", "done", timeout=DONE_MS)
    seen = page.evaluate("seenBars")
    assert [done for done, _ in seen] == sorted(done for done, _ in seen)
    steps = [(done, re.search(r"Training (\d+)/200", text)) for done, text in seen]
    told = [(done, int(found[1])) for done, found in steps if found]
    assert told and all(abs(done - step / 200) < 0.02 for done, step in told), "it is the steps alone"

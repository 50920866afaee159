"""Each test's visitor is a new one, though the browser's context is that of an earlier test."""

from typing import Any

import pytest

pytest.importorskip("playwright.sync_api")

from tests.browser.visitors import DESK, Visitors

pytestmark = pytest.mark.browser
# All that a page can leave behind, and what of it is found.
LEAVE = """async () => {
  localStorage.setItem("kept", "1");
  sessionStorage.setItem("kept", "1");
  document.cookie = "kept=1";
  await caches.open("kept");
  await new Promise((done) => {
    indexedDB.open("kept").onsuccess = (event) => { event.target.result.close(); done(); };
  });
  await navigator.serviceWorker.register("/service-worker.js");
}"""
FIND = """async () => [
  localStorage.getItem("kept"), sessionStorage.getItem("kept"), document.cookie, ...await caches.keys(),
  ...(await indexedDB.databases()).map(({ name }) => name),
  ...(await navigator.serviceWorker.getRegistrations()).map(({ scope }) => scope),
  Notification.permission, localStorage.getItem("lumesh.more"),
]"""


def test_nothing_of_an_earlier_visitor_is_left(visitors: Visitors, studio: Any) -> None:
    def visit(path: str, script: str) -> Any:
        page = visitors.open_page(DESK, "dark", "reduce")
        page.goto(f"{studio.url}{path}")
        found = page.evaluate(script)
        page.context.grant_permissions(["notifications"])
        contexts.append(page.context)
        visitors.leave()
        return found

    contexts: list[Any] = []
    before = visit("/api/v1/models", FIND)
    assert before[-1] == "open"
    visit("/", LEAVE)
    assert visit("/api/v1/models", FIND) == before
    assert all(context is contexts[0] for context in contexts)


def test_two_who_are_there_at_once_share_nothing(visitors: Visitors, studio: Any) -> None:
    pages = [visitors.open_page(DESK, "dark", "reduce") for _ in range(2)]
    for page in pages:
        page.goto(f"{studio.url}/api/v1/models")
    pages[0].evaluate("localStorage.setItem('kept', '1')")
    assert pages[1].evaluate("localStorage.getItem('kept')") is None
    visitors.leave()

"""Jobs that run together, where devices make outputs of their own: each is seen, and may be ended, on its own."""

import json
import urllib.request
from collections.abc import Callable
from typing import Any

import pytest

pytest.importorskip("playwright.sync_api")
from playwright.sync_api import expect

pytestmark = pytest.mark.browser
STUDIO_FLAGS = ("--mesh", "throughput")
RUNNING, DONE = (f".lu-queue-item[data-state={state}]" for state in ("running", "done"))
NAMES = ["A green hill", "A blue lake", "A red desert"]


def call(studio: Any, path: str, body: dict[str, Any] | None = None) -> Any:
    request = urllib.request.Request(f"{studio.url}/api/v1/{path}", data=json.dumps(body or {}).encode(), method="POST")
    request.add_header("Content-Type", "application/json")
    with urllib.request.urlopen(request) as answer:
        return json.load(answer)


def test_all_that_run_are_listed_and_one_can_leave(
    open_page: Callable[..., Any], studio: Any, keep: Callable[[Any, str], None]
) -> None:
    page = open_page()
    call(studio, "queue/pause")
    for name in NAMES:
        call(studio, "jobs", {"model": "demo-sdxl", "prompt": name, "steps": 40})
    call(studio, "queue/resume")
    expect(page.locator(f"{RUNNING} .lu-queue-prompt")).to_have_text(NAMES)
    expect(page.locator(".lu-film-live")).to_have_count(3)
    expect(page.locator(f"{RUNNING} .lu-queue-art img")).to_have_count(3)
    keep(page, "together-dark")
    second = page.locator(RUNNING).filter(has_text=NAMES[1])
    second.locator(".lu-queue-open").click()
    expect(page.locator("[data-shown=true] .lu-queue-prompt")).to_have_text(NAMES[1])
    second.get_by_role("button", name="Cancel").click()
    expect(page.locator(f"{RUNNING} .lu-queue-prompt")).to_have_text([NAMES[0], NAMES[2]])
    expect(page.locator(DONE)).to_have_count(2)

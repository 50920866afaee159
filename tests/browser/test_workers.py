"""Several workers in a real browser: their list, draining one, where a job runs; two real processes of one studio."""

import json
import urllib.request
from collections.abc import Callable
from typing import Any

import pytest

pytest.importorskip("playwright.sync_api")
from playwright.sync_api import expect

from tests.browser.axe import run_axe

pytestmark = pytest.mark.browser
STUDIO_FLAGS = ("--workers", "2")
PHONE = {"width": 390, "height": 844}

OpenPage = Callable[..., Any]


def post(studio: Any, path: str, **body: Any) -> None:
    headers = {"Content-Type": "application/json"}
    request = urllib.request.Request(f"{studio.url}/api/v1/{path}", json.dumps(body).encode(), headers)
    urllib.request.urlopen(request).close()


def test_workers_are_listed_drained_and_named_by_the_jobs_that_they_run(studio: Any, open_page: OpenPage) -> None:
    page = open_page(viewport=PHONE, color_scheme="light")
    page.goto(f"{studio.url}#system/devices")
    first, second = (page.locator(f'.lu-worker[data-worker="{name}"]') for name in ("local", "local-2"))
    expect(second).to_contain_text("this machine")
    expect(second.locator("li").first).to_contain_text("256 × 256: warm")
    assert run_axe(page, "#lu-sys-panel-devices") == []
    assert page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth") == 0

    first.get_by_role("button", name="Drain").click()
    expect(first).to_contain_text("drained")
    post(studio, "jobs", model="demo-sdxl", prompt="A red boat", steps=90)
    expect(second).to_contain_text("Step")
    page.click("#lu-queue-toggle")
    expect(page.locator('.lu-queue-item[data-state="running"]')).to_contain_text("local-2")
    post(studio, "jobs", model="demo-sdxl", prompt="A blue boat", steps=1)
    expect(page.locator('.lu-queue-item[data-state="queued"]')).to_contain_text("only local-2 makes it")
    post(studio, "jobs/cancel", scope="all")

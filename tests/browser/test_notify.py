"""What tells people that their pictures are ready while they do something else: title, notification, sound."""

import json
import re
import urllib.request
from collections.abc import Callable
from typing import Any

import pytest

pytest.importorskip("playwright.sync_api")
from playwright.sync_api import expect

pytestmark = pytest.mark.browser
OpenPage = Callable[..., Any]

# The browser's own side, written down instead of shown: a test's browser has no screen and no loudspeaker.
WATCH = """() => {
  window.told = [];
  window.tones = 0;
  window.Notification = class {
    static permission = "granted";
    static requestPermission = async () => "granted";
    constructor(title, options) { window.told.push([title, options.body]); }
  };
  const start = OscillatorNode.prototype.start;
  OscillatorNode.prototype.start = function (...when) { window.tones += 1; return start.apply(this, when); };
}"""
LOOK_AWAY = "() => Object.defineProperty(document, 'hidden', { configurable: true, get: () => true })"


def post(studio: Any, path: str, body: Any = None) -> None:
    data, headers = json.dumps(body).encode(), {"Content-Type": "application/json"}
    urllib.request.urlopen(urllib.request.Request(f"{studio.url}/api/v1/{path}", data=data, headers=headers)).close()


def submit(studio: Any, prompt: str, steps: int) -> None:
    post(studio, "jobs", {"model": "demo-sdxl", "prompt": prompt, "steps": steps})


def choose(page: Any, name: str) -> None:
    page.get_by_role("button", name="More of the queue").click()
    page.get_by_role("menuitemcheckbox", name=name).click()


def test_the_title_tells_how_far_the_running_job_is(open_page: OpenPage, studio: Any) -> None:
    page = open_page()
    submit(studio, "A red sailboat", 20)
    expect(page).to_have_title(re.compile(r"^[1-9]\d? % · Lumesh$"))
    expect(page).to_have_title("Lumesh")


def test_one_notification_and_one_sound_for_a_whole_line_of_jobs(open_page: OpenPage, studio: Any) -> None:
    page = open_page()
    page.evaluate(WATCH)
    choose(page, "Notify me when all is done")
    choose(page, "Play a sound, too")
    assert page.evaluate("window.tones") == 2
    page.get_by_role("button", name="More of the queue").click()
    expect(page.get_by_role("menuitemcheckbox", name="Notify me")).to_be_checked()
    page.keyboard.press("Escape")
    page.evaluate(LOOK_AWAY)
    post(studio, "queue/pause")  # or the first might have ended before the last one came
    for prompt in ("The first boat", "fail please", "The last boat"):
        submit(studio, prompt, 4)
    expect(page.locator(".lu-queue-item[data-state=queued]")).to_have_count(3)
    post(studio, "queue/resume")
    page.wait_for_function("window.told.length > 0")
    expect(page.locator(".lu-queue-item[data-state=queued]")).to_have_count(0)
    assert page.evaluate("window.told") == [["2 done, 1 failed", "The last boat"]]
    assert page.evaluate("window.tones") == 4


# What Android's Chrome does: a page may ask, but not show.
NO_CONSTRUCTOR = """() => {
  window.told = [];
  window.Notification = class {
    static permission = "granted";
    static requestPermission = async () => "granted";
    constructor() { throw new TypeError("Illegal constructor. Use ServiceWorkerRegistration.showNotification()"); }
  };
  ServiceWorkerRegistration.prototype.showNotification = async function (title, options) {
    window.told.push([title, options.body, new URL(this.scope).pathname]);
  };
}"""
NO_WORKER = "() => Object.defineProperty(navigator, 'serviceWorker', { value: undefined })"
LOOK_BACK = """() => {
  Object.defineProperty(document, "hidden", { configurable: true, get: () => false });
  document.dispatchEvent(new Event("visibilitychange"));
}"""


def test_on_a_phone_the_service_worker_shows_the_notification(open_page: OpenPage, studio: Any) -> None:
    page = open_page()
    page.evaluate(NO_CONSTRUCTOR)
    choose(page, "Notify me when all is done")
    page.evaluate(LOOK_AWAY)
    submit(studio, "A boat for the phone", 2)
    page.wait_for_function("window.told.length > 0")
    assert page.evaluate("window.told") == [["Your picture is ready", "A boat for the phone", "/"]]
    page.get_by_role("button", name="More of the queue").click()
    expect(page.get_by_role("menuitemcheckbox", name="Notify me")).to_be_checked()


def test_where_nothing_can_show_a_notification_the_page_says_so(open_page: OpenPage, studio: Any) -> None:
    page = open_page()
    page.evaluate(NO_CONSTRUCTOR)
    page.evaluate(NO_WORKER)
    choose(page, "Notify me when all is done")
    page.evaluate(LOOK_AWAY)
    submit(studio, "A boat for nobody", 2)
    expect(page.locator("#lu-bar .lu-bar-main")).to_have_text("A boat for nobody")
    page.wait_for_function("localStorage.getItem('lumesh.notify')?.includes('false')")
    expect(page.locator("#lu-toasts")).to_be_empty()
    page.evaluate(LOOK_BACK)
    expect(page.locator("#lu-toasts")).to_contain_text("This browser shows no notifications")
    page.get_by_role("button", name="More of the queue").click()
    expect(page.get_by_role("menuitemcheckbox", name="Notify me")).not_to_be_checked()

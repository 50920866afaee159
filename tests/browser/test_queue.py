"""What people do with their queue, by mouse and by keyboard: move, edit, repeat, hold, cancel, clear."""

import json
import re
import urllib.request
from collections.abc import Callable, Iterator
from typing import Any

import pytest

pytest.importorskip("playwright.sync_api")
from playwright.sync_api import expect

from tests.browser.held import hold_first

pytestmark = pytest.mark.browser
WAITING = ".lu-queue-item[data-state=queued]"
NAMES = ["The first idea", "The second idea", "The third idea"]

OpenPage = Callable[..., Any]
Keep = Callable[[Any, str], None]

WATCH_ORDER = """() => {
  const list = document.querySelector("#lu-queue-list");
  const order = () => String([...list.querySelectorAll(".lu-queue-prompt")].map((one) => one.textContent));
  const seen = (globalThis.seenOrders = [order()]);
  new MutationObserver(() => seen.push(order())).observe(list, { subtree: true, childList: true, characterData: true });
}"""


def call(studio: Any, method: str, path: str, body: Any = None) -> Any:
    data = None if body is None else json.dumps(body).encode()
    headers = {"Content-Type": "application/json"}
    request = urllib.request.Request(f"{studio.url}/api/v1/{path}", data=data, method=method, headers=headers)
    with urllib.request.urlopen(request) as answer:
        return json.load(answer)


@pytest.fixture(autouse=True)
def _idle(studio: Any) -> Iterator[None]:
    """No test leaves a job or a pause behind for the next one."""
    yield
    call(studio, "POST", "jobs/cancel", {"scope": "all"})
    call(studio, "POST", "jobs/clear")
    call(studio, "POST", "queue/resume")


@pytest.fixture
def line(studio: Any) -> list[str]:
    """Three jobs that wait in a held queue; their ids."""
    call(studio, "POST", "queue/pause")
    recipes = [{"model": "demo-sdxl", "prompt": name, "steps": 2} for name in NAMES]
    return [call(studio, "POST", "jobs", recipe)["id"] for recipe in recipes]


@pytest.fixture
def page_of_line(shared_page: Any, line: list[str]) -> Any:
    """A page on which these jobs wait, and none of an earlier test."""
    shared_page.wait_for_function(
        "([items, ids]) => String([...document.querySelectorAll(items)].map(({ dataset }) => dataset.job)) === ids",
        arg=[WAITING, ",".join(line)],
    )
    return shared_page


def read_order(studio: Any) -> list[str]:
    jobs = call(studio, "GET", "jobs?state=queued")["jobs"]
    return [job["recipe"]["prompt"] for job in sorted(jobs, key=lambda job: job["position"])]


def expect_order(page: Any, studio: Any, *numbers: int) -> None:
    """On the page, and as the server has it."""
    names = [NAMES[number - 1] for number in numbers]
    expect(page.locator(f"{WAITING} .lu-queue-prompt")).to_have_text(names)
    page.wait_for_function("!document.querySelector('#lu-queue-list').ariaBusy")  # the server has answered
    assert read_order(studio) == names


def choose(page: Any, item: Any, name: str) -> None:
    item.hover()
    item.get_by_role("button", name="More").click()
    page.get_by_role("menuitem", name=name).click()


def test_a_job_is_dragged_to_another_place(page_of_line: Any, studio: Any, line: list[str], keep: Keep) -> None:
    page = page_of_line
    items = page.locator(WAITING)
    expect(items).to_have_count(3)
    grip, target = items.nth(0).locator(".lu-queue-grip").bounding_box(), items.nth(2).bounding_box()
    page.mouse.move(grip["x"] + 10, grip["y"] + 10)
    page.mouse.down()
    page.mouse.move(grip["x"] + 10, grip["y"] + 40, steps=4)
    page.mouse.move(grip["x"] + 10, target["y"] + target["height"] - 4, steps=4)
    keep(page, "queue-drag-dark")
    page.mouse.up()
    expect_order(page, studio, 2, 3, 1)
    expect(page.locator("#lu-menu")).to_be_hidden()
    expect(page.locator("#lu-queue-live")).to_have_text("Moved to 3 of 3: The first idea")


def test_a_job_is_moved_with_the_keyboard_and_keeps_the_focus(page_of_line: Any, studio: Any, line: list[str]) -> None:
    page = page_of_line
    page.locator(WAITING).nth(2).locator(".lu-queue-open").focus()
    page.keyboard.press("Alt+ArrowUp")
    expect_order(page, studio, 1, 3, 2)
    assert page.evaluate("document.activeElement.getAttribute('aria-label')") == NAMES[2]
    page.keyboard.press("Alt+ArrowUp")
    expect(page.locator("#lu-queue-live")).to_have_text("Moved to 1 of 3: The third idea")
    expect_order(page, studio, 3, 1, 2)
    _expect_a_family_to_differ(page, studio)
    _expect_the_queue_to_stay_folded(page)


def test_a_list_on_its_way_does_not_bring_an_older_order_back(page_of_line: Any, studio: Any, line: list[str]) -> None:
    page = page_of_line
    held = hold_first(page, r"/api/v1/jobs\?state=queued")
    recipe = {"model": "demo-sdxl", "prompt": "The fourth idea", "steps": 2}
    call(studio, "POST", "jobs", recipe)  # the page reads everybody's places
    held.wait(page)
    page.locator(WAITING).nth(2).locator(".lu-queue-open").focus()
    page.keyboard.press("Alt+ArrowUp")
    names = [NAMES[0], NAMES[2], NAMES[1], "The fourth idea"]
    expect(page.locator(f"{WAITING} .lu-queue-prompt")).to_have_text(names)
    page.wait_for_timeout(500)  # what the move changed was read
    page.evaluate(WATCH_ORDER)
    held.release(page)
    assert read_order(studio) == names
    assert page.evaluate("seenOrders.every((order) => order === seenOrders[0])"), "not even for a moment"
    expect(page.locator(f"{WAITING} .lu-queue-prompt")).to_have_text(names)


def _expect_a_family_to_differ(page: Any, studio: Any) -> None:
    """Cards of jobs whose prompts begin alike say first what tells them apart; the whole prompt is their tooltip."""
    call(studio, "POST", "jobs/cancel", {"scope": "all"})
    call(studio, "POST", "jobs/clear")
    prompts = [f"A red sailboat on the ocean at {time} in {art}" for time in ("dawn", "noon") for art in ("oil", "ink")]
    for prompt in (
        *prompts,
        "红色的帆船在平静的蓝色大海上航行，天空晴朗，黎明",
        "红色的帆船在平静的蓝色大海上航行，天空晴朗，正午",
    ):
        call(studio, "POST", "jobs", {"model": "demo-sdxl", "prompt": prompt, "steps": 2})
    for steps in (2, 3):
        call(studio, "POST", "jobs", {"model": "demo-sdxl", "prompt": "A hut", "steps": steps, "seed": 40 + steps})
    cards = page.locator(f"{WAITING} .lu-queue-prompt")
    expect(cards).to_have_count(8)
    told = ["dawn … oil", "dawn … ink", "noon … oil", "noon … ink", "黎明", "正午"]
    told += ["Seed: 42 · Steps: 2", "Seed: 43 · Steps: 3"]
    whole = page.locator(WAITING).evaluate_all("items => items.map((item) => item.title)")
    expect(cards).to_have_text([f"{first} · {prompt}" for first, prompt in zip(told, whole, strict=True)])
    assert whole[:4] == prompts


def _expect_the_queue_to_stay_folded(page: Any) -> None:
    toggle, stage = page.locator("#lu-queue-toggle"), page.locator(".lu-stage")
    before = stage.bounding_box()["width"]
    expect(toggle).to_have_attribute("aria-expanded", "true")
    toggle.click()
    expect(page.locator("#lu-queue")).to_be_hidden()
    expect(toggle).to_have_attribute("aria-expanded", "false")
    expect(page.locator("#lu-queue-badge")).to_have_text("8")
    assert stage.bounding_box()["width"] > before + 200
    page.reload()
    expect(page.locator("#lu-queue-badge")).to_have_text("8")
    expect(page.locator("#lu-queue")).to_be_hidden()
    toggle.click()
    expect(page.locator(WAITING)).to_have_count(8)


def test_the_menu_of_a_job_works_without_a_mouse(page_of_line: Any, studio: Any, line: list[str]) -> None:
    page = page_of_line
    grip = page.locator(WAITING).nth(2).locator(".lu-queue-grip")
    grip.focus()
    page.keyboard.press("Enter")
    expect(page.get_by_role("menuitem", name="Edit")).to_be_focused()
    page.keyboard.press("Escape")
    expect(page.locator("#lu-menu")).to_be_hidden()
    expect(grip).to_be_focused()
    page.keyboard.press("Enter")
    page.get_by_role("menuitem", name="Move to the front").press("Enter")
    expect_order(page, studio, 3, 1, 2)


def test_a_waiting_job_is_edited_and_the_draft_comes_back(
    page_of_line: Any, studio: Any, line: list[str], keep: Keep
) -> None:
    page = page_of_line
    page.fill("#lu-prompt", "A draft")
    choose(page, page.locator(WAITING).nth(1), "Edit")
    expect(page.locator("#lu-prompt")).to_have_value(NAMES[1])
    expect(page.locator("#lu-editing")).to_be_visible()
    keep(page, "queue-edit-dark")
    page.fill("#lu-prompt", "A better idea")
    page.get_by_role("button", name="Stop editing").click()
    expect(page.locator("#lu-prompt")).to_have_value("A draft")
    page.locator("#lu-toasts").get_by_role("button", name="Undo").click()
    expect(page.locator("#lu-prompt")).to_have_value("A better idea")
    expect(page.locator("#lu-editing")).to_be_visible()
    page.fill("#lu-steps-value", "101")
    page.click("#lu-generate")
    expect(page.locator("[data-message=steps]")).to_contain_text("101 is out of range")
    page.fill("#lu-steps-value", "9")
    page.press("#lu-prompt", "Control+Enter")
    expect(page.locator("#lu-editing")).to_be_hidden()
    expect(page.locator(f"{WAITING} .lu-queue-prompt").nth(1)).to_have_text("A better idea")
    expect(page.locator("#lu-prompt")).to_have_value("A draft")
    assert call(studio, "GET", f"jobs/{line[1]}")["recipe"]["steps"] == 9
    page.fill("#lu-prompt", "")


def test_a_job_that_starts_while_it_is_edited_says_so(open_page: OpenPage, studio: Any, line: list[str]) -> None:
    page = open_page()
    choose(page, page.locator(WAITING).nth(0), "Edit")
    expect(page.locator("#lu-editing")).to_be_visible()
    call(studio, "POST", "queue/resume")
    expect(page.locator("#lu-toasts")).to_contain_text("The job has started; Generate makes another one")
    expect(page.locator("#lu-generate")).to_contain_text("Generate")
    expect(page.locator("#lu-prompt")).to_have_value(NAMES[0])


def test_a_held_queue_says_so_and_goes_on(page_of_line: Any, studio: Any, line: list[str], keep: Keep) -> None:
    page = page_of_line
    expect(page.locator(WAITING).first).to_contain_text("Paused")
    keep(page, "queue-paused-dark")
    page.locator(".lu-queue-held").get_by_role("button", name="Resume").click()
    expect(page.locator(WAITING)).to_have_count(0, timeout=20_000)
    page.get_by_role("button", name="Pause the queue").click()
    expect(page.locator(".lu-queue-held")).to_be_visible()
    assert call(studio, "GET", "queue")["is_paused"]


def test_a_job_is_repeated_with_a_new_seed(page_of_line: Any, studio: Any, line: list[str]) -> None:
    page = page_of_line
    choose(page, page.locator(WAITING).nth(0), "Duplicate")
    expect(page.locator(WAITING)).to_have_count(4)
    first, *_, last = sorted(call(studio, "GET", "jobs?state=queued")["jobs"], key=lambda job: job["position"])
    assert first["recipe"]["prompt"] == last["recipe"]["prompt"]
    assert first["recipe"]["seed"] != last["recipe"]["seed"]


def test_what_waits_is_cancelled_at_once_and_the_list_cleared(page_of_line: Any, studio: Any, line: list[str]) -> None:
    page = page_of_line
    page.get_by_role("button", name="More of the queue").click()
    page.get_by_role("menuitem", name="Cancel waiting jobs (3)").click()
    expect(page.locator("#lu-toasts")).to_contain_text("3 jobs cancelled")
    page.locator("#lu-toasts").get_by_role("button", name="Undo").click()
    expect_order(page, studio, 1, 2, 3)
    page.get_by_role("button", name="More of the queue").click()
    expect(page.get_by_role("menuitem", name="Resume")).to_have_count(0)  # its button stands beside the menu
    page.get_by_role("menuitem", name="Cancel waiting jobs (3)").click()
    expect(page.locator(".lu-queue-item[data-state=cancelled]").nth(2)).to_be_visible()  # and what was cancelled before
    page.get_by_role("button", name="Clear").click()
    expect(page.locator(".lu-queue-item")).to_have_count(0)
    page.reload()
    expect(page.locator("#lu-queue-list")).to_contain_text(re.compile("Paused"))
    expect(page.locator(".lu-queue-item")).to_have_count(0)


def test_all_that_failed_is_retried_at_once(shared_page: Any, studio: Any) -> None:
    page = shared_page
    prompts = ["Fail please, at once", "A boat, then fail please"]
    for prompt in prompts:
        call(studio, "POST", "jobs", {"model": "demo-sdxl", "prompt": prompt, "steps": 2})
    expect(page.locator(".lu-queue-item[data-state=failed]")).to_have_count(2)
    page.get_by_role("button", name="Pause the queue").click()
    page.get_by_role("button", name="More of the queue").click()
    page.get_by_role("menuitem", name="Retry failed jobs (2)").click()
    expect(page.locator(WAITING)).to_have_count(2)
    assert read_order(studio) == prompts
    page.get_by_role("button", name="More of the queue").click()
    expect(page.get_by_role("menuitem", name="Cancel waiting jobs (2)")).to_be_visible()
    expect(page.get_by_role("menuitem", name="Retry failed jobs")).to_have_count(0)


def test_cancelling_all_asks_about_the_job_that_runs(shared_page: Any, studio: Any) -> None:
    page = shared_page
    asked: list[str] = []
    page.once("dialog", lambda dialog: (asked.append(dialog.message), dialog.dismiss()))
    recipe = {"model": "demo-sdxl", "prompt": NAMES[0], "steps": 100}
    job = call(studio, "POST", "jobs", recipe)["id"]
    expect(page.locator(".lu-queue-item[data-state=running]")).to_be_visible()
    page.get_by_role("button", name="More of the queue").click()
    with page.expect_event("dialog"):
        page.get_by_role("menuitem", name="Cancel all my jobs").click()
    assert asked == ["A job of yours is running, and its work so far is lost. Cancel it with all that wait?"]
    assert call(studio, "GET", f"jobs/{job}")["state"] == "running"


def test_choices_and_seeds_are_counted_before_they_are_queued(open_page: OpenPage, studio: Any, keep: Keep) -> None:
    call(studio, "POST", "queue/pause")
    page = open_page()
    count, generate = page.locator("#lu-sweep-count"), page.locator("#lu-generate")
    page.fill("#lu-prompt", "A {red|blue|green} boat at {dawn|dusk}")
    expect(count).to_contain_text("6 prompts = 6 jobs")
    expect(page.locator("#lu-sweep-examples li")).to_have_text(
        ["A red boat at dawn", "A red boat at dusk", "A blue boat at dawn", "… and 3 more"]
    )
    expect(page.locator("#lu-draws-box")).to_contain_text("of these 6, at random")
    assert int(page.input_value("#lu-draws")) < 6
    page.fill("#lu-seeds", "2")
    expect(count).to_contain_text("6 prompts × 2 seeds = 12 jobs")
    page.check("#lu-draws-on")
    page.fill("#lu-draws", "2")
    expect(count).to_contain_text("2 prompts × 2 seeds = 4 jobs")
    expect(generate).to_contain_text("Queue 4 jobs")
    keep(page, "sweep-dark")
    generate.click()
    expect(page.locator(WAITING)).to_have_count(4)
    page.fill("#lu-prompt", "A __nothing__ boat")
    expect(count).to_contain_text("There is no wildcard __nothing__; wildcards here: none yet")
    expect(generate).to_contain_text("Generate")
    page.click("#lu-sweep-system")
    assert page.url.endswith("#system/loras")
    expect(page.locator("#lu-words-name")).to_be_visible()
    page.go_back()
    page.fill("#lu-prompt", "A boat")
    page.fill("#lu-seeds", "1")
    expect(page.locator("#lu-sweep")).to_be_hidden()


def test_a_webhook_is_set_tried_and_removed(shared_page: Any, studio: Any, keep: Keep) -> None:
    page = shared_page
    page.get_by_role("button", name="More of the queue").click()
    page.get_by_role("menuitem", name="Webhook").click()
    address, save = page.locator("#lu-hook-url"), page.get_by_role("button", name="Save", exact=True)
    address.fill("ftp://example.com")
    save.click()
    expect(page.locator("#lu-hook-message")).to_contain_text("write https://host/path")
    address.fill("http://127.0.0.1:9/told")
    save.click()
    expect(page.locator("#lu-hook-message")).to_contain_text("is not on the public internet")
    address.fill("https://no-such-name.invalid/told")
    save.click()
    expect(page.locator("#lu-hook-secret")).to_have_value(re.compile("^whsec_"))
    page.get_by_role("button", name="Send a test").click()
    expect(page.locator("#lu-hook-told")).to_contain_text("its name is not known")
    keep(page, "webhook-dark")
    page.get_by_role("button", name="Remove").click()
    expect(address).to_have_value("")
    page.keyboard.press("Escape")
    expect(page.locator("#lu-hook")).to_be_hidden()
    assert call(studio, "GET", "webhook") == {"webhook": None}

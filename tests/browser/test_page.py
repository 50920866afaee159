"""What people do with the page, in a real browser: make pictures, leave and come back, meet errors, use a phone."""

import json
import re
import signal
import urllib.request
from collections.abc import Callable, Iterator
from typing import Any
from zipfile import ZipFile

import pytest

pytest.importorskip("playwright.sync_api")
from playwright.sync_api import expect

from tests.browser.test_system import find_violations
from tests.browser.visitors import DESK

pytestmark = pytest.mark.browser
PHONE = {"width": 390, "height": 844}
SAILBOAT = "A red sailboat on the ocean at sunset"
PREVIEW, RESULT, CARD, PHASE = ".lu-preview", ".lu-result", "#lu-notice", "#lu-phase"

OpenPage = Callable[..., Any]
Keep = Callable[[Any, str], None]


@pytest.fixture(autouse=True)
def _idle(studio: Any) -> Iterator[None]:
    """No test leaves a job behind for the next one."""
    yield
    for job in _read(studio, "jobs")["jobs"]:
        if job["state"] in ("queued", "running"):
            urllib.request.urlopen(
                urllib.request.Request(f"{studio.url}/api/v1/jobs/{job['id']}", method="DELETE")
            ).close()


def _read(studio: Any, path: str) -> Any:
    with urllib.request.urlopen(f"{studio.url}/api/v1/{path}") as answer:
        return json.load(answer)


def _make(page: Any, prompt: str, *, steps: int | None = None) -> None:
    page.fill("#lu-prompt", prompt)
    if steps is not None:
        page.fill("#lu-steps-value", str(steps))
    page.click("#lu-generate")


def test_generate_shows_phases_and_a_live_preview_then_the_result(open_page: OpenPage, keep: Keep) -> None:
    page = open_page()
    page.fill("#lu-prompt", "A white lighthouse by the sea at night")
    page.press("#lu-prompt", "Control+Enter")
    expect(page.locator(PHASE)).to_have_text(re.compile(r"^\d+ s (left|passed) · Denoising \d+/12$"))
    expect(page.locator(PREVIEW)).to_be_visible()
    assert page.evaluate("document.querySelector('.lu-preview').naturalWidth") > 0
    keep(page, "running-dark")
    expect(page.locator(RESULT)).to_be_visible()
    assert page.evaluate("document.querySelector('.lu-result').naturalWidth") == 256
    expect(page.locator("#lu-bar")).to_contain_text(re.compile(r"256 × 256 · 12 steps · seed \d+ · [\d.]+ s"))
    expect(page.locator("#lu-film-row [aria-current=true] img")).to_be_visible()
    keep(page, "done-dark")


COUNT_FRAMES = """
const ask = window.requestAnimationFrame.bind(window);
window.frames_asked = 0;
window.requestAnimationFrame = (draw) => { window.frames_asked += 1; return ask(draw); };
"""


def test_a_page_that_nobody_touches_draws_nothing(visitors: Any, studio: Any, wait_for: Callable[..., Any]) -> None:
    page = visitors.open_page(DESK, "dark", "no-preference")
    page.add_init_script(COUNT_FRAMES)
    page.goto(studio.url)
    expect(page.locator("#lu-prompt")).to_be_visible()
    asked = page.evaluate("frames_asked")

    def count_frames() -> int:
        before = page.evaluate("frames_asked")
        page.wait_for_timeout(1000)
        return page.evaluate("frames_asked") - before

    wait_for("the page to rest: Gradio's own sign of loading asks for sixty a second", lambda: count_frames() == 0)
    assert page.evaluate("frames_asked") - asked < 100, "the sign's springs swing on for four seconds"
    visitors.leave()


def test_gradios_scripts_talk_to_the_address_that_the_browser_asked(visitors: Any, studio: Any) -> None:
    """Whatever a proxy that is not trusted says of it."""
    page = visitors.open_page(DESK, "dark", "reduce")
    page.set_extra_http_headers({"X-Forwarded-Host": "evil.example", "X-Gradio-Server": "http://b"})
    page.goto(studio.url)
    expect(page.locator("#lu-prompt")).to_be_visible()
    assert page.evaluate("gradio_config.root") == studio.url.rstrip("/")
    assert "[native code]" in page.evaluate("String(window.requestAnimationFrame)")
    visitors.leave()


def test_a_refresh_in_the_middle_keeps_job_and_draft(open_page: OpenPage) -> None:
    page = open_page()
    _make(page, "A blue house in the snow at night", steps=48)
    expect(page.locator(PREVIEW)).to_be_visible()
    page.fill("#lu-prompt", "The next idea")
    page.reload()
    expect(page.locator("#lu-prompt")).to_have_value("The next idea")
    expect(page.locator(PHASE)).to_have_text(re.compile(r"Denoising \d+/48"))
    expect(page.locator(PREVIEW)).to_be_visible()
    expect(page.locator(RESULT)).to_be_visible()
    expect(page.locator("#lu-bar")).to_contain_text("A blue house in the snow at night")


def test_a_second_visitor_sees_the_same_live_job_and_both_see_its_end(open_page: OpenPage) -> None:
    first, second = open_page(), open_page()
    _make(first, "A green cactus in the desert at noon", steps=16)
    for page in (first, second):
        expect(page.locator(PHASE)).to_have_text(re.compile(r"Denoising \d+/16"))
        expect(page.locator(PREVIEW)).to_be_visible()
    for page in (first, second):
        expect(page.locator(RESULT)).to_be_visible()
        expect(page.locator("#lu-bar")).to_contain_text("A green cactus in the desert at noon")


def test_cancel_ends_a_running_and_a_waiting_job(open_page: OpenPage, studio: Any, keep: Keep) -> None:
    page = open_page()
    _make(page, "A job to cancel", steps=100)
    expect(page.locator(PHASE)).to_contain_text("Denoising")
    _make(page, "A job that waits")
    waiting = page.locator(".lu-queue-item[data-state=queued]")
    expect(waiting).to_contain_text("A job that waits")
    keep(page, "queue-dark")
    waiting.get_by_role("button", name="Cancel").click()
    expect(waiting).to_have_count(0)
    page.click("#lu-cancel")
    expect(page.locator(".lu-queue-item[data-state=running]")).to_have_count(0)
    expect(page.locator("#lu-toasts")).to_contain_text("Cancelled")
    assert [job["state"] for job in _read(studio, "jobs")["jobs"][:2]] == ["cancelled", "cancelled"]


def test_a_failed_job_shows_what_to_try_and_can_be_retried(open_page: OpenPage, keep: Keep) -> None:
    page = open_page()
    _make(page, "fail please")
    card = page.locator(CARD)
    expect(card).to_contain_text("Failed as asked")
    expect(card).to_contain_text("What to try: Write another prompt.")
    keep(page, "error-dark")
    first = card.get_attribute("data-key")
    card.get_by_role("button", name="Retry").click()
    expect(card).not_to_have_attribute("data-key", first)  # failed again, as asked again
    expect(card).to_be_visible()
    card.get_by_role("button", name="Dismiss").click()
    expect(card).to_be_hidden()
    _make(page, SAILBOAT, steps=1)
    expect(page.locator(RESULT)).to_be_visible()
    page.reload()
    expect(page.locator("#lu-film")).to_be_visible()
    expect(card).to_be_hidden()


def test_a_crashed_worker_fails_its_job_with_a_card_and_the_next_job_runs(open_page: OpenPage, keep: Keep) -> None:
    page = open_page()
    _make(page, "crash worker")
    expect(page.locator(f"{CARD} .lu-notice-prompt")).to_have_text("crash worker")
    expect(page.locator(f"{CARD} .lu-notice-advice")).to_be_visible()
    keep(page, "crash-dark")
    _make(page, SAILBOAT, steps=2)
    expect(page.locator(RESULT)).to_be_visible()


def test_size_cards_tell_what_is_warm_and_cold_and_learn_from_a_picture(open_page: OpenPage) -> None:
    page = open_page()
    card = page.locator("#lu-sizes [data-key='192x320']")
    expect(page.locator("#lu-sizes [data-key='256x256']")).to_have_attribute("data-state", "warm")
    expect(card).to_contain_text("cold")
    card.click()
    expect(card).to_have_attribute("aria-checked", "true")
    expect(page.locator("#lu-size-hint")).to_contain_text("Never compiled here")
    _make(page, SAILBOAT, steps=4)
    expect(page.locator(PHASE)).to_contain_text("Compiling 192 × 320")
    expect(page.locator(RESULT)).to_be_visible()
    expect(card).to_contain_text(re.compile(r"warm · \d+(\.\d)? s"))
    ratio = page.evaluate(
        "(({width, height}) => width / height)(document.querySelector('.lu-frame').getBoundingClientRect())"
    )
    assert ratio == pytest.approx(192 / 320, rel=0.02)


def test_a_wrong_value_is_told_at_its_field_and_nothing_is_queued(open_page: OpenPage, studio: Any) -> None:
    page = open_page()
    before = len(_read(studio, "jobs")["jobs"])
    page.click("#lu-generate")
    expect(page.locator("[data-message=prompt]")).to_have_text("Write what the picture should show.")
    _make(page, SAILBOAT, steps=101)
    expect(page.locator("[data-message=steps]")).to_contain_text("101 is out of range; allowed: 1 to 100")
    assert len(_read(studio, "jobs")["jobs"]) == before
    page.fill("#lu-steps-value", "12")
    expect(page.locator("[data-message=steps]")).to_be_empty()


def test_a_batch_is_a_grid_and_its_settings_can_be_used_again(open_page: OpenPage, keep: Keep) -> None:
    page = open_page()
    page.click("#lu-batch [data-key='4']")
    _make(page, "A purple hot-air balloon over the mountains at sunrise", steps=6)
    expect(page.locator(PREVIEW)).to_have_count(4)
    expect(page.locator(RESULT)).to_have_count(4)
    keep(page, "batch-dark")
    page.locator(".lu-frame").nth(2).click()
    expect(page.locator(RESULT)).to_have_count(1)
    facts = page.locator("#lu-bar .lu-bar-sub").inner_text()
    seed = facts.split(" · seed ")[1].split()[0]
    assert facts.startswith("Postcards (demo, SDXL layout) · 256 × 256 · 6 steps · seed ")
    assert "chip-seconds" not in facts  # without a price nobody asks
    page.fill("#lu-prompt", "Something else")
    page.get_by_role("button", name="Use settings").click()
    expect(page.locator("#lu-prompt")).to_have_value("A purple hot-air balloon over the mountains at sunrise")
    expect(page.locator("#lu-seed")).to_have_value(seed)
    expect(page.locator("#lu-seed-lock")).to_have_attribute("aria-pressed", "true")
    with page.expect_download() as download:
        page.get_by_role("button", name="Download").click()
    assert download.value.suggested_filename.endswith(".png")
    page.locator("#lu-bar .lu-bar-text").click()
    page.keyboard.press("Escape")
    expect(page.locator(RESULT)).to_have_count(4)
    _expect_a_batch_to_be_kept_compared_and_thrown_away(page, keep)


def _expect_a_batch_to_be_kept_compared_and_thrown_away(page: Any, keep: Keep) -> None:
    """All four at once while they stand together, one of them where it stands alone."""
    with page.expect_download() as download:
        page.get_by_role("button", name="Download all").click()
    assert download.value.suggested_filename.endswith(".zip")
    with ZipFile(download.value.path()) as zipped:
        assert len(zipped.namelist()) == 4
    star, tile = page.locator("#lu-favourite"), page.locator("#lu-film [aria-current=true]")
    star.click()
    expect(star).to_have_attribute("aria-pressed", "true")
    expect(tile).to_have_attribute("aria-label", re.compile("^Favourite: 4: "))

    compare = page.locator("#lu-compare-shown")
    expect(compare).to_be_hidden()  # four have no other
    page.locator(".lu-frame").nth(1).click()
    compare.click()
    expect(page.locator("#lu-compare-stage img")).to_have_count(2)
    expect(page.locator("#lu-compare-diff h3")).to_have_text("1 setting differs")  # the seed
    assert not find_violations(page)
    keep(page, "compare-from-create-dark")
    page.click("#lu-compare-close")
    expect(page.locator("html")).to_have_attribute("data-view", "create")
    expect(page.locator(RESULT)).to_have_count(1)

    page.locator("#lu-bar").press("Delete")  # no result has the focus
    expect(tile.locator(".lu-film-count")).to_have_text("4")
    page.click("#lu-throw-shown")
    expect(tile.locator(".lu-film-count")).to_have_text("3")
    page.keyboard.press("Escape")
    expect(page.locator(RESULT)).to_have_count(3)
    tile.press("Delete")
    expect(page.locator("#lu-toasts")).to_contain_text("3 outputs in the trash")
    expect(page.locator(RESULT)).not_to_have_count(3)
    page.locator("#lu-toasts").get_by_role("button", name="Undo").click()
    expect(page.locator(".lu-film-count", has_text="3")).to_be_visible()


def test_a_swap_is_told_and_a_video_plays(open_page: OpenPage, keep: Keep) -> None:
    page = open_page(reduced_motion="no-preference")
    _make(page, SAILBOAT, steps=2)
    expect(page.locator(f"img{RESULT}[alt='{SAILBOAT}']")).to_be_visible()
    phases = page.evaluate_handle(
        """() => {
          const seen = [];
          const note = () => seen.push(document.querySelector(".lu-frame-wait span, #lu-phase")?.textContent ?? "");
          new MutationObserver(note).observe(document.body, { subtree: true, childList: true, characterData: true });
          return seen;
        }"""
    )
    page.select_option("#lu-model", "wan2.1-14b")
    expect(page.locator("#lu-flow_shift-value")).to_have_value("5")
    page.click("#lu-sizes [data-key='832x480x81']")
    expect(page.locator("#lu-flow_shift-value")).to_have_value("3")
    page.select_option("#lu-model", "wan2.1-1.3b")
    expect(page.locator("#lu-fps-value")).to_have_value("16")
    card = page.locator("#lu-sizes [data-key='832x480x33']")
    card.click()
    expect(card).to_contain_text("832 × 48033 frames (2 s)")
    expect(page.locator("#lu-prompt")).to_have_attribute("placeholder", re.compile("^Describe your video"))
    keep(page, "wan-dark")
    _make(page, "A red sailboat sails to the left", steps=6)
    expect(page.locator(f"{PREVIEW}[data-plays]")).to_be_visible()
    keep(page, "video-running-dark")
    video = page.locator(f"video{RESULT}")
    expect(video).to_be_visible(timeout=20_000)
    page.wait_for_function("(() => { const v = document.querySelector('video'); return v.currentTime > 0; })()")
    facts = video.evaluate(
        "v => [v.videoWidth, v.videoHeight, v.paused, v.muted, Math.round(v.duration * 16), v.controls]"
    )
    assert facts == [832, 480, False, True, 33, True]
    assert not find_violations(page)
    expect(page.locator("#lu-bar .lu-bar-sub")).to_contain_text("832 × 480, 33 frames (2 s)")
    assert any("Unloading" in text for text in phases.json_value())
    cost = re.compile(r"switched in [\d.]+ s: unloading 0\.\d s, loading 0\.\d s, compiling \d\.\d s")
    expect(page.locator("#lu-bar .lu-bar-sub")).to_have_text(cost)
    expect(page.locator("#lu-bar")).to_contain_text("16 frames a second")
    for name in ("GIF", "WebP"):
        with page.expect_download() as download:
            page.get_by_role("button", name=name).click()
        assert download.value.suggested_filename.endswith(f".{name.lower()}")
    keep(page, "video-done-dark")
    page.get_by_role("button", name="Enlarge").click()
    expect(page.get_by_role("dialog", name="Enlarged video").locator("video")).to_be_visible()
    page.keyboard.press("Escape")
    page.select_option("#lu-model", "demo-sdxl")
    expect(page.locator("#lu-fps")).to_be_hidden()


def test_a_second_expert_has_a_guidance_of_its_own(open_page: OpenPage, studio: Any, keep: Keep) -> None:
    page = open_page()
    second = page.locator("#lu-guidance_scale_2-value")
    expect(second).to_be_hidden()
    page.select_option("#lu-model", "wan2.2-a14b")
    expect(second).to_have_value("3")
    page.click("#lu-sizes [data-key='832x480x33']")
    second.fill("2.5")
    keep(page, "wan-experts-dark")
    _make(page, "Two experts at work", steps=2)
    expect(page.locator(f"video{RESULT}")).to_be_visible(timeout=20_000)
    expect(page.locator("#lu-bar")).to_contain_text("guidance 4 then 2.5", timeout=20_000)
    page.select_option("#lu-model", "wan2.1-1.3b")
    expect(second).to_be_hidden()
    page.get_by_role("button", name="Use settings").click()
    expect(second).to_have_value("2.5")


NAMES = ["Download", "Use settings", "Reuse seed", "Use as input", "Favourite", "Move to trash"]


def test_a_result_is_marked_as_a_favourite_where_it_was_made(open_page: OpenPage, studio: Any, keep: Keep) -> None:
    page = open_page()
    _make(page, "A boat to keep", steps=2)
    expect(page.locator("#lu-bar .lu-bar-main")).to_have_text("A boat to keep")
    star, tile = page.locator("#lu-favourite"), page.locator("#lu-film [aria-current=true]")
    expect(star).to_have_attribute("aria-pressed", "false")
    star.click()
    expect(star).to_have_attribute("aria-pressed", "true")
    expect(tile.locator(".lu-film-star")).to_be_visible()
    expect(tile).to_have_attribute("aria-label", "Favourite: A boat to keep")
    assert _read(studio, "outputs?favourite=true")["outputs"][0]["recipe"]["prompt"] == "A boat to keep"
    keep(page, "favourite-dark")
    page.reload()
    expect(star).to_have_attribute("aria-pressed", "true")
    tile.press("f")
    expect(star).to_have_attribute("aria-pressed", "false")
    expect(tile.locator(".lu-film-star")).to_be_hidden()
    page.click(".lu-views [data-view=gallery]")
    page.locator(".lu-shot").first.locator(".lu-shot-favourite").click()
    page.click(".lu-views [data-view=create]")
    expect(star).to_have_attribute("aria-pressed", "true")
    phone = open_page(viewport={"width": 390, "height": 844}, color_scheme="light")
    expect(phone.locator("#lu-favourite")).to_be_visible()
    assert phone.evaluate("document.documentElement.scrollWidth <= innerWidth")
    for one, action in ((page, "word beside"), (phone, "label below")):
        names = one.locator("#lu-bar .lu-button:not(.lu-brief) span").evaluate_all(
            "all => all.filter((e) => e.offsetWidth && e.scrollWidth <= e.offsetWidth).map((e) => e.innerText)"
        )
        assert [name for name in names if name != "Compare"] == NAMES, action
    keep(phone, "favourite-phone-light")


def test_the_keyboard_reaches_everything(open_page: OpenPage) -> None:
    page = open_page()
    for prompt in ("The older one", "The newer one"):
        _make(page, prompt, steps=2)
        expect(page.locator("#lu-bar .lu-bar-main")).to_have_text(prompt)
        expect(page.locator(RESULT)).to_be_visible()
    page.keyboard.press("Escape")  # leaves the form
    page.keyboard.press("ArrowRight")
    expect(page.locator("#lu-bar .lu-bar-main")).to_have_text("The older one")
    page.locator(".lu-film-item[aria-current=true]").press("z")
    expect(page.locator("#lu-zoom")).to_be_visible()
    page.keyboard.press("ArrowLeft")
    expect(page.locator("#lu-zoom img")).to_have_attribute("alt", "The newer one")
    page.keyboard.press("Escape")
    expect(page.locator("#lu-zoom")).to_be_hidden()
    page.keyboard.press("?")
    expect(page.locator("#lu-keys")).to_be_visible()
    page.keyboard.press("Escape")
    expect(page.locator("#lu-keys")).to_be_hidden()
    page.keyboard.press("/")
    expect(page.locator("#lu-prompt")).to_be_focused()


def test_a_prompt_is_text_everywhere_and_never_markup(open_page: OpenPage) -> None:
    page = open_page()
    _make(page, "<img src=x onerror=\"document.title='owned'\"><b>bold</b>", steps=2)
    expect(page.locator(RESULT)).to_have_count(1)  # whatever the test before made is gone
    expect(page.locator("#lu-bar .lu-bar-main")).to_contain_text("<b>bold</b>")
    assert page.locator("#studio b:text('bold')").count() == 0
    assert page.title() != "owned"


def test_on_a_phone_nothing_overflows_and_generate_is_always_there(open_page: OpenPage, keep: Keep) -> None:
    page = open_page(viewport=PHONE, color_scheme="light")
    generate = page.locator("#lu-generate")

    def check() -> None:
        assert page.evaluate(
            "[document.documentElement, document.getElementById('studio')].every(box => box.scrollWidth <= innerWidth)"
        )
        box = generate.bounding_box()
        assert box and box["x"] >= 0 and box["y"] + box["height"] <= PHONE["height"]
        assert box["x"] + box["width"] <= PHONE["width"]

    check()
    page.evaluate("document.getElementById('studio').scrollTo(0, 1e6)")
    check()
    keep(page, "phone-settings-light")
    _make(page, "A long prompt " + "withoutanyspace" * 20, steps=40)  # long enough to be looked at twice
    expect(page.locator(PREVIEW)).to_be_in_viewport()
    check()
    keep(page, "phone-running-light")
    page.click("#lu-queue-toggle")
    expect(page.locator(".lu-queue-item[data-state=running]")).to_be_visible()
    check()
    page.keyboard.press("Escape")
    expect(page.locator(RESULT)).to_be_in_viewport()
    check()
    keep(page, "phone-done-light")


def test_dark_and_light_follow_the_system_until_somebody_chooses(open_page: OpenPage, keep: Keep) -> None:
    def brightness(page: Any) -> int:
        colour = page.evaluate("getComputedStyle(document.querySelector('.lu-controls')).backgroundColor")
        return sum(int(part) for part in re.findall(r"\d+", colour)[:3])

    assert brightness(open_page(color_scheme="dark")) < 150
    page = open_page(color_scheme="light")
    assert brightness(page) > 600
    keep(page, "light")
    page.click("#lu-theme")
    assert brightness(page) < 150
    page.reload()
    page.wait_for_selector(".lu-controls")
    assert brightness(page) < 150


def test_a_killed_server_is_waited_for_and_its_job_can_be_retried(open_page: OpenPage, studio: Any, keep: Keep) -> None:
    page = open_page(watch=False)  # requests fail while the server is down, which is the point
    _make(page, "A job that is interrupted", steps=40)
    expect(page.locator(PREVIEW)).to_be_visible()
    studio.stop(signal.SIGKILL)
    expect(page.locator("#lu-engine-state")).to_have_text("Reconnecting…")
    clock = page.locator(".lu-queue-item[data-state=running] .lu-queue-state").inner_text()
    page.wait_for_timeout(1200)
    assert page.locator(".lu-queue-item[data-state=running] .lu-queue-state").inner_text() == clock  # nobody knows
    keep(page, "reconnecting-dark")
    studio.start()
    card = page.locator(CARD)
    expect(card).to_contain_text("Interrupted", timeout=20_000)
    expect(page.locator("#lu-prompt")).to_have_value("A job that is interrupted")
    keep(page, "interrupted-dark")
    card.get_by_role("button", name="Retry").click()
    expect(page.locator(PHASE)).to_contain_text("Denoising")
    expect(page.locator(PREVIEW)).to_be_visible()


def test_gradio_clients_reach_the_same_queue(studio: Any) -> None:
    gradio_client = pytest.importorskip("gradio_client")
    client = gradio_client.Client(studio.url, verbose=False)
    job_id = client.predict({"model": "demo-sdxl", "prompt": SAILBOAT, "steps": 100}, api_name="/submit")
    assert client.predict(job_id, api_name="/status")["recipe"]["steps"] == 100
    assert client.predict(job_id, api_name="/cancel") in ("running", "cancelled")
    with pytest.raises(Exception, match="allowed: 1 to 100"):
        client.predict({"model": "demo-sdxl", "prompt": SAILBOAT, "steps": 101}, api_name="/submit")


def test_on_the_narrowest_phones_everything_in_the_header_can_be_reached(open_page: OpenPage) -> None:
    for width in (360, 320):
        page = open_page(viewport={"width": width, "height": 640}, color_scheme="light")
        rights = page.locator(".lu-header-actions > :visible").evaluate_all(
            "elements => elements.map((element) => element.getBoundingClientRect().right)"
        )
        assert rights and max(rights) <= width
        link = page.get_by_role("link", name="System")
        link.click()
        expect(link).to_be_in_viewport(ratio=1)
        assert page.evaluate("document.querySelector('#studio').scrollWidth") <= width

"""The gallery in a real browser: outputs are found, opened, used again, marked, thrown away, taken back, compared."""

import json
import re
import urllib.request
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("playwright.sync_api")
from playwright.sync_api import expect

from studio.library.download_names import make_slug

pytestmark = pytest.mark.browser
STUDIO_FLAGS = ("--chip-price", "1.2")
PHONE = {"width": 390, "height": 844}
TILE, DETAIL, TOASTS = ".lu-shot:not([hidden])", "#lu-detail", "#lu-toasts"
PROMPTS = ("A red sailboat at sunset", "A blue house at noon", "A green cactus at night")

OpenPage = Callable[..., Any]
Keep = Callable[[Any, str], None]


def _call(studio: Any, path: str, body: Any = None, *, method: str | None = None) -> Any:
    data = None if body is None else json.dumps(body).encode()
    headers = {"Content-Type": "application/json"}
    request = urllib.request.Request(f"{studio.url}/api/v1/{path}", data, headers, method=method)
    with urllib.request.urlopen(request) as answer:
        return json.load(answer)


@pytest.fixture(scope="module")
def originals() -> list[str]:
    """The three outputs that `made` gives, once they were made."""
    return []


@pytest.fixture
def made(studio: Any, originals: list[str], wait_for: Callable[..., Any]) -> list[str]:
    """Three outputs and nothing else, newest first, without marks; the seed is the place in PROMPTS."""
    others = {output["id"] for output in _call(studio, "outputs?limit=200")["outputs"]} - {*originals}
    if others:
        _call(studio, "outputs/trash", {"ids": [*others]})
    if originals:
        _call(studio, "outputs/restore", {"ids": originals})
    _call(studio, "outputs/purge", {"ids": None})
    kept = [output["id"] for output in _call(studio, "outputs")["outputs"]]
    if not originals or kept != originals:
        if kept:
            _call(studio, "outputs/trash", {"ids": kept})
            _call(studio, "outputs/purge", {"ids": None})
        for seed, prompt in enumerate(PROMPTS):
            _call(studio, "jobs", {"model": "demo-sdxl", "prompt": prompt, "seed": seed, "steps": 1 + seed})
        wait_for("three outputs", lambda: _call(studio, "outputs")["total"] == 3)
        originals[:] = [output["id"] for output in _call(studio, "outputs")["outputs"]]
    for output in originals:
        _call(studio, f"outputs/{output}", {"favourite": False, "tags": []}, method="PATCH")
    return [*originals]


@pytest.fixture
def shared_page(made: list[str], shared_page: Any) -> Any:
    """A page that opens after `made` is done: one that is still loading a picture when that deletes it gets a 404."""
    return shared_page


def _open_gallery(page: Any, count: int = 3) -> Any:
    page.get_by_role("link", name="Gallery").click()
    expect(page.locator(TILE)).to_have_count(count)
    return page.locator(TILE)


def _decode(image: Any) -> int:
    return image.evaluate("async (image) => { await image.decode(); return image.naturalWidth; }")


def test_search_and_filters_narrow_the_wall(shared_page: Any, made: list[str], keep: Keep) -> None:
    page = shared_page
    tiles = _open_gallery(page)
    assert _decode(tiles.first.locator("img")) > 100
    keep(page, "gallery-dark")
    page.fill("#lu-gallery-search", "night cact")
    expect(page.locator("#lu-gallery-count")).to_have_text("1 output")
    expect(tiles.get_by_role("button", name=PROMPTS[2], exact=True)).to_be_visible()
    page.fill("#lu-gallery-search", "no such thing")
    expect(page.locator("#lu-gallery-empty")).to_contain_text("Nothing matches")
    page.locator("#lu-gallery-empty").get_by_role("button", name="Clear filters").click()
    expect(tiles).to_have_count(3)
    page.select_option("#lu-gallery-kind", "video")
    expect(tiles).to_have_count(0)
    page.select_option("#lu-gallery-kind", "image")
    page.select_option("#lu-gallery-model", "model:demo-sdxl")
    page.select_option("#lu-gallery-date", "1")
    expect(tiles).to_have_count(3)
    page.select_option("#lu-gallery-date", "days")
    page.fill("#lu-gallery-to", "2020-01-01")
    page.locator("#lu-gallery-to").blur()
    expect(tiles).to_have_count(0)
    page.locator("#lu-gallery-empty").get_by_role("button", name="Clear filters").click()
    expect(tiles).to_have_count(3)


def test_favourites_and_tags_are_kept(shared_page: Any, studio: Any, made: list[str]) -> None:
    page = shared_page
    tiles = _open_gallery(page)
    tiles.nth(1).hover()
    tiles.nth(1).get_by_role("button", name=f"Favourite: {PROMPTS[1]}").click()
    expect(tiles.nth(1).locator(".lu-shot-favourite")).to_have_attribute("aria-pressed", "true")
    page.click("#lu-gallery-favourite")
    expect(tiles).to_have_count(1)
    tiles.first.locator(".lu-shot-open").click()
    page.get_by_label("Add tags, with commas").fill("Home, #noon")
    page.keyboard.press("Enter")
    expect(page.get_by_role("button", name="Remove the tag noon")).to_be_visible()
    page.get_by_role("button", name="Remove the tag home").click()
    expect(page.get_by_role("button", name="Remove the tag home")).to_have_count(0)
    output = _call(studio, f"outputs/{made[1]}")
    assert (output["favourite"], output["tags"]) == (True, ["noon"])
    page.click("#lu-detail-favourite")
    expect(page.locator("#lu-detail-favourite")).to_have_attribute("aria-pressed", "false")
    page.keyboard.press("Escape")
    page.click("#lu-gallery-favourite")
    expect(tiles).to_have_count(3)


def test_tags_that_are_refused_come_back_to_be_typed_on(shared_page: Any, made: list[str]) -> None:
    page = shared_page
    _open_gallery(page).first.locator(".lu-shot-open").click()
    page.route(f"**/api/v1/outputs/{made[0]}", lambda route: route.abort())
    tags = page.get_by_label("Add tags, with commas")
    tags.fill("harbour")
    page.keyboard.press("Enter")
    expect(page.locator(TOASTS)).not_to_be_empty()
    expect(tags).to_have_value("harbour")
    tags.fill("")
    page.keyboard.press("Escape")
    expect(page.locator(DETAIL)).to_be_hidden()


def test_the_keyboard_alone_is_enough(shared_page: Any, studio: Any, made: list[str]) -> None:
    page = shared_page
    page.locator(".lu-views [data-view=gallery]").press("Enter")
    tiles = page.locator(TILE)
    expect(tiles).to_have_count(3)
    expect(tiles.first).to_be_visible()  # they are there before the view is
    expect(tiles.nth(1).locator(".lu-shot-favourite")).to_have_attribute("aria-pressed", "false")
    page.keyboard.press("ArrowRight")
    expect(tiles.nth(0).locator(".lu-shot-open")).to_be_focused()
    page.keyboard.press("ArrowRight")
    page.keyboard.press("f")
    expect(tiles.nth(1).locator(".lu-shot-favourite")).to_have_attribute("aria-pressed", "true")
    page.keyboard.press("Delete")
    expect(tiles).to_have_count(2)
    expect(page.locator(TOASTS)).to_contain_text("1 output in the trash")
    assert _call(studio, f"outputs/{made[1]}")["trashed_at"] is not None
    page.locator(TOASTS).get_by_role("button", name="Undo").click()
    expect(tiles).to_have_count(3)
    expect(tiles.nth(1).locator(".lu-shot-open")).to_have_attribute("aria-label", PROMPTS[1])
    assert _call(studio, f"outputs/{made[1]}")["trashed_at"] is None
    tiles.nth(1).locator(".lu-shot-open").focus()
    page.keyboard.press("Enter")
    expect(page.locator(DETAIL)).to_be_visible()
    page.keyboard.press("Escape")
    expect(page.locator(DETAIL)).to_be_hidden()
    expect(tiles.nth(1).locator(".lu-shot-open")).to_be_focused()
    page.keyboard.press("x")
    expect(page.locator("#lu-chosen")).to_contain_text("1 selected")
    page.keyboard.press("Escape")
    expect(page.locator("#lu-chosen")).to_be_hidden()
    page.keyboard.press("/")
    expect(page.locator("#lu-gallery-search")).to_be_focused()
    page.keyboard.press("Escape")
    expect(page.locator("#lu-prompt")).to_be_visible()


LATE_EVENTS = """const add = EventSource.prototype.addEventListener;
EventSource.prototype.addEventListener = function (kind, listener, ...rest) {
  const late = (event) => setTimeout(() => listener(event), 300);
  return add.call(this, kind, kind === "outputs.changed" ? late : listener, ...rest);
};"""


def test_what_is_marked_and_thrown_away_at_once_comes_back(open_page: OpenPage, made: list[str]) -> None:
    """The server tells of the mark when the next change is under way, and of that before it has answered."""
    page = open_page()
    page.add_init_script(LATE_EVENTS)
    page.reload()
    tiles = _open_gallery(page)

    def answer_late(route: Any) -> None:
        answer = route.fetch()
        page.wait_for_timeout(800)
        route.fulfill(response=answer)

    page.route("**/api/v1/outputs/trash", answer_late)
    tiles.nth(1).locator(".lu-shot-open").focus()
    page.keyboard.press("f")
    expect(tiles.nth(1).locator(".lu-shot-favourite")).to_have_attribute("aria-pressed", "true")
    page.keyboard.press("Delete")
    page.locator(TOASTS).get_by_role("button", name="Undo").click()
    expect(tiles).to_have_count(3)
    expect(tiles.nth(1).locator(".lu-shot-open")).to_have_attribute("aria-label", PROMPTS[1])


def test_what_two_pages_throw_away_at_once_is_followed_further(
    open_page: OpenPage, studio: Any, made: list[str]
) -> None:
    page = open_page()
    tiles = _open_gallery(page)

    def answer_second(route: Any) -> None:
        _call(studio, "outputs/trash", {"ids": [made[1]]})
        page.wait_for_timeout(500)  # the server tells of that one meanwhile
        route.fulfill(response=route.fetch())

    page.route("**/api/v1/outputs/trash", answer_second)
    tiles.nth(1).locator(".lu-shot-open").focus()
    page.keyboard.press("Delete")
    expect(tiles).to_have_count(2)
    page.locator("#lu-gallery-title").focus()
    _call(studio, "outputs/restore", {"ids": [made[1]]})
    expect(tiles).to_have_count(3)


def test_an_output_is_opened_and_its_settings_used_again(open_page: OpenPage, made: list[str], keep: Keep) -> None:
    page = open_page()
    tiles = _open_gallery(page)
    tiles.get_by_role("button", name=PROMPTS[0], exact=True).click()
    detail = page.locator(DETAIL)
    expect(page.locator("#lu-detail-title")).to_have_text("3 of 3")
    assert _decode(detail.locator(".lu-detail-stage img")) > 100
    for name, value in (("Seed", "0"), ("Steps", "1"), ("Size", "256 × 256")):
        assert detail.locator("dt", has_text=re.compile(f"^{name}$")).evaluate("e => e.nextSibling.innerText") == value
    keep(page, "gallery-detail-dark")
    page.keyboard.press("ArrowLeft")
    expect(page.locator(".lu-detail-prompt")).to_have_text(PROMPTS[1])
    detail.get_by_role("button", name="Use seed").click()
    expect(page.locator(TOASTS)).to_contain_text("Seed 1 is kept")
    detail.get_by_role("button", name="Use prompt").click()
    page.locator(TOASTS).get_by_role("button", name="Create").click()
    expect(page.locator("#lu-prompt")).to_have_value(PROMPTS[1])
    expect(page.locator("#lu-seed")).to_have_value("1")
    expect(page.locator("#lu-steps-value")).not_to_have_value("1")
    _open_gallery(page)
    tiles.get_by_role("button", name=PROMPTS[0], exact=True).click()
    with page.expect_download() as download:
        detail.get_by_role("link", name="Download").click()
    assert download.value.suggested_filename == f"{make_slug(PROMPTS[0])}-0.png"
    page.click("#lu-detail-use")
    expect(page.locator("#lu-prompt")).to_have_value(PROMPTS[0])
    expect(page.locator("#lu-steps-value")).to_have_value("1")
    expect(page.locator("#lu-seed")).to_have_value("0")


def test_what_is_typed_into_tags_survives_whatever_is_drawn_meanwhile(
    open_page: OpenPage, studio: Any, made: list[str]
) -> None:
    """The visitor's total comes late, another page marks the output, and a newer one is thrown away."""
    page = open_page()
    held: list[Any] = []
    page.route("**/api/v1/system/usage", lambda route: held.append(route))
    tiles = _open_gallery(page)
    tiles.nth(1).locator(".lu-shot-open").click()
    page.locator(".lu-making summary").click()
    tags = page.get_by_label("Add tags, with commas")
    tags.press_sequentially("Home, #on")
    for _ in "on":
        page.keyboard.press("ArrowLeft")
    page.keyboard.press("n")

    facts = page.locator("#lu-detail-body .lu-facts").first
    expect(facts).not_to_contain_text("Your total")
    for route in held:
        route.continue_()
    expect(facts).to_contain_text("Your total")
    expect(tags).to_have_value("Home, #non")
    _call(studio, f"outputs/{made[1]}", {"favourite": True}, method="PATCH")
    expect(page.locator("#lu-detail-favourite")).to_have_attribute("aria-pressed", "true")
    _call(studio, "outputs/trash", {"ids": [made[0]]})
    expect(page.locator("#lu-detail-title")).to_have_text("1 of 2")
    expect(page.locator(".lu-detail-prompt")).to_have_text(PROMPTS[1])

    expect(tags).to_have_value("Home, #non")
    expect(tags).to_be_focused()
    page.keyboard.press("ArrowRight")
    page.keyboard.press("o")
    page.keyboard.press("Enter")
    expect(tags).to_have_value("")
    expect(tags).to_be_focused()
    expect(page.get_by_role("button", name="Remove the tag noon")).to_be_visible()
    expect(page.locator(".lu-making")).to_have_attribute("open", "")
    assert _call(studio, f"outputs/{made[1]}")["tags"] == ["home", "noon"]


def test_what_is_thrown_away_leaves_every_view_and_comes_back(
    open_page: OpenPage, studio: Any, made: list[str], keep: Keep
) -> None:
    page = open_page()
    expect(page.locator(".lu-film-item")).to_have_count(3)
    tiles = _open_gallery(page)
    tiles.first.locator(".lu-shot-open").click()
    page.click("#lu-detail-trash")
    expect(page.locator(".lu-detail-prompt")).to_have_text(PROMPTS[1])
    page.keyboard.press("Escape")
    page.get_by_role("link", name="Create").click()
    expect(page.locator(".lu-film-item")).to_have_count(2)
    _open_gallery(page, 2)
    page.click("#lu-gallery-trash")
    expect(page.locator("#lu-gallery-count")).to_have_text("1 in the trash")
    keep(page, "gallery-trash-dark")
    page.click("#lu-gallery-choose")
    tiles.first.click()
    page.locator("#lu-chosen").get_by_role("button", name="Restore").click()
    expect(page.locator("#lu-gallery-empty")).to_contain_text("The trash is empty")
    page.click("#lu-gallery-trash")
    expect(tiles).to_have_count(3)
    tiles.nth(2).locator(".lu-shot-open").focus()
    page.keyboard.press("Delete")
    expect(tiles).to_have_count(2)
    page.click("#lu-gallery-trash")
    expect(tiles).to_have_count(1)
    page.once("dialog", lambda dialog: dialog.dismiss())
    page.click("#lu-gallery-purge")
    expect(tiles).to_have_count(1)
    page.once("dialog", lambda dialog: dialog.accept())
    page.click("#lu-gallery-purge")
    expect(tiles).to_have_count(0)
    expect(page.locator(TOASTS)).to_contain_text("1 deleted forever")
    assert _call(studio, "outputs/filters")["trashed"] == 0


def test_other_tabs_follow(open_page: OpenPage, shared_page: Any, made: list[str]) -> None:
    page, other = shared_page, open_page()
    tiles, theirs = _open_gallery(page), _open_gallery(other)
    tiles.first.locator(".lu-shot-favourite").click()
    expect(theirs.first.locator(".lu-shot-favourite")).to_have_attribute("aria-pressed", "true")
    tiles.first.locator(".lu-shot-open").focus()
    page.keyboard.press("Delete")
    expect(theirs).to_have_count(2)
    page.locator(TOASTS).get_by_role("button", name="Undo").click()
    expect(tiles).to_have_count(3)
    expect(theirs).to_have_count(3)
    other.get_by_role("link", name="Create").click()
    expect(other.locator(".lu-film-item")).to_have_count(3)


def _pinch(page: Any, one: tuple[int, int], other: tuple[int, int], *, by: int) -> None:
    """Two fingers, each `by` pixels away from the other, or with less than 0 towards it."""
    session = page.context.new_cdp_session(page)

    def touch(kind: str, moved: float) -> None:
        places = [(one[0] - moved, one[1]), (other[0] + moved, other[1])] if kind != "touchEnd" else []
        points = [{"x": x, "y": y, "id": number} for number, (x, y) in enumerate(places)]
        session.send("Input.dispatchTouchEvent", {"type": kind, "touchPoints": points})

    touch("touchStart", 0)
    for step in range(1, 6):
        touch("touchMove", by * step / 5)
    touch("touchEnd", by)
    session.detach()


def test_an_open_output_has_an_address_and_is_looked_at_closely(
    open_page: OpenPage, studio: Any, made: list[str], keep: Keep
) -> None:
    page = open_page(watch=False)  # an address that nobody has is asked for
    detail, prompt, zoom = page.locator(DETAIL), page.locator(".lu-detail-prompt"), page.locator("#lu-zoom img")
    page.goto(f"{studio.url}/#gallery/{made[2]}")
    expect(prompt).to_have_text(PROMPTS[0])
    page.keyboard.press("ArrowLeft")
    expect(prompt).to_have_text(PROMPTS[1])
    page.reload()
    expect(prompt).to_have_text(PROMPTS[1])
    assert page.url.endswith(f"#gallery/{made[1]}")
    page.go_back()
    expect(detail).to_be_hidden()
    assert page.url.endswith("#gallery")
    page.go_forward()
    expect(prompt).to_have_text(PROMPTS[1])

    page.locator(".lu-detail-enlarge").click()
    expect(zoom).to_be_visible()
    page.wait_for_function("document.querySelector('#lu-zoom img').naturalWidth > 0")
    page.click("#lu-zoom-whole")
    assert zoom.bounding_box()["width"] == pytest.approx(256, abs=1)
    page.mouse.move(720, 450)
    page.mouse.wheel(0, -1800)
    page.wait_for_function("document.querySelector('#lu-zoom img').getBoundingClientRect().width > 2500")
    before = zoom.bounding_box()
    page.mouse.down()
    page.mouse.move(800, 500, steps=3)
    page.mouse.up()
    after = zoom.bounding_box()
    assert (after["x"] - before["x"], after["y"] - before["y"]) == (pytest.approx(80, abs=2), pytest.approx(50, abs=2))
    keep(page, "gallery-zoom-dark")
    page.keyboard.press("ArrowUp")  # it is larger than the window: arrows move it
    assert zoom.bounding_box()["y"] - after["y"] == pytest.approx(80, abs=2)
    expect(zoom).to_have_attribute("alt", PROMPTS[1])
    page.keyboard.press("-")
    assert zoom.bounding_box()["width"] == pytest.approx(after["width"] / 1.25, rel=0.01)
    page.keyboard.press("+")
    assert zoom.bounding_box()["width"] == pytest.approx(after["width"], rel=0.01)
    page.click("#lu-zoom-whole")
    before = zoom.bounding_box()
    _pinch(page, (660, 450), (780, 450), by=180)
    expect(zoom).to_be_visible()  # two fingers that leave are no click
    after = zoom.bounding_box()
    assert after["width"] / before["width"] == pytest.approx((120 + 2 * 180) / 120, rel=0.02)
    assert after["x"] + after["width"] / 2 == pytest.approx(before["x"] + before["width"] / 2, abs=2)
    _pinch(page, (400, 450), (1000, 450), by=-250)
    page.keyboard.press("ArrowRight")  # it fits: the next one
    expect(zoom).to_have_attribute("alt", PROMPTS[0])
    assert zoom.bounding_box()["width"] < 1440  # the next one fits
    page.keyboard.press("Escape")
    expect(zoom).to_be_hidden()
    expect(prompt).to_have_text(PROMPTS[0])

    page.goto(f"{studio.url}/#gallery/nothing-0")
    expect(page.locator("#lu-gallery-message")).to_contain_text("nothing-0")
    expect(detail).to_be_hidden()
    assert page.url.endswith("#gallery")


def test_of_a_batch_one_can_go(open_page: OpenPage, studio: Any, made: list[str], wait_for: Callable[..., Any]) -> None:
    _call(studio, "jobs", {"model": "demo-sdxl", "prompt": "Two", "batch_size": 2, "seed": 40})
    wait_for("two more outputs", lambda: _call(studio, "outputs")["total"] == 5)
    page = open_page()
    page.locator(".lu-frame").nth(1).click()
    expect(page.locator("#lu-bar")).to_contain_text("seed 41")
    tiles = _open_gallery(page, 5)
    tiles.first.locator(".lu-shot-open").focus()
    page.keyboard.press("Delete")
    expect(tiles).to_have_count(4)
    page.get_by_role("link", name="Create").click()
    expect(page.locator("#lu-bar")).to_contain_text("seed 40")
    expect(page.locator(".lu-frame")).to_have_count(1)


def test_several_are_selected_downloaded_and_thrown_away(shared_page: Any, made: list[str]) -> None:
    page = shared_page
    tiles = _open_gallery(page)
    tiles.nth(0).hover()
    tiles.nth(0).get_by_role("button", name=f"Select: {PROMPTS[2]}").click()
    tiles.nth(2).click(modifiers=["Shift"])
    expect(page.locator("#lu-chosen")).to_contain_text("3 selected")
    with page.expect_download() as download:
        page.locator("#lu-chosen").get_by_role("button", name="Download zip").click()
    with zipfile.ZipFile(Path(download.value.path())) as found:
        assert sorted(found.namelist()) == sorted(
            f"{make_slug(prompt)}-{seed}.png" for seed, prompt in enumerate(PROMPTS)
        )
    page.locator("#lu-chosen").get_by_role("button", name="Move to trash").click()
    expect(page.locator("#lu-gallery-empty")).to_contain_text("Nothing made yet")
    page.locator(TOASTS).get_by_role("button", name="Undo").click()
    expect(tiles).to_have_count(3)


def test_several_are_tagged_at_once(shared_page: Any, studio: Any, made: list[str], keep: Keep) -> None:
    page = shared_page
    tiles = _open_gallery(page)

    def ask() -> Any:
        for index in (0, 1):
            tiles.nth(index).click(modifiers=["Control"])
        page.locator("#lu-chosen").get_by_role("button", name="Add a tag").click()
        return page.get_by_role("dialog", name="Tags for 2 outputs")

    ask().get_by_label("Tags, with commas").fill("harbour, Evening")
    page.keyboard.press("Enter")
    expect(page.locator(TOASTS)).to_contain_text("Tagged 2 outputs")
    tags = [set(_call(studio, f"outputs/{output}")["tags"]) for output in made]
    assert sum(own >= {"evening", "harbour"} for own in tags) == 2

    page.reload()
    _open_gallery(page)
    dialog = ask()
    dialog.get_by_role("button", name="evening").click()
    expect(dialog.get_by_label("Tags, with commas")).to_have_value("evening")
    keep(page, "gallery-tags")
    page.keyboard.press("Escape")
    expect(dialog).to_be_hidden()
    page.keyboard.press("Escape")
    expect(page.locator("#lu-chosen")).to_be_hidden()


def test_two_are_compared_with_what_differs(shared_page: Any, made: list[str], keep: Keep) -> None:
    page = shared_page
    tiles = _open_gallery(page)
    for index in (0, 1):
        tiles.nth(index).click(modifiers=["Control"])
    page.locator("#lu-chosen").get_by_role("button", name="Compare").click()
    rows = page.locator("#lu-compare-diff tr[data-differs=true]")
    expect(rows).to_have_text([f"Prompt{PROMPTS[1]}{PROMPTS[2]}", "Seed12", "Steps23"])
    expect(page.locator("#lu-compare-verdict")).to_contain_text("PSNR")
    expect(page.locator("#lu-compare-stage img")).to_have_count(2)
    slider = page.get_by_label("How much of A is seen")
    slider.focus()
    before = page.locator(".lu-slider-top").evaluate("top => getComputedStyle(top).clipPath")
    page.keyboard.press("ArrowLeft")
    assert page.locator(".lu-slider-top").evaluate("top => getComputedStyle(top).clipPath") != before
    keep(page, "gallery-compare-dark")
    page.get_by_role("radio", name="Side by side").click()
    expect(page.locator(".lu-beside")).to_have_count(2)
    page.keyboard.press("Escape")
    expect(page.locator("#lu-compare")).to_be_hidden()
    expect(page.locator("#lu-chosen")).to_contain_text("2 selected")
    page.keyboard.press("Escape")
    expect(page.locator("#lu-chosen")).to_be_hidden()


def test_an_output_is_made_again_and_compared(shared_page: Any, made: list[str]) -> None:
    page = shared_page
    _open_gallery(page).first.locator(".lu-shot-open").click()
    page.locator(DETAIL).get_by_role("button", name="Make again").click()
    page.locator(TOASTS).get_by_role("button", name="Compare").click()
    expect(page.locator("#lu-compare-verdict")).to_have_text("Every pixel is the same")
    expect(page.locator("#lu-compare-diff h3")).to_have_text("The settings are the same")
    page.keyboard.press("Escape")
    expect(page.locator("#lu-compare")).to_be_hidden()


def test_what_is_made_meanwhile_appears(shared_page: Any, studio: Any, made: list[str]) -> None:
    page = shared_page
    tiles = _open_gallery(page)
    _call(studio, "jobs", {"model": "demo-sdxl", "prompt": "A new one", "steps": 2})
    expect(tiles).to_have_count(4)
    tiles.nth(1).click(modifiers=["Control"])
    _call(studio, "jobs", {"model": "demo-sdxl", "prompt": "Another one", "steps": 2})
    page.get_by_role("button", name="Show 1 new").click()
    expect(tiles).to_have_count(5)
    page.keyboard.press("Escape")
    expect(page.locator("#lu-chosen")).to_be_hidden()


def test_the_gallery_on_a_phone(open_page: OpenPage, made: list[str], keep: Keep) -> None:
    page = open_page(viewport=PHONE, color_scheme="light")
    tiles = _open_gallery(page)
    _decode(tiles.first.locator("img"))
    keep(page, "gallery-phone-light")
    assert page.evaluate("document.documentElement.scrollWidth") == PHONE["width"]
    header = page.locator(".lu-header")
    assert header.evaluate("header => header.scrollWidth <= header.clientWidth")
    page.click("#lu-gallery-choose")
    tiles.nth(0).click()
    expect(page.locator("#lu-chosen")).to_contain_text("1 selected")
    page.click("#lu-gallery-choose")
    tiles.nth(0).click()
    expect(page.locator(DETAIL)).to_be_visible()
    keep(page, "gallery-detail-phone-light")
    page.click("#lu-detail-older")
    expect(page.locator("#lu-detail-title")).to_have_text("2 of 3")
    page.go_back()
    expect(page.locator(DETAIL)).to_be_hidden()
    expect(tiles).to_have_count(3)
    page.go_back()
    expect(page.locator("#lu-prompt")).to_be_visible()


def test_a_video_shows_its_length_and_plays(open_page: OpenPage, studio: Any, wait_for: Callable[..., Any]) -> None:
    recipe = {"model": "wan2.1-1.3b", "prompt": "Waves", "shape": "832x480x33", "steps": 2}
    _call(studio, "jobs", recipe)
    wait_for("a video", lambda: _call(studio, "outputs?kind=video")["total"], timeout_s=60)
    page = open_page()
    page.get_by_role("link", name="Gallery").click()
    page.select_option("#lu-gallery-kind", "video")
    tile = page.locator(TILE)
    expect(tile).to_have_count(1)
    expect(tile.locator(".lu-shot-length")).to_have_text("2.1 s")
    tile.get_by_role("button", name=re.compile("^Video of .*: Waves$")).click()
    video = page.locator(f"{DETAIL} video")
    expect(video).to_have_attribute("poster", re.compile("/poster$"))
    video.evaluate("async (video) => { await video.play(); }")
    expect(page.locator(DETAIL).get_by_role("link", name="GIF")).to_be_visible()


def test_a_wall_of_thousands_keeps_few_tiles_and_finds_the_last(
    open_page: OpenPage, studio: Any, made: list[str]
) -> None:
    """The list answers for 10 000; only the page of tiles in sight exists, and the last row is reached at once."""
    page = open_page()
    template = _call(studio, f"outputs/{made[0]}")

    def answer(route: Any) -> None:
        query = dict(part.split("=") for part in route.request.url.split("?")[1].split("&"))
        offset, limit = int(query.get("offset", 0)), int(query["limit"])
        outputs = [
            {**template, "id": f"many-{index}", "recipe": {**template["recipe"], "prompt": f"Number {index}"}}
            for index in range(offset, min(offset + limit, 10_000))
        ]
        route.fulfill(json={"outputs": outputs, "total": 10_000, "start": 20_000, "next": None})

    page.route("**/api/v1/outputs?*", answer)
    page.get_by_role("link", name="Gallery").click()
    expect(page.locator("#lu-gallery-count")).to_have_text("10,000 outputs")
    page.locator("#lu-gallery-scroll").evaluate("wall => { wall.scrollTop = wall.scrollHeight; }")
    expect(page.get_by_role("button", name="Number 9999", exact=True)).to_be_visible()
    assert page.locator(".lu-shot").count() < 120
    page.locator("#lu-gallery-scroll").evaluate("wall => { wall.scrollTop = wall.scrollHeight / 2; }")
    middle = page.locator(TILE).filter(has=page.get_by_label(re.compile("^Number 50")))
    expect(middle).not_to_have_count(0)
    page.get_by_role("link", name="Create").click()
    page.get_by_role("link", name="Gallery").click()
    expect(middle).not_to_have_count(0)

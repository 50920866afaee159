"""Presets in a real browser: find one and make it, save an output, share it by link and file, open what others send."""

import json
import re
import time
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("playwright.sync_api")
from playwright.sync_api import expect

from studio.library.presets.shipped import read_shipped

SHIPPED = f"{len(read_shipped())} presets"
TWO_MORE = f"{len(read_shipped()) + 2} presets"
ONE_MORE = f"{len(read_shipped()) + 1} presets"

pytestmark = pytest.mark.browser
PHONE = {"width": 390, "height": 844}
CARD, NOTE, RESULT = ".lu-preset", "#lu-origin", ".lu-result"
SAILBOAT = "A red sailboat on the ocean at sunset"
EVIL = "<img src=x onerror=alert(1)>"

DROP = """([name, text]) => {
  const transfer = new DataTransfer();
  transfer.items.add(new File([text], name, { type: "application/json" }));
  document.body.dispatchEvent(new DragEvent("drop", { dataTransfer: transfer, bubbles: true, cancelable: true }));
}"""

OpenPage = Callable[..., Any]
Keep = Callable[[Any, str], None]


def _open_gallery(page: Any) -> None:
    page.get_by_role("link", name="Presets").click()
    expect(page.locator(CARD).first).to_be_visible()


def _read(studio: Any, path: str) -> Any:
    with urllib.request.urlopen(f"{studio.url}/api/v1/{path}") as answer:
        return json.load(answer)


def _document(**fields: Any) -> bytes:
    recipe = {"model": "demo-sdxl", "prompt": "A blue house", "seed": 5, **fields.pop("recipe", {})}
    return json.dumps({"schema": 1, "title": "Hers", "author": "Ada", "recipe": recipe, **fields}).encode()


def _import(page: Any, *files: tuple[str, bytes]) -> None:
    page.set_input_files(
        "#lu-presets-file",
        [{"name": name, "mimeType": "application/json", "buffer": content} for name, content in files],
    )


def test_a_preset_is_found_and_made_with_one_click(open_page: OpenPage, studio: Any, keep: Keep) -> None:
    page = open_page()
    _open_gallery(page)
    expect(page.locator("#lu-presets-count")).to_have_text(SHIPPED)
    keep(page, "presets-dark")
    page.fill("#lu-presets-search", "sailboat sunset")
    page.select_option("#lu-presets-model", "demo-sdxl")
    card = page.locator(CARD)
    expect(card).to_have_count(1)
    assert card.locator("img").evaluate("async (image) => { await image.decode(); return image.naturalWidth; }") > 100
    card.get_by_role("button", name="Make it").click()
    expect(page.locator("#lu-prompt")).to_have_value(SAILBOAT)
    expect(page.locator(NOTE)).to_contain_text("Comes with Lumesh, by Lumesh.")
    expect(page.locator(RESULT)).to_be_visible()
    recipe = _read(studio, "jobs")["jobs"][0]["recipe"]
    assert (recipe["prompt"], recipe["seed"], recipe["model"]) == (SAILBOAT, 7, "demo-sdxl")
    page.go_back()
    expect(page.locator(CARD)).to_have_count(1)


def test_tags_narrow_the_cards_and_plain_cards_name_their_model(open_page: OpenPage) -> None:
    page = open_page()
    _open_gallery(page)
    page.get_by_role("button", name="video", exact=True).click()
    expect(page.locator(".lu-preset-plain").first).to_have_text(re.compile("Wan"))
    expect(page.locator(".lu-preset-plain img")).to_have_count(0)
    expect(page.locator(f"{CARD} img")).to_have_count(6)  # the demo's own
    page.locator(CARD, has_text="Bring a picture to life").get_by_role("button", name="Make it").click()
    expect(page.locator(NOTE)).to_contain_text("Add a first picture")
    expect(page.locator("[data-message=images]")).to_contain_text("needs a first picture")


def test_an_output_becomes_a_preset_that_travels_by_link(open_page: OpenPage, studio: Any, keep: Keep) -> None:
    page = open_page()
    page.fill("#lu-prompt", "A purple lighthouse")
    page.click("#lu-generate")
    expect(page.locator("#lu-save-preset")).to_be_visible()
    page.click("#lu-save-preset")
    expect(page.locator("#lu-save-title")).to_have_value("A purple lighthouse")
    page.fill("#lu-save-title", EVIL)
    page.fill("#lu-save-author", "Grace")
    page.fill("#lu-save-tags", "Tower, night")
    expect(page.locator("#lu-save-seed-text")).to_have_text("Keep the seed, so everyone gets this exact picture")
    keep(page, "preset-save-dark")
    page.click("#lu-save-button")
    expect(page.locator("#lu-toasts")).to_contain_text("Saved among your presets")
    _open_gallery(page)
    card = page.locator(CARD).first
    expect(card.locator("h3")).to_have_text(EVIL)
    expect(card).to_contain_text("Saved here, by Grace")
    expect(card.locator("img[src*=preset]")).to_have_count(1)
    card.get_by_role("button", name="Share").click()
    expect(page.locator("#lu-share-code")).to_be_visible()
    keep(page, "preset-share-dark")
    links = {name: page.input_value(f"#lu-share-{name}") for name in ("self", "here")}
    with page.expect_download() as download:
        page.click("#lu-share-file")
    shared = json.loads(Path(download.value.path()).read_text("utf-8"))
    assert (shared["title"], shared["tags"]) == (EVIL, ["tower", "night"])
    assert shared["thumbnail"].startswith("data:image/webp;base64,")
    for name, origin in (("self", "From a link, by Grace."), ("here", "Saved here, by Grace.")):
        other = open_page(links[name].removeprefix(f"{studio.url}/"))
        expect(other.locator(NOTE)).to_contain_text(origin)
        expect(other.locator("#lu-origin-title")).to_have_text(EVIL)
        expect(other.locator("#lu-prompt")).to_have_value("A purple lighthouse")
        expect(other.locator("#lu-seed")).to_have_value(str(shared["recipe"]["seed"]))
        assert other.url == f"{studio.url}/"
        if name == "self":
            visitor = other
    page.keyboard.press("Escape")
    page.on("dialog", lambda dialog: dialog.accept())
    card.get_by_role("button", name="Delete").click()
    expect(page.locator("#lu-presets-count")).to_have_text(SHIPPED)
    visitor.click("#lu-origin-keep")
    expect(visitor.locator("#lu-toasts")).to_contain_text("Kept among your presets")
    _open_gallery(visitor)
    expect(visitor.locator(CARD).first).to_contain_text("From a link, by Grace")
    visitor.on("dialog", lambda dialog: dialog.accept())
    visitor.locator(CARD).first.get_by_role("button", name="Delete").click()
    expect(visitor.locator("#lu-presets-count")).to_have_text(SHIPPED)


def test_a_link_in_an_open_tab_is_opened_and_one_that_is_here_is_not_kept_twice(open_page: OpenPage) -> None:
    page = open_page()
    _open_gallery(page)
    page.get_by_role("button", name="Share: Green cactus at noon").click()
    expect(page.locator("#lu-share-self")).not_to_have_value("")  # it is compressed first
    link = page.input_value("#lu-share-self")
    page.keyboard.press("Escape")
    page.evaluate("(link) => { location.href = link; }", link)
    expect(page.locator("#lu-prompt")).to_have_value("A green cactus in the desert at noon with clouds")
    page.click("#lu-origin-keep")
    expect(page.locator("#lu-toasts")).to_contain_text(
        "“Green cactus at noon” is here already, with the same settings."
    )
    _open_gallery(page)
    expect(page.locator("#lu-presets-count")).to_have_text(SHIPPED)


def test_links_that_are_torn_or_gone_say_so(open_page: OpenPage) -> None:
    for link, message in (("#recipe=abc", "copy it again"), ("?preset=gone", "There is no preset 'gone'")):
        page = open_page(link, watch=False)  # the gone preset is a 404
        expect(page.locator(NOTE)).to_contain_text(message)
        expect(page.locator("#lu-generate")).to_be_enabled()


def test_a_link_that_unpacks_to_megabytes_is_not_read(open_page: OpenPage, studio: Any) -> None:
    page = open_page()
    link = page.evaluate("""async () => {
      const bomb = new Blob([new Uint8Array(50_000_000)]).stream().pipeThrough(new CompressionStream("deflate-raw"));
      const bytes = new Uint8Array(await new Response(bomb).arrayBuffer());
      let text = "";
      for (const byte of bytes) text += String.fromCharCode(byte);
      return "#recipe=" + btoa(text).replaceAll("+", "-").replaceAll("/", "_").replace(/=+$/, "");
    }""")
    page.evaluate("(link) => { location.hash = link; }", link)
    expect(page.locator(NOTE)).to_contain_text("copy it again")


def test_files_are_imported_with_their_origin_and_refused_with_a_reason(shared_page: Any, keep: Keep) -> None:
    page = shared_page
    _open_gallery(page)
    _import(page, ("hers.json", _document(title=EVIL, description=EVIL)), ("bad.json", _document(code="import os")))
    expect(page.locator("#lu-presets-message")).to_contain_text("“bad.json”: code: is not a known field")
    expect(page.locator(CARD).first).to_contain_text("Imported from hers.json, by Ada")
    expect(page.locator(f"{CARD} h3").first).to_have_text(EVIL)
    known = page.locator("#lu-presets-known")
    _import(page, ("hers.json", _document(title=EVIL, description="Other words")))
    expect(known).to_contain_text(f"“{EVIL}” is here already, with the same settings.")
    keep(page, "presets-known-dark")
    known.get_by_role("button", name="Replace mine").click()
    expect(page.locator(CARD, has_text="Other words")).to_have_count(1)
    expect(page.locator("#lu-presets-count")).to_have_text(ONE_MORE)
    _import(page, ("hers.json", _document(title=EVIL, description="Other words")))
    known.get_by_role("button", name="Keep both").click()
    expect(page.locator(f"{CARD} h3").first).to_have_text(f"{EVIL} (2)")
    expect(known).to_be_hidden()
    page.get_by_role("link", name="Create").click()
    page.evaluate(DROP, ["new.json", _document(title="Elsewhere", recipe={"model": "sketches-xl"}).decode()])
    missing = page.locator(CARD, has_text="Elsewhere")
    expect(missing).to_contain_text("Needs sketches-xl, which is not here")
    missing.get_by_text("which is not here").click()
    expect(missing).to_contain_text("models/sketches-xl in the data directory")
    expect(missing.get_by_role("button", name="Make it")).to_have_count(0)
    expect(page.locator("#lu-presets-export")).to_be_visible()
    keep(page, "presets-own-dark")
    for count in (TWO_MORE, ONE_MORE, SHIPPED):
        page.once("dialog", lambda dialog: dialog.accept())
        page.locator(CARD).first.get_by_role("button", name="Delete").click()
        expect(page.locator("#lu-presets-count")).to_have_text(count)


def test_the_hub_dialog_says_what_is_missing_and_forgets_the_token(open_page: OpenPage, keep: Keep) -> None:
    page = open_page(watch=False)  # refused by the server: 401
    _open_gallery(page)
    page.get_by_role("button", name="Hub").click()
    page.fill("#lu-hub-repo", "nonsense")
    page.click("#lu-hub-list")
    expect(page.locator("#lu-hub-message")).to_have_text("Write the repository as account/name.")
    page.fill("#lu-hub-repo", "ada/presets")
    page.click("#lu-hub-push")
    expect(page.locator("#lu-hub-note")).to_contain_text("You have no presets yet")
    _import(page, ("hers.json", _document()))
    expect(page.locator("#lu-presets-count")).to_have_text(ONE_MORE)
    page.click("#lu-hub-push")
    expect(page.locator("#lu-hub-message")).to_contain_text("Pushing needs a token that may write.")
    page.fill("#lu-hub-token", "hf_secret")
    keep(page, "presets-hub-dark")
    page.keyboard.press("Escape")
    page.get_by_role("button", name="Hub").click()
    expect(page.locator("#lu-hub-token")).to_have_value("")
    assert "hf_secret" not in page.evaluate("JSON.stringify({ ...localStorage, ...sessionStorage })")
    page.keyboard.press("Escape")
    page.on("dialog", lambda dialog: dialog.accept())
    page.locator(CARD).first.get_by_role("button", name="Delete").click()
    expect(page.locator("#lu-presets-count")).to_have_text(SHIPPED)


def test_what_is_made_is_filed_under_the_preset_as_long_as_model_and_prompt_are_its_own(
    open_page: OpenPage, studio: Any, keep: Keep
) -> None:
    page = open_page()
    preset = next(one for one in _read(studio, "presets")["presets"] if one["recipe"]["prompt"] == SAILBOAT)
    before, title = _read(studio, f"outputs?preset={preset['id']}")["total"], page.locator("#lu-origin-title")
    page.fill("#lu-prompt", "What I typed")
    _open_gallery(page)
    card = page.locator(CARD).filter(has_text=preset["title"]).first
    card.get_by_role("button", name="Edit").click()
    page.locator("#lu-toasts").get_by_role("button", name="Undo").click()
    expect(page.locator("#lu-prompt")).to_have_value("What I typed")
    expect(page.locator(NOTE)).to_be_hidden()
    _open_gallery(page)
    card.get_by_role("button", name="Edit").click()
    expect(title).to_have_text(preset["title"])
    page.fill("#lu-steps-value", "3")  # another setting may change
    page.click("#lu-generate")
    expect(page.locator("#lu-bar")).to_contain_text(SAILBOAT)
    expect(page.locator(RESULT)).to_be_visible()
    assert _wait_for_total(studio, preset["id"], before + 1)
    page.fill("#lu-prompt", "A red sailboat at sunrise")
    expect(title).to_have_text(f"Changed from “{preset['title']}”")
    keep(page, "preset-changed-dark")
    page.click("#lu-generate")
    expect(page.locator("#lu-bar")).to_contain_text("at sunrise")
    page.fill("#lu-prompt", SAILBOAT)
    expect(title).to_have_text(preset["title"])
    page.select_option("#lu-model", "demo-flux2")
    expect(title).to_have_text(f"Changed from “{preset['title']}”")
    page.click("#lu-generate")
    expect(page.locator("#lu-frames .lu-result")).to_be_visible()
    page.wait_for_function("document.querySelector('.lu-engine').dataset.state === 'idle'")
    assert _read(studio, f"outputs?preset={preset['id']}")["total"] == before + 1


def _wait_for_total(studio: Any, preset: str, total: int) -> bool:
    for _ in range(100):
        if _read(studio, f"outputs?preset={preset}")["total"] == total:
            return True
        time.sleep(0.1)
    return False


def test_a_style_is_put_around_the_prompt(open_page: OpenPage, studio: Any) -> None:
    page = open_page()
    page.fill("#lu-prompt", "A white lighthouse")
    page.select_option("#lu-style", label="At night")
    expect(page.locator("#lu-style-note")).to_have_text("Becomes: A white lighthouse at night")
    page.click("#lu-generate")
    expect(page.locator("#lu-bar")).to_contain_text("A white lighthouse at night")
    assert _read(studio, "jobs")["jobs"][0]["recipe"]["prompt"] == "A white lighthouse at night"
    page.select_option("#lu-model", "sdxl-base")
    page.select_option("#lu-style", label="Oil painting")
    page.select_option("#lu-model", "demo-sdxl")
    expect(page.locator("#lu-style")).to_have_value("")


def test_what_would_be_downloaded_first_is_asked_about(open_page: OpenPage, studio: Any) -> None:
    page = open_page()

    def answer(route: Any) -> None:
        models = route.fetch().json()["models"]
        route.fulfill(json={"models": [model | {"is_here": model["is_demo"]} for model in models]})

    page.route("**/api/v1/models", answer)
    page.reload()
    option = page.locator('#lu-model option[value="sdxl-base"]')
    expect(option).to_have_text(re.compile("not on this machine"))
    expect(page.locator('#lu-model option[value="demo-sdxl"]')).not_to_have_text(re.compile("not on this machine"))
    page.fill("#lu-prompt", "A white lighthouse at noon")
    page.select_option("#lu-model", "sdxl-base")
    asked: list[str] = []

    def refuse(dialog: Any) -> None:
        asked.append(dialog.message)
        dialog.dismiss()

    page.once("dialog", refuse)
    page.click("#lu-generate")
    expect(page.locator("#lu-generate")).not_to_have_attribute("aria-disabled", "true")
    assert len(asked) == 1
    assert "not downloaded yet" in asked[0]
    assert _read(studio, "jobs")["jobs"][0]["recipe"]["prompt"] != "A white lighthouse at noon"
    page.once("dialog", lambda dialog: dialog.accept())
    page.click("#lu-generate")
    expect(page.locator("#lu-bar")).to_contain_text("A white lighthouse at noon")


def test_a_phone_shows_both_views_without_scrolling_sideways(open_page: OpenPage, keep: Keep) -> None:
    page = open_page(viewport=PHONE, color_scheme="light")
    _open_gallery(page)
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    assert page.evaluate("document.getElementById('studio').scrollWidth <= innerWidth")
    keep(page, "presets-phone-light")
    page.get_by_role("link", name="Create").click()
    expect(page.locator("#lu-generate")).to_be_visible()
    assert page.evaluate("document.getElementById('studio').scrollWidth <= innerWidth")


def test_the_keyboard_reaches_presets(shared_page: Any) -> None:
    page = shared_page
    page.locator(".lu-views [data-view=presets]").press("Enter")
    expect(page.locator(CARD).first).to_be_visible()
    page.keyboard.press("/")
    expect(page.locator("#lu-presets-search")).to_be_focused()
    page.keyboard.type("cactus g")
    expect(page.locator(CARD)).to_have_count(2)
    page.locator("#lu-presets-search").press("Escape")
    expect(page.locator("#lu-presets-count")).to_have_text(SHIPPED)
    page.locator("#lu-presets-search").press("Escape")
    expect(page.locator("#lu-generate")).to_be_visible()

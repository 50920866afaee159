"""The Train view: twelve pictures dropped, captioned in one click, learnt from, paused, gone on with, and used."""

import io
import re
import subprocess
from collections.abc import Callable
from typing import Any

import imageio_ffmpeg
import pytest
from PIL import Image

playwright_api = pytest.importorskip("playwright.sync_api", reason="browser tests need `pip install playwright`")
expect = playwright_api.expect

from tests.browser.axe import run_axe

OpenPage = Callable[..., Any]
Keep = Callable[[Any, str], None]
PHONE = {"width": 390, "height": 844}
DONE_MS = 60_000
DROP = """(files) => {
  const data = new DataTransfer();
  for (const [name, bytes, type] of files)
    data.items.add(new File([new Uint8Array(bytes)], name, { type: type ?? "image/png" }));
  const options = { bubbles: true, cancelable: true, dataTransfer: data };
  document.querySelector("#lu-train").dispatchEvent(new DragEvent("drop", options));
}"""


def draw_files(count: int, *, first: int = 0) -> list[list[Any]]:
    files = []
    for number in range(first, first + count):
        png = io.BytesIO()
        shade = 20 * number % 256
        Image.radial_gradient("L").resize((96, 72)).convert("RGB").point(lambda v, s=shade: (v + s) % 256).save(
            png, "PNG"
        )
        files.append([f"zorb-{number}.png", list(png.getvalue())])
    return files


def open_train(open_page: OpenPage, **options: Any) -> Any:
    page = open_page(**options)
    page.locator("#lu-nav-train").click()
    expect(page.locator("#lu-train-title")).to_be_focused()
    expect(page.locator("#lu-train-model option")).not_to_have_count(0)
    return page


def drop(page: Any, count: int, *, first: int = 0) -> None:
    there = page.locator("#lu-train-pictures li").count()
    page.evaluate(DROP, draw_files(count, first=first))
    expect(page.locator("#lu-train-pictures li")).to_have_count(there + count)
    expect(page.locator("#lu-train-pictures .lu-input-state:not(:empty)")).to_have_count(0)


def check_access(page: Any) -> None:
    """Whether everybody can use the view, as far as axe-core sees."""
    found = run_axe(page, "#lu-train")
    assert not found, [(one["id"], [node["html"] for node in one["nodes"]]) for one in found]


def test_twelve_pictures_become_a_lora_that_is_used(open_page: OpenPage, keep: Keep) -> None:
    page = open_train(open_page)
    drop(page, 12)
    page.locator("#lu-train-all").fill("A zorb on a table")
    page.get_by_role("button", name="Use for all").click()
    expect(page.get_by_role("textbox", name="Caption of picture 12")).to_have_value("A zorb on a table")
    page.get_by_role("textbox", name="Trigger word").fill("zorb")
    expect(page.get_by_role("textbox", name="Name")).to_have_value("zorb")
    page.get_by_role("radio", name="Gentle").click()
    expect(page.locator("#lu-train-numbers")).to_have_text("400 steps · rank 8 · learning rate 0.001")
    expect(page.locator("#lu-train-cost")).to_have_text(re.compile("no training of this model was measured here"))
    expect(page.locator("#lu-train-keep-note")).to_have_text(re.compile("without the trigger word"))
    page.get_by_role("radio", name="Other things").click()
    expect(page.locator("#lu-train-keep-note")).to_have_text(re.compile("^First the model makes 12 pictures"))
    page.get_by_role("textbox", name="What to keep").fill("A dog\nA boat\n" + "x" * 2001)
    page.get_by_role("button", name="Train", exact=True).click()
    expect(page.locator('[data-message="prior_prompts"]')).to_have_text(
        re.compile("^Line 3: string should have at most")
    )
    page.get_by_role("textbox", name="What to keep").fill("A dog\nA boat")
    check_access(page)
    keep(page, "train-form-dark")
    page.get_by_role("button", name="Train", exact=True).click()

    card = page.locator("#lu-train-cards article")
    expect(card.locator("h3")).to_have_text("zorb")
    expect(page.locator("#lu-train-pictures li")).to_have_count(0)
    expect(card.locator(".lu-training-strip img")).not_to_have_count(0)
    pause = card.get_by_role("button", name="Pause")
    pause.click()
    expect(card).to_have_attribute("data-state", "paused")
    expect(card.locator(".lu-training-state")).to_have_text(re.compile(r"^Paused · saved at step \d+/400"))
    keep(page, "train-paused-dark")
    card.get_by_role("button", name="Go on").click()
    expect(card).to_have_attribute("data-state", "done", timeout=DONE_MS)
    expect(card.locator(".lu-training-state")).to_have_text(re.compile(r"^Done · [\d.]+ s since it went on · "))
    expect(card.locator("figcaption").first).to_have_text(re.compile(r"^Loss from [\d.]+ to [\d.]+, step 400 of 400$"))
    expect(card.locator(".lu-training-strip figcaption").first).to_have_text("Step 400")
    check_access(page)
    keep(page, "train-done-dark")

    card.get_by_role("button", name="Use it: zorb").click()
    expect(page.locator('#lu-loras-list li[data-key="zorb"]')).to_be_visible()
    expect(page.locator("#lu-prompt")).to_have_value("A zorb on a table")


def test_what_is_missing_is_said_where_it_is_missing(open_page: OpenPage) -> None:
    page = open_train(open_page)
    page.get_by_role("button", name="Train", exact=True).click()
    expect(page.locator('[data-message="pictures"]')).to_have_text("Add at least one picture or clip.")
    drop(page, 2, first=12)
    expect(page.locator('[data-message="pictures"]')).to_be_empty()
    page.get_by_role("textbox", name="Caption of picture 1").fill("A zorb")
    page.get_by_role("button", name="Train", exact=True).click()
    expect(page.locator("#lu-train-pictures li").nth(1).get_by_role("alert")).to_have_text(re.compile("trigger word"))
    expect(page.get_by_role("textbox", name="Caption of picture 2")).to_be_focused()
    expect(page.locator('[data-message="name"]')).to_have_text("Give it a name.")
    page.reload()
    expect(page.locator("#lu-train-pictures li")).to_have_count(2)
    expect(page.get_by_role("textbox", name="Caption of picture 1")).to_have_value("A zorb")


def test_a_caption_is_written_on_while_a_file_before_it_turns_out_to_be_none(open_page: OpenPage) -> None:
    page, held = open_train(open_page), []
    page.route("**/api/v1/uploads", lambda route: route.continue_() if held else held.append(route))
    [picture] = draw_files(1, first=40)
    page.evaluate(DROP, [["broken.png", [1, 2, 3]], picture])
    caption = page.get_by_role("textbox", name="Caption of picture 2")
    caption.press_sequentially("A zo")
    held[0].continue_()
    expect(page.locator("#lu-train-pictures li")).to_have_count(1)
    page.keyboard.type("rb")
    expect(page.get_by_role("textbox", name="Caption of picture 1")).to_have_value("A zorb")


def test_missing_captions_are_told_once_above_them_and_what_is_mended_is_not_told_any_more(open_page: OpenPage) -> None:
    page = open_train(open_page)
    drop(page, 3, first=30)
    page.get_by_role("button", name="Train", exact=True).click()
    trigger, name = page.get_by_role("textbox", name="Trigger word"), page.get_by_role("textbox", name="Name")
    told = page.locator("#lu-train-form [role=alert]:not(:empty)")
    expect(told).to_have_text([re.compile("^3 of them have no caption: "), "Give it a name."])
    first, for_all = page.get_by_role("textbox", name="Caption of picture 1"), page.locator("#lu-train-all")
    expect(for_all).to_be_focused()
    for field in (first, for_all, name):
        expect(field).to_have_attribute("aria-invalid", "true")
    expect(for_all).to_have_accessible_description(re.compile("3 of them have no caption"))
    trigger.fill("zorb")
    expect(told).to_have_count(0)
    expect(page.locator("#lu-train-form [aria-invalid]")).to_have_count(0)
    expect(trigger).to_have_accessible_description(re.compile("what was learnt.$"))


def test_missing_captions_that_the_server_leaves_out_are_marked_until_the_last_is_written(open_page: OpenPage) -> None:
    page = open_train(open_page)
    drop(page, 3, first=33)
    fields = {"pictures.0.caption": "describe it", "...": "2 more fields are wrong"}
    error = {"title": "", "detail": "", "advice": "", "fields": fields}
    page.route(
        "**/api/v1/trainings",
        lambda route: (
            route.fulfill(status=422, json={"error": error}) if route.request.method == "POST" else route.fallback()
        ),
    )
    page.get_by_role("button", name="Train", exact=True).click()
    told = page.locator("#lu-train-form [role=alert]:not(:empty)")
    expect(told).to_have_text([re.compile("^3 of them have no caption: ")])
    expect(page.locator("#lu-train-pictures li.lu-wrong")).to_have_count(3)
    for place in (1, 2, 3):
        expect(told).to_have_count(1)
        page.get_by_role("textbox", name=f"Caption of picture {place}").fill("A zorb")
    expect(told).to_have_count(0)


def test_pictures_that_come_while_others_are_on_their_way_are_learnt_from_too(open_page: OpenPage) -> None:
    page = open_train(open_page)
    held: list[Any] = []
    page.route("**/api/v1/uploads", lambda route: held.append(route))
    page.get_by_role("textbox", name="Trigger word").fill("late")
    for first in (36, 37):
        page.evaluate(DROP, draw_files(1, first=first))
        if first == 36:
            page.get_by_role("button", name="Train", exact=True).click()
    expect(page.locator("#lu-train-pictures li")).to_have_count(2)
    for count in (1, 2):
        while len(held) < count:
            page.wait_for_timeout(20)
        held[-1].continue_()
    card = page.locator("#lu-train-cards .lu-training", has_text="late")
    expect(card.locator(".lu-training-facts")).to_contain_text("2 pictures")
    expect(page.locator("#lu-train-pictures li")).to_have_count(0)
    card.get_by_role("button", name="Cancel: late").click()


def test_enter_in_a_line_does_not_train_but_with_control_it_does(open_page: OpenPage) -> None:
    page = open_train(open_page)
    drop(page, 1, first=40)
    page.get_by_role("textbox", name="Trigger word").fill("entered")
    page.keyboard.press("Enter")
    page.get_by_role("textbox", name="Show while it learns").press("Enter")
    expect(page.locator("#lu-train-pictures li")).to_have_count(1)
    page.keyboard.press("Control+Enter")
    expect(page.locator("#lu-train-cards h3", has_text="entered")).to_be_visible()
    expect(page.locator("#lu-train-pictures li")).to_have_count(0)


def test_a_name_that_no_file_can_have_is_told_as_it_was_changed(open_page: OpenPage) -> None:
    page = open_train(open_page)

    def rename(route: Any) -> None:
        answer = route.fetch()
        route.fulfill(response=answer, json={**answer.json(), "name": "a_b"})

    page.route(
        "**/api/v1/trainings", lambda route: rename(route) if route.request.method == "POST" else route.fallback()
    )
    drop(page, 1, first=45)
    page.get_by_role("textbox", name="Trigger word").fill("a/b")
    page.get_by_role("button", name="Train", exact=True).click()
    expect(page.locator("#lu-toasts")).to_contain_text("The LoRA will be called “a_b”")


def test_every_file_that_is_left_out_stays_named_and_texts_are_captions(open_page: OpenPage, keep: Keep) -> None:
    page = open_train(open_page)
    [good] = draw_files(1, first=50)
    pages = io.BytesIO()
    Image.new("RGB", (300, 300), "red").save(
        pages, "GIF", save_all=True, append_images=[Image.new("RGB", (300, 300), "blue")]
    )
    files = [
        ["empty.png", []],
        ["film.mp4", [0], "video/mp4"],
        ["notes.pdf", [0], "application/pdf"],
        ["fake.png", list(b"hello")],
        ["lost.txt", list(b"hello"), "text/plain"],
        good,
        ["zorb-50.txt", list(b"A zorb under a lamp\n"), "text/plain"],
        ["moves.gif", list(pages.getvalue()), "image/gif"],
        ["again.png", good[1]],
    ]
    page.evaluate(DROP, files)
    left = page.locator("#lu-train-left")
    expect(left.get_by_role("listitem")).to_have_count(5)
    expect(left).to_contain_text("6 files were left out")
    expect(left).to_contain_text("“notes.pdf”: Is neither a picture nor a video.")
    expect(left).to_contain_text("“film.mp4”: It is damaged, or no video.")
    expect(left).to_contain_text("“lost.txt”: No picture or clip here has this name.")
    expect(left).to_contain_text("“empty.png” and “fake.png”: This file is not a picture of a known kind.")
    expect(left).to_contain_text("“again.png”: Is picture 1 already.")
    tiles = page.locator("#lu-train-pictures li")
    expect(tiles).to_have_count(2)
    expect(page.get_by_role("textbox", name="Caption of picture 1")).to_have_value("A zorb under a lamp")
    expect(tiles.nth(0)).to_contain_text("Very small (96 × 72 pixels)")
    expect(tiles.nth(1)).to_contain_text("the first one is used")
    page.locator("#lu-train-model").select_option("demo-wan")  # learns 128x128
    expect(tiles.nth(0)).not_to_contain_text("Very small")
    page.locator("#lu-train-model").select_option("demo-sdxl")  # 256x256
    expect(tiles.nth(0)).to_contain_text("Very small (96 × 72 pixels)")
    check_access(page)
    keep(page, "train-left-out-dark")
    page.reload()
    expect(tiles.nth(0)).to_contain_text("Very small (96 × 72 pixels)")
    expect(tiles.nth(1)).to_contain_text("the first one is used")
    drop(page, 1, first=51)
    expect(left).to_be_hidden()


def test_what_a_drop_does_is_said_and_leaving_is_asked_about_while_files_are_on_their_way(open_page: OpenPage) -> None:
    page = open_train(open_page)
    page.evaluate(
        """() => {
          const data = new DataTransfer();
          data.items.add(new File(["x"], "zorb.png", { type: "image/png" }));
          data.items.add(new File(["x"], "zorb.txt", { type: "text/plain" }));
          const options = { bubbles: true, cancelable: true, dataTransfer: data };
          document.body.dispatchEvent(new DragEvent("dragover", options));
        }"""
    )
    expect(page.locator("#lu-drop")).to_have_text("Drop to learn from them")
    leaves = """() => {
      const event = new Event("beforeunload", { cancelable: true });
      return dispatchEvent(event);
    }"""
    assert page.evaluate(leaves)
    held: list[Any] = []
    page.route("**/api/v1/uploads", lambda route: held.append(route))
    page.evaluate(DROP, draw_files(1, first=90))
    expect(page.locator("#lu-train-pictures .lu-input-state")).not_to_be_empty()
    expect(page.locator("#lu-drop")).to_be_hidden()
    assert not page.evaluate(leaves)
    for route in held:
        route.continue_()
    expect(page.locator("#lu-train-pictures .lu-input-state")).to_be_empty()
    assert page.evaluate(leaves)


def test_what_the_gallery_gives_is_in_sight_below_the_cards_and_the_header_can_be_skipped(
    open_page: OpenPage, studio: Any, wait_for: Callable[..., Any]
) -> None:
    page = open_train(open_page, viewport=PHONE)
    for number in range(2):
        recipe = {"model": "demo-sdxl", "prompt": f"A boat to learn {number}", "steps": 1}
        assert page.request.post(f"{studio.url}/api/v1/jobs", data=recipe).ok

    def count_made() -> int:
        made = page.request.get(f"{studio.url}/api/v1/outputs").json()["outputs"]
        return sum(one["recipe"]["prompt"].startswith("A boat to learn") for one in made)

    wait_for("both to be made", lambda: count_made() == 2)
    page.get_by_role("link", name="Gallery").click()
    page.locator("#lu-gallery-choose").click()
    for number in range(2):
        page.locator("#lu-gallery").get_by_role("button", name=f"A boat to learn {number}", exact=True).click()
    page.get_by_role("button", name="Train on these").click()
    expect(page.locator("#lu-toasts")).to_have_text("2 added to learn from.")
    first = page.get_by_role("textbox", name="Caption of picture 1")
    expect(first).to_be_focused()
    expect(first).to_be_in_viewport()
    expect(first).to_have_value(re.compile("^A boat to learn"))
    page.locator("#lu-skip").press("Enter")
    expect(page.locator("#lu-train-title")).to_be_focused()


def test_models_that_are_not_here_say_so_and_which_weights_learn(open_page: OpenPage, keep: Keep) -> None:
    page = open_page()

    def away(route: Any) -> None:
        choices = route.fetch().json()
        for model in choices["models"]:
            model["is_here"] = model["id"].startswith("demo-")
        route.fulfill(json=choices)

    page.route("**/api/v1/trainings/choices", away)
    page.locator("#lu-nav-train").click()
    models = page.get_by_role("combobox", name="Model")
    expect(models.locator("option[value=demo-sdxl]")).to_have_text("Postcards (demo, SDXL layout)")
    expect(models.locator("option[value=flux2-klein-4b]")).to_have_text("FLUX.2 klein 4B (not on this machine)")
    models.select_option("flux2-klein-4b")
    expect(models).to_have_accessible_description(
        re.compile("^Learns from black-forest-labs/FLUX.2-klein-base-4B, .* It is not on this machine")
    )
    room = {"bytes": 6_900_000_000, "free_bytes": 50_000_000_000}
    page.route("**/api/v1/models/sdxl-base/download", lambda route: route.fulfill(json=room))
    models.select_option("sdxl-base")
    expect(page.locator("#lu-train-model-note")).to_have_text(re.compile(r"downloads it first \(6.* GB\)\.$"))
    keep(page, "train-away-dark")


def test_a_time_that_is_planned_for_other_settings_says_both(open_page: OpenPage) -> None:
    page = open_page()

    def plan(route: Any) -> None:
        choices = route.fetch().json()
        for model in choices["models"]:
            for numbers in model["strengths"].values():
                numbers["alone"] |= {"seconds": 600.0, "is_planned": True, "is_about": numbers["rank"] != 16}
        route.fulfill(json=choices)

    page.route("**/api/v1/trainings/choices", plan)
    page.locator("#lu-nav-train").click()
    cost = page.locator("#lu-train-cost")
    expect(cost).to_have_text("Takes about 10 min (steps alone, estimated by the TPU compiler)")
    page.get_by_role("radio", name="Strong").click()
    expect(cost).to_have_text("Takes about 10 min (steps alone, estimated by the TPU compiler for other settings)")


def test_a_model_that_was_chosen_and_is_gone_stays_in_sight_and_learns_nothing(open_page: OpenPage) -> None:
    page = open_train(open_page)
    models = page.get_by_role("combobox", name="Model")
    models.select_option("demo-wan")
    drop(page, 1, first=80)
    page.get_by_role("textbox", name="Trigger word").fill("moved")

    def without(route: Any) -> None:
        choices = route.fetch().json()
        choices["models"] = [model for model in choices["models"] if model["id"] != "demo-wan"]
        route.fulfill(json=choices)

    def refuse(route: Any) -> None:
        told = {"title": "", "detail": "", "advice": "", "fields": {"model": "there is no such model"}}
        is_asked = route.request.method == "POST"
        route.fulfill(status=422, json={"error": told}) if is_asked else route.continue_()

    page.route("**/api/v1/trainings/choices", without)
    page.route("**/api/v1/trainings", refuse)
    page.reload()
    expect(models).to_have_value("demo-wan")
    expect(models.locator("option").first).to_have_text("demo-wan: not here any more")
    with page.expect_request(lambda request: request.method == "POST") as sent:
        page.get_by_role("button", name="Train", exact=True).click()
    assert sent.value.post_data_json["model"] == "demo-wan"
    expect(page.locator('#lu-train [data-message="model"]')).to_have_text("There is no such model.")
    models.select_option("demo-sdxl")
    expect(models.locator("option", has_text="not here any more")).to_have_count(0)


def test_undo_brings_pictures_back_and_keeps_what_came_since(open_page: OpenPage) -> None:
    page = open_train(open_page)
    drop(page, 2, first=60)
    page.get_by_role("textbox", name="Caption of picture 1").fill("The first")
    page.get_by_role("button", name="Remove picture 1").click()
    expect(page.get_by_role("button", name="Remove picture 1")).to_be_focused()  # the next one
    tiles, undo = page.locator("#lu-train-pictures li"), page.get_by_role("button", name="Undo")
    expect(tiles).to_have_count(1)
    undo.click()
    expect(page.get_by_role("textbox", name="Caption of picture 1")).to_have_value("The first")
    page.get_by_role("button", name="Remove all").click()
    expect(tiles).to_have_count(0)
    drop(page, 3, first=70)
    undo.click()
    expect(tiles).to_have_count(5)
    expect(page.get_by_role("textbox", name="Caption of picture 1")).to_have_value("The first")


def test_a_picture_that_the_network_lost_waits_to_be_tried_again(open_page: OpenPage, keep: Keep) -> None:
    page = open_train(open_page)
    page.route("**/api/v1/uploads", lambda route: route.abort())
    page.evaluate(DROP, draw_files(2, first=80))
    again = page.get_by_role("button", name=re.compile("^Try again: zorb-8"))
    expect(again).to_have_count(2)
    expect(page.locator("#lu-train-pictures li").first).to_contain_text("The server does not answer.")
    page.get_by_role("textbox", name="Caption of picture 1").fill("A zorb")
    page.get_by_role("textbox", name="Trigger word").fill("lost")
    page.get_by_role("button", name="Train", exact=True).click()
    expect(page.locator('[data-message="pictures"]')).to_have_text(re.compile("^2 files have not come"))
    expect(again.first).to_be_focused()
    check_access(page)
    keep(page, "train-not-sent-dark")
    page.unroute_all()
    again.first.click()
    again.first.click()
    expect(again).to_have_count(0)
    expect(page.locator("#lu-train-pictures img[src*='/uploads/upload-']")).to_have_count(2)
    expect(page.get_by_role("textbox", name="Caption of picture 1")).to_have_value("A zorb")


def test_the_button_says_what_it_waits_for(open_page: OpenPage) -> None:
    page = open_train(open_page)
    held: list[Any] = []
    page.route("**/api/v1/uploads", lambda route: held.append(route))
    page.evaluate(DROP, draw_files(2, first=160))
    page.get_by_role("textbox", name="Trigger word").fill("waiting")
    page.get_by_role("button", name="Train", exact=True).click()
    cost = page.locator("#lu-train-cost")
    expect(cost).to_have_text("Begins as soon as 2 files have come")
    held.pop(0).continue_()
    expect(cost).to_have_text("Begins as soon as 1 file has come")
    held.pop(0).continue_()
    card = page.locator("#lu-train-cards article").filter(has_text="waiting")
    expect(card).to_be_visible()
    expect(cost).not_to_contain_text("as soon as")
    card.get_by_role("button", name="Cancel").click()
    expect(card).to_have_attribute("data-state", "cancelled")


def test_the_button_stays_in_sight_on_a_laptop(open_page: OpenPage, keep: Keep) -> None:
    page = open_train(open_page, viewport={"width": 1366, "height": 768})
    page.get_by_role("radio", name="Other things").click()
    drop(page, 20, first=100)
    button = page.get_by_role("button", name="Train", exact=True)
    for place in ("0", "200", "document.querySelector('#lu-train').scrollHeight"):
        page.evaluate(f"document.querySelector('#lu-train').scrollTop = {place}")
        expect(button).to_be_in_viewport(ratio=1)
    keep(page, "train-laptop-dark")


def test_the_keyboard_is_at_no_field_below_the_button(open_page: OpenPage) -> None:
    page = open_train(open_page, viewport={"width": 1280, "height": 800})
    page.get_by_role("radio", name="Other things").click()
    for name in ("What to keep, a prompt a line", "Show while it learns"):
        page.keyboard.press("Tab")
        field = page.get_by_role("textbox", name=name)
        expect(field).to_be_focused()
        box = field.bounding_box()
        line = [box["x"] + 9, box["y"] + 24]  # the lower edge of the first one
        seen = page.evaluate("([x, y]) => document.elementFromPoint(x, y).id", line)
        assert seen == field.get_attribute("id"), "nothing lies over what is typed"


def test_it_fits_a_phone(open_page: OpenPage, keep: Keep) -> None:
    page = open_train(open_page, viewport=PHONE, color_scheme="light")
    drop(page, 3, first=20)
    assert page.evaluate("document.querySelector('#studio').scrollWidth") <= PHONE["width"]
    check_access(page)
    keep(page, "train-phone-light")
    page.locator("#lu-train-go").scroll_into_view_if_needed()
    keep(page, "train-phone-form-light")

    page.get_by_role("textbox", name="Trigger word").fill("phone")
    page.locator("#lu-train-go").click()
    card = page.locator("#lu-train-cards article").filter(has_text="phone")
    expect(card.locator("h3")).to_be_focused()
    header = page.locator(".lu-header").bounding_box()
    assert card.bounding_box()["y"] >= header["y"] + header["height"]
    card.get_by_role("button", name="Cancel").click()
    expect(card).to_have_attribute("data-state", "cancelled")


SMALL = """() => {
  const all = "#lu-train :is(button, a, select, input, textarea, summary), .lu-header :is(a, button)";
  return [...document.querySelectorAll(all)]
    .filter((one) => one.checkVisibility() && one.id !== "lu-skip" && one.getBoundingClientRect().height < 40)
    .map((one) => `${one.id || one.textContent || one.ariaLabel} ${one.getBoundingClientRect().height}`);
}"""


def test_on_a_phone_everything_is_large_enough_for_a_finger_and_captions_are_whole(open_page: OpenPage) -> None:
    page = open_train(open_page, viewport=PHONE)
    drop(page, 2, first=140)
    page.get_by_role("radio", name="Other things").click()
    caption = page.get_by_role("textbox", name="Caption of picture 1")
    caption.fill("A zorb on a table in the evening light, seen from above, and some more")
    assert caption.evaluate("area => area.scrollHeight <= area.clientHeight"), "six lines are in sight"
    page.get_by_role("textbox", name="Caption of picture 2").fill("A zorb")
    page.get_by_role("textbox", name="Trigger word").fill("finger")
    assert page.evaluate(SMALL) == []
    dot = page.locator("#lu-engine-state")
    assert dot.evaluate("dot => dot.scrollWidth <= dot.clientWidth"), "the engine's dot is whole"
    page.locator("#lu-train-go").click()
    card = page.locator("#lu-train-cards article").filter(has_text="finger")
    expect(card.locator(".lu-training-strip img").first).to_be_visible()
    assert page.evaluate(SMALL) == []
    card.get_by_role("button", name="Cancel").click()
    expect(card).to_have_attribute("data-state", "cancelled")
    assert page.evaluate(SMALL) == []


def film() -> list[Any]:
    """A clip of a second, as files are dropped."""
    card = "testsrc2=s=96x64:r=10:d=1"
    coded = ("-c:v", "libx264", "-pix_fmt", "yuv420p", "-f", "mp4", "-movflags", "frag_keyframe+empty_moov", "-")
    command = [imageio_ffmpeg.get_ffmpeg_exe(), "-v", "error", "-f", "lavfi", "-i", card, *coded]
    return ["card.mp4", [*subprocess.run(command, check=True, capture_output=True).stdout], "video/mp4"]


@pytest.mark.parametrize("viewport", [None, PHONE])
def test_a_clip_is_dropped_played_and_learnt_by_a_model_of_videos_alone(
    open_page: OpenPage, keep: Keep, viewport: dict[str, int] | None
) -> None:
    page = open_train(open_page, **({"viewport": viewport} if viewport else {}))
    page.evaluate(DROP, [film(), *draw_files(1)])
    tiles = page.locator("#lu-train-pictures li")
    expect(tiles).to_have_count(2)
    expect(page.locator("#lu-train-pictures .lu-input-state:not(:empty)")).to_have_count(0)
    assert page.evaluate("document.querySelector('#lu-train-pictures img').naturalWidth > 0"), "its middle frame"
    play = page.get_by_role("button", name="Play clip 1")
    play.click()
    expect(tiles.first.locator("video")).to_have_attribute("src", re.compile(r"/api/v1/uploads/upload-\w+$"))
    keep(page, f"train-clip-{'phone' if viewport else 'desk'}")
    check_access(page)
    page.get_by_role("button", name="Stop clip 1").click()
    expect(tiles.first.locator("video")).to_have_count(0)
    expect(page.get_by_role("button", name=re.compile("^Play clip"))).to_have_count(1)

    expect(page.locator("#lu-train-count")).to_have_text("1 picture, 1 clip")
    expect(page.get_by_role("textbox", name="Caption of clip 1")).to_be_visible()
    note = page.locator("#lu-train-model-note")
    page.select_option("#lu-train-model", "demo-wan")
    expect(note).to_have_text("Of a clip it learns the first 2.1 s at most.")

    page.fill("#lu-train-trigger", "card")
    page.select_option("#lu-train-model", "demo-sdxl")
    expect(note).to_have_text("It learns pictures, and no clips: remove the clip, or choose a model of videos.")
    page.click("#lu-train-go")
    expect(tiles.first.locator(".lu-message")).to_contain_text("Is a video")
    page.select_option("#lu-train-model", "demo-wan")
    page.fill("#lu-train-name", f"clip-{'phone' if viewport else 'desk'}")
    page.click("#lu-train-go")
    expect(page.locator("#lu-train-cards article")).to_have_count(1)
    expect(page.locator(".lu-training-facts").first).to_contain_text("1 picture, 1 clip")
    expect(tiles).to_have_count(0)


def test_a_clip_that_is_taken_out_while_it_is_sent_is_sent_no_further(open_page: OpenPage) -> None:
    page = open_train(open_page)
    held, ended = list[Any](), list[str]()
    page.route("**/api/v1/clips", lambda route: route.continue_() if held else held.append(route))
    page.on("requestfailed", lambda request: ended.append(request.url))
    page.evaluate(DROP, [film(), *draw_files(1, first=120)])
    tiles = page.locator("#lu-train-pictures li")
    expect(tiles).to_have_count(2)
    page.wait_for_function("document.querySelector('#lu-train-pictures .lu-input-state').textContent !== ''")
    assert held and not ended
    page.get_by_role("button", name="Remove clip 1").click()
    come = page.locator("#lu-train-pictures img[src*='/uploads/upload-']")
    expect(come).to_have_count(1)  # the picture that waited behind it
    assert len(ended) == 1 and ended[0].endswith("/api/v1/clips")
    expect(page.locator("#lu-train-left")).to_be_hidden()  # nothing is said to have failed
    page.get_by_role("button", name="Undo").click()
    expect(tiles).to_have_count(2)
    expect(come).to_have_count(2)
    assert len(ended) == 1

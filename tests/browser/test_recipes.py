"""The recipe in a file, in a real browser: dropped or chosen, offered with what it leaves out, then in the controls."""

import io
import json
import urllib.request
from collections.abc import Callable
from typing import Any

import pytest

pytest.importorskip("playwright.sync_api")
from PIL import Image, PngImagePlugin
from playwright.sync_api import expect

pytestmark = pytest.mark.browser
PHONE = {"width": 390, "height": 844}
PANEL, USE, FILE = "#lu-recipe", "#lu-recipe-use", "#lu-recipe-file"
TEXT = (
    "a red boat, <lora:pixel:0.8>\nNegative prompt: fog\n"
    "Steps: 31, Sampler: Euler a, CFG scale: 6.5, Seed: 77, Size: 640x384, Model: mix, Clip skip: 2"
)
DROP = """([name, type, bytes]) => {
  const data = new DataTransfer();
  data.items.add(new File([new Uint8Array(bytes)], name, { type }));
  const options = { bubbles: true, cancelable: true, dataTransfer: data };
  document.querySelector("#lu-view").dispatchEvent(new DragEvent("drop", options));
}"""
DRAG = """([what, type]) => {
  const data = new DataTransfer();
  data.items.add(new File(["x"], "x", { type }));
  document.querySelector("#lu-view").dispatchEvent(
    new DragEvent(what, { bubbles: true, cancelable: true, dataTransfer: data }));
}"""

OpenPage = Callable[..., Any]
Keep = Callable[[Any, str], None]


def write_png(**texts: str) -> bytes:
    chunks = PngImagePlugin.PngInfo()
    for keyword, text in texts.items():
        chunks.add_text(keyword, text)
    file = io.BytesIO()
    Image.new("RGB", (64, 40), "teal").save(file, "PNG", pnginfo=chunks)
    return file.getvalue()


def _drop(page: Any, content: bytes, *, name: str = "boat.png", kind: str = "image/png") -> None:
    page.evaluate(DROP, [name, kind, list(content)])


def _choose(page: Any, content: bytes) -> None:
    page.set_input_files(FILE, [{"name": "boat.png", "mimeType": "image/png", "buffer": content}])


def test_a_dropped_recipe_fills_the_controls_and_says_what_it_leaves_out(open_page: OpenPage, keep: Keep) -> None:
    page = open_page()
    _drop(page, write_png(parameters=TEXT))
    expect(page.locator(PANEL)).to_contain_text("Recipe from A1111")
    expect(page.get_by_role("list", name="Cannot be used here").get_by_role("listitem")).to_have_text(
        [
            "Model mix is not among the models here; Postcards (demo, SDXL layout) stays",
            "LoRA pixel is not among the LoRAs here",
            "Clip skip: 2 the text encoders run as the model was trained",
        ]
    )
    expect(page.locator("#lu-prompt")).to_have_value("")
    keep(page, "recipe-offered-dark")
    page.click(USE)
    for field, value in (
        ("prompt", "a red boat"),
        ("negative", "fog"),
        ("steps-value", "31"),
        ("guidance_scale-value", "6.5"),
        ("scheduler", "euler_ancestral"),
        ("seed", "77"),
        ("model", "demo-sdxl"),
    ):
        expect(page.locator(f"#lu-{field}")).to_have_value(value)
    expect(page.locator(".lu-size[aria-checked=true]")).to_contain_text("320 × 192")
    expect(page.locator(PANEL)).to_contain_text("Filled in, except for this")
    expect(page.locator(PANEL)).to_contain_text("LoRA pixel")
    page.get_by_role("button", name="Close").first.click()
    expect(page.locator(PANEL)).to_be_hidden()
    expect(page.get_by_role("button", name="Read recipe from file")).to_be_focused()


def test_a_picture_made_here_brings_its_recipe_back(open_page: OpenPage, studio: Any) -> None:
    page = open_page()
    page.fill("#lu-prompt", "A boat at night under the stars")
    page.fill("#lu-steps-value", "2")
    page.fill("#lu-seed", "123")
    page.click("#lu-generate")
    expect(page.locator("img.lu-result[alt='A boat at night under the stars']")).to_be_visible()
    with urllib.request.urlopen(f"{studio.url}/api/v1/jobs") as answer:
        made = json.load(answer)["jobs"][0]["outputs"][0]
    with urllib.request.urlopen(studio.url + made["url"]) as answer:
        content = answer.read()
    other = open_page()
    other.fill("#lu-prompt", "What I typed")
    _choose(other, content)
    expect(other.locator(PANEL)).to_contain_text("Recipe from Lumesh")
    other.click(USE)
    expect(other.locator(PANEL)).to_be_hidden()
    expect(other.locator("#lu-prompt")).to_have_value("A boat at night under the stars")
    expect(other.locator("#lu-seed")).to_have_value("123")
    other.locator("#lu-toasts").get_by_role("button", name="Undo").click()
    expect(other.locator("#lu-prompt")).to_have_value("What I typed")
    expect(other.locator("#lu-seed")).to_have_value("")


def test_what_cannot_be_read_or_carries_nothing_is_told(open_page: OpenPage, keep: Keep) -> None:
    page = open_page(viewport=PHONE, color_scheme="light")
    _choose(page, write_png(lumesh='{"model": '))
    expect(page.locator(PANEL)).to_contain_text("“boat.png”: Its recipe is damaged: it is not complete JSON.")
    expect(page.locator(USE)).to_have_count(0)
    keep(page, "recipe-damaged-phone-light")
    _choose(page, write_png())
    expect(page.locator(PANEL)).to_contain_text("No recipe in this file")
    whole, as_input = write_png(), page.get_by_role("button", name="Use as input picture")
    expect(as_input).to_be_visible()
    _choose(page, whole[: len(whole) // 2])
    expect(page.locator(PANEL)).to_contain_text("No recipe can be read from this file")
    expect(as_input).to_be_hidden()  # it is refused as an input, too
    for view, kind, text in (
        ("Create", "image/png", "Drop to read its recipe or use it as input"),
        ("Create", "video/mp4", "Drop to read its recipe"),
        ("Create", "", "Drop to add a LoRA, or to read a recipe"),
        ("Presets", "image/png", "Drop to import"),
        ("Create", "application/json", "Drop to import"),
    ):
        page.get_by_role("link", name=view).click()
        page.evaluate(DRAG, ["dragover", kind])
        expect(page.locator("#lu-drop")).to_have_text(text)
        if not kind:
            keep(page, "drop-hint-phone-light")
        page.evaluate(DRAG, ["dragleave", kind])
        expect(page.locator("#lu-drop")).to_be_hidden()
    _drop(page, b"hello\0", name="clip.mp4", kind="video/mp4")
    expect(page.locator(PANEL)).to_contain_text("It is not a PNG, JPEG, WebP, AVIF, GIF or MP4 file.")
    assert page.evaluate("document.getElementById('studio').scrollWidth <= innerWidth")
    page.keyboard.press("Escape")
    expect(page.locator(PANEL)).to_be_hidden()


def test_the_same_file_can_still_become_an_input_picture(open_page: OpenPage) -> None:
    page = open_page()
    page.select_option("#lu-model", "flux2-klein-4b")
    _drop(page, write_png(parameters=TEXT))
    page.get_by_role("button", name="Use as input picture").click()
    expect(page.locator(".lu-input-picture img[src*='/uploads/upload-']")).to_have_count(1)
    expect(page.locator(PANEL)).to_be_hidden()
    expect(page.locator("#lu-prompt")).to_have_value("")


def test_pasted_settings_are_offered_and_what_is_not_read_is_said_while_typing(open_page: OpenPage, keep: Keep) -> None:
    page = open_page()
    count, notes = page.locator("#lu-prompt-count"), page.locator("#lu-prompt-notes")
    page.fill("#lu-prompt", "a red boat")
    expect(count).to_have_text("3 / 38")
    expect(notes).to_be_hidden()
    page.fill("#lu-prompt", "a red boat, " * 80 + "a lighthouse at night")
    expect(count).to_have_attribute("data-wrong", "true")
    expect(notes).to_contain_text("Not read: ")
    expect(notes).to_contain_text("lighthouse at night")
    keep(page, "prompt-too-long")
    page.fill("#lu-prompt", "x" * 32_500)  # not even this is cut: it is refused
    page.click("#lu-generate")
    expect(page.locator("#lu-prompt-message")).to_contain_text("Has 32,500 characters; at most 32,000 are allowed")
    assert len(page.input_value("#lu-prompt")) == 32_500
    page.evaluate(
        """(text) => {
          const clipboardData = new DataTransfer();
          clipboardData.setData("text/plain", text);
          document.querySelector("#lu-prompt").dispatchEvent(
            new ClipboardEvent("paste", { bubbles: true, cancelable: true, clipboardData }));
        }""",
        TEXT,
    )
    expect(page.locator(PANEL)).to_contain_text("Recipe from A1111")
    page.click(USE)
    expect(page.locator("#lu-prompt")).to_have_value("a red boat")

"""LoRAs of the page: added in the System view, weighed in Create, kept, brought back, and on a grid's axis."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

playwright_api = pytest.importorskip("playwright.sync_api", reason="browser tests need `pip install playwright`")
expect = playwright_api.expect

OpenPage = Callable[..., Any]
Keep = Callable[[Any, str], None]
PHONE = {"width": 390, "height": 844}
DROP = """([name, bytes]) => {
  const data = new DataTransfer();
  data.items.add(new File([new Uint8Array(bytes)], name));
  const options = { bubbles: true, cancelable: true, dataTransfer: data };
  document.querySelector("#lu-view").dispatchEvent(new DragEvent("drop", options));
}"""


@pytest.fixture(scope="module", autouse=True)
def loras(studio: Any, encode_lora: Callable[..., bytes]) -> Path:
    """The folder, with two LoRAs for SDXL and one for Wan."""
    folder = studio.data_dir / "loras"
    for ref, family, title in (
        ("pixel", "sdxl", "Pixel art"),
        ("linocut-prints-v2", "sdxl", ""),
        ("boats", "wan", ""),
    ):
        (folder / f"{ref}.safetensors").write_bytes(encode_lora(family, title=title))
    return folder


def add(page: Any, ref: str) -> Any:
    page.locator("#lu-loras-choice").select_option(ref)
    page.get_by_role("button", name="Add", exact=True).click()
    return page.locator(f'#lu-loras-list li[data-key="{ref}"]')


def submit(page: Any) -> Any:
    """The recipe that Generate sends."""
    with page.expect_request(lambda request: request.url.endswith("/api/v1/jobs") and request.method == "POST") as sent:
        page.locator("#lu-generate").click()
    return sent.value.post_data_json


def test_loras_are_added_weighed_kept_and_taken_out(open_page: OpenPage, keep: Keep) -> None:
    page = open_page()
    field = page.get_by_role("group", name="LoRAs")
    options = field.locator("option")
    expect(options).to_have_text(["linocut-prints-v2", "Pixel art · pixel"])
    row = add(page, "pixel")
    slider = row.get_by_role("slider", name="Pixel art")
    expect(slider).to_be_focused()
    assert [slider.get_attribute(name) for name in ("min", "max", "step")] == ["-1", "2", "0.05"]
    for _ in range(4):
        page.keyboard.press("ArrowLeft")
    number = row.get_by_role("spinbutton", name=re.compile("Pixel art.*as a number"))
    expect(number).to_have_value("0.8")
    other = add(page, "linocut-prints-v2")
    other.get_by_role("spinbutton").fill("-2.5")
    expect(page.locator("#lu-loras-new")).to_be_hidden()
    expect(page.locator("#lu-loras-count")).to_have_text("2 of 8")
    field.scroll_into_view_if_needed()
    keep(page, "loras-desk")
    page.reload()
    expect(page.locator("#lu-loras-list li")).to_have_count(2)
    expect(page.locator("#lu-loras-list").get_by_role("spinbutton").nth(1)).to_have_value("-2.5")
    page.locator("#lu-prompt").fill("A red boat")
    page.locator("#lu-steps-value").fill("1")
    sent = submit(page)
    assert sent["loras"] == [{"ref": "pixel", "scale": 0.8}, {"ref": "linocut-prints-v2", "scale": -2.5}]
    page.get_by_role("button", name="Remove the LoRA linocut-prints-v2").click()
    expect(page.get_by_role("button", name="Remove the LoRA Pixel art")).to_be_focused()
    page.keyboard.press("Enter")
    expect(page.locator("#lu-loras-choice")).to_be_focused()
    assert submit(page)["loras"] == []


def test_a_weight_that_cannot_be_is_said_at_the_loras(open_page: OpenPage) -> None:
    page = open_page()
    page.locator("#lu-prompt").fill("A red boat")
    add(page, "pixel").get_by_role("spinbutton").fill("21")
    submit(page)
    expect(page.locator('[data-message="loras"]')).to_contain_text("scale of 21")
    expect(page.locator("#lu-loras")).to_have_class(re.compile("lu-wrong"))


def test_a_lora_waits_for_a_model_that_it_fits(open_page: OpenPage) -> None:
    page = open_page()
    page.locator("#lu-prompt").fill("A red boat")
    add(page, "pixel")
    page.locator("#lu-model").select_option("demo-flux2")
    expect(page.get_by_role("group", name="LoRAs")).to_contain_text("No LoRA here fits this model yet: add")
    expect(page.get_by_role("button", name="Add a file")).to_be_visible()
    page.locator("#lu-model").select_option("demo-wan")
    expect(page.locator("#lu-loras-list li")).to_have_count(0)
    expect(page.locator("#lu-loras-choice option")).to_have_text(["boats"])
    page.locator("#lu-model").select_option("demo-sdxl")
    expect(page.locator("#lu-loras-list li")).to_have_count(1)


@pytest.mark.parametrize("size", [None, PHONE])
def test_a_file_goes_to_the_expert_that_it_names_or_that_is_chosen(
    open_page: OpenPage, keep: Keep, loras: Path, encode_lora: Callable[..., bytes], size: dict[str, int] | None
) -> None:
    file = loras / "ink_HIGH.safetensors"
    file.write_bytes(encode_lora("wan"))
    try:
        page = open_page(viewport=size) if size else open_page()
        page.locator("#lu-prompt").fill("A red boat")
        page.route("**/api/v1/jobs", lambda route: route.abort())  # 81 frames are for nobody here
        page.locator("#lu-model").select_option("wan2.2-a14b")
        row = add(page, "ink_HIGH")
        expert = row.get_by_role("combobox", name="Expert that ink_HIGH goes to")
        expect(expert.locator("option:checked")).to_have_text("As the file says: high noise")
        assert submit(page)["loras"] == [{"ref": "ink_HIGH", "scale": 1}]
        expert.select_option(label="high noise")
        row.get_by_role("spinbutton").fill("3")
        add(page, "ink_HIGH")
        second = page.locator("#lu-loras-list li").nth(1)
        expect(second.get_by_role("combobox").locator("option:checked")).to_have_text("low noise")
        second.get_by_role("spinbutton").fill("0.5")
        field = page.get_by_role("group", name="LoRAs")
        expect(field.locator('#lu-loras-choice option[value="ink_HIGH"]')).to_have_count(0)
        field.scroll_into_view_if_needed()
        keep(page, f"loras-experts-{'phone' if size else 'desk'}")
        assert submit(page)["loras"] == [
            {"ref": "ink_HIGH", "scale": 3, "expert": "high"},
            {"ref": "ink_HIGH", "scale": 0.5, "expert": "low"},
        ]
        page.locator("#lu-model").select_option("demo-wan")
        expect(page.locator("#lu-loras-list li")).to_have_count(1)
        expect(row.get_by_role("combobox")).to_be_hidden()
    finally:
        file.unlink()


def test_an_output_shows_its_loras_and_brings_them_back(open_page: OpenPage, loras: Path) -> None:
    page = open_page()
    page.locator("#lu-prompt").fill("A cactus with a LoRA")
    page.locator("#lu-steps-value").fill("1")
    add(page, "pixel").get_by_role("spinbutton").fill("0.35")
    submit(page)
    expect(page.get_by_role("region", name="Result").get_by_role("img", name="A cactus with a LoRA")).to_be_visible()
    page.get_by_role("button", name="Remove the LoRA Pixel art").click()
    page.get_by_role("link", name="Gallery").click()
    page.locator(".lu-shot:not([hidden])").get_by_role("button", name="A cactus with a LoRA", exact=True).first.click()
    expect(page.locator("#lu-detail-body")).to_contain_text("pixel at 0.35")
    page.locator("#lu-detail-use").click()
    row = page.locator("#lu-loras-list li")
    expect(row.get_by_role("spinbutton")).to_have_value("0.35")
    file = loras / "pixel.safetensors"
    content = file.read_bytes()
    file.unlink()
    try:
        page.reload()
        expect(row).to_contain_text("not here")
        submit(page)
        expect(page.locator('[data-message="loras"]')).to_contain_text("There is no LoRA 'pixel' here")
    finally:
        file.write_bytes(content)


def test_a_grid_has_the_scale_of_each_lora(open_page: OpenPage, keep: Keep) -> None:
    page = open_page()
    page.locator("#lu-prompt").fill("A red boat")
    page.locator("#lu-xyz-open").click()
    fields = page.locator("#lu-xyz-x-field")
    expect(fields.locator("option", has_text="Scale of")).to_have_count(0)
    page.keyboard.press("Escape")
    add(page, "pixel")
    page.locator("#lu-xyz-open").click()
    fields.select_option(label="Scale of pixel")
    page.locator("#lu-xyz-x-values").fill("-0.5-1 (+0.5)")
    page.locator("#lu-xyz-y-field").select_option("steps")
    page.locator("#lu-xyz-y-values").fill("1, 2")
    expect(page.locator("#lu-xyz-count")).to_contain_text("4 × 2 = 8 jobs")
    keep(page, "loras-grid")
    with page.expect_response(lambda answer: answer.url.endswith("/api/v1/grids")) as sent:
        page.locator("#lu-xyz-queue").click()
    assert sent.value.request.post_data_json["x"] == {"field": "lora_scale", "lora": "pixel", "values": "-0.5-1 (+0.5)"}
    assert sent.value.status == 201


def test_admins_add_files_on_create_and_in_the_system_view_and_delete_them(
    open_page: OpenPage, keep: Keep, encode_lora: Callable[..., bytes]
) -> None:
    page = open_page()
    page.evaluate(DROP, ["ink.safetensors", list(b"nothing")])
    expect(page.get_by_role("region", name="A LoRA file")).to_contain_text(
        "“ink.safetensors”: kept here, for everybody"
    )
    keep(page, "loras-dropped")
    page.click("#lu-lora-take")
    message = page.locator('[data-message="loras"]')
    expect(message).to_contain_text("“ink.safetensors”: This file cannot be used as a LoRA: it is no safetensors file")
    page.evaluate(DROP, ["ink.safetensors", list(encode_lora())])
    page.click("#lu-lora-take")
    expect(page.locator("#lu-loras-list")).to_contain_text("ink")  # in the recipe at once
    expect(message).to_be_empty()
    page.get_by_role("link", name="System").click()
    page.click("#lu-sys-tab-loras")
    card = page.get_by_role("region", name="LoRAs")
    expect(card.locator("tbody tr")).to_have_count(4)
    expect(card).to_contain_text("/data/loras")
    chosen = {"name": "Watercolour 3.safetensors", "mimeType": "application/octet-stream"}
    page.locator("#lu-lora-file").set_input_files([{**chosen, "buffer": b"nothing"}])
    expect(card.get_by_role("alert")).to_contain_text("This file cannot be used as a LoRA: it is no safetensors file")
    page.locator("#lu-lora-file").set_input_files([{**chosen, "buffer": encode_lora()}])
    expect(card).to_contain_text("Watercolour 3")
    card.scroll_into_view_if_needed()
    keep(page, "loras-system")
    with page.expect_download() as taken:
        card.get_by_role("link", name="Download the LoRA ink").click()
    assert taken.value.suggested_filename == "ink.safetensors"
    assert taken.value.path().read_bytes() == encode_lora()
    page.get_by_role("link", name="Create").click()
    expect(page.locator("#lu-loras-choice option")).to_contain_text(["Watercolour 3"])
    page.get_by_role("link", name="System").click()
    page.on("dialog", lambda dialog: dialog.accept())
    for name in ("Watercolour 3", "ink"):
        card.get_by_role("button", name=f"Delete the LoRA {name}").click()
    expect(card.locator("tbody tr")).to_have_count(3)


def test_a_preset_fills_in_its_loras(open_page: OpenPage, studio: Any) -> None:
    page = open_page()
    recipe = {"model": "demo-sdxl", "prompt": "A hut", "loras": [{"ref": "pixel", "scale": 0.4}, {"ref": "other"}]}
    made = page.request.post(f"{studio.url}/api/v1/presets", data={"title": "Hut", "recipe": recipe}).json()
    page.goto(f"{studio.url}/?preset={made['id']}")
    expect(page.locator("#lu-origin")).to_contain_text("LoRAs that are not here: other.")
    expect(page.locator("#lu-loras-list").get_by_role("spinbutton").first).to_have_value("0.4")
    expect(page.locator("#lu-loras-list li").nth(1)).to_contain_text("not here")


@pytest.mark.parametrize("scheme", ["dark", "light"])
def test_loras_fit_a_phone(open_page: OpenPage, keep: Keep, scheme: str) -> None:
    page = open_page(viewport=PHONE, color_scheme=scheme)
    add(page, "linocut-prints-v2").get_by_role("spinbutton").fill("1.25")
    row = page.locator("#lu-loras-list li")
    page.locator("#lu-loras").evaluate("field => field.scrollIntoView({ block: 'center' })")
    assert page.evaluate("document.documentElement.scrollWidth") <= PHONE["width"]
    button = row.get_by_role("button").bounding_box()
    assert min(button["width"], button["height"]) >= 36
    page.evaluate("document.activeElement.blur()")
    keep(page, f"loras-phone-{scheme}")

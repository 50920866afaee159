"""Pictures to start from, in a real browser: dropped, pasted, chosen, made here; refused in words; on a phone too."""

import io
import json
import urllib.request
from collections.abc import Callable
from typing import Any

import pytest

pytest.importorskip("playwright.sync_api")
from PIL import Image, ImageStat
from playwright.sync_api import expect

pytestmark = pytest.mark.browser
PHONE = {"width": 390, "height": 844}
ADD, FILE, LIST, COUNT, MESSAGE, LEFT = (
    "#lu-inputs-add",
    "#lu-inputs-file",
    ".lu-input-picture",
    "#lu-inputs-count",
    "[data-message=images]",
    "#lu-inputs-left",
)
SENT = f"{LIST} img[src*='/uploads/upload-']"
# What a browser does when somebody drops or pastes files; a number instead of bytes is a file of that many zeros.
HAND_OVER = """([how, files]) => {
  const data = new DataTransfer();
  for (const [name, bytes] of files) data.items.add(new File([new Uint8Array(bytes)], name, { type: "image/png" }));
  const options = { bubbles: true, cancelable: true };
  const event = how === "drop"
    ? new DragEvent("drop", { ...options, dataTransfer: data })
    : new ClipboardEvent("paste", { ...options, clipboardData: data });
  document.querySelector("#lu-prompt").dispatchEvent(event);
}"""

OpenPage = Callable[..., Any]
Keep = Callable[[Any, str], None]
Encode = Callable[..., bytes]


@pytest.fixture
def give(encode_picture: Encode) -> Callable[..., None]:
    """`give(page, "drop", "red")`: one picture a colour, dropped on the page, pasted into it or chosen as files."""

    def give(page: Any, how: str, *colours: str) -> None:
        if how == "choose":
            files = [(f"{colour}.png", encode_picture(colour)) for colour in colours]
            page.set_input_files(FILE, [{"name": name, "mimeType": "image/png", "buffer": b} for name, b in files])
        else:
            page.evaluate(HAND_OVER, [how, [[f"{colour}.png", list(encode_picture(colour))] for colour in colours]])

    return give


def _choose_model(page: Any, model: str, size: str) -> None:
    page.select_option("#lu-model", model)
    page.locator(".lu-size", has_text=size).click()


def _make(page: Any, prompt: str) -> None:
    page.fill("#lu-prompt", prompt)
    page.fill("#lu-steps-value", "2")
    page.click("#lu-generate")


def _expect_video(page: Any, prompt: str) -> None:
    """The one of this prompt: an earlier one may still be on the canvas while pictures are sent."""
    expect(page.locator(f"video.lu-result[aria-label='{prompt}']")).to_be_visible(timeout=20_000)


def _read(studio: Any, path: str) -> bytes:
    with urllib.request.urlopen(f"{studio.url}{path}") as answer:
        return answer.read()


def _read_newest(studio: Any) -> dict[str, Any]:
    return json.loads(_read(studio, "/api/v1/jobs"))["jobs"][0]


def _colour_of(studio: Any, job: dict[str, Any]) -> list[float]:
    return ImageStat.Stat(Image.open(io.BytesIO(_read(studio, job["outputs"][0]["url"])))).mean


def test_pixels_that_were_chosen_dropped_or_pasted_arrive(
    open_page: OpenPage, studio: Any, give: Callable[..., None]
) -> None:
    page = open_page()
    page.select_option("#lu-model", "demo-flux2")
    expect(page.locator("#lu-inputs")).to_be_hidden()  # it takes none
    _choose_model(page, "flux2-klein-4b", "512 × 512")
    expect(page.locator(COUNT)).to_have_text("up to 4")
    colours = {}
    for how, colour in (("choose", "red"), ("drop", "lime"), ("paste", "blue")):
        give(page, how, colour)
        expect(page.locator(SENT)).to_have_count(1)
        _make(page, f"A boat in {colour}")
        expect(page.locator(f"img.lu-result[alt='A boat in {colour}']")).to_be_visible()
        colours[colour] = _colour_of(studio, _read_newest(studio))
        page.get_by_role("button", name="Remove input picture 1").click()
        expect(page.locator(LIST)).to_have_count(0)
    for place, colour in enumerate(("red", "lime", "blue")):
        assert all(colours[colour][place] > colours[other][place] + 80 for other in colours if other != colour)


def test_order_and_draft_survive_a_refresh_and_removing_keeps_the_rest(
    open_page: OpenPage, give: Callable[..., None], keep: Keep
) -> None:
    page = open_page(color_scheme="light")
    _choose_model(page, "flux2-klein-4b", "512 × 512")
    give(page, "choose", "red", "lime")
    give(page, "drop", "blue")
    expect(page.locator(SENT)).to_have_count(3)
    expect(page.locator(COUNT)).to_have_text("3 of 4")
    keep(page, "inputs-light")
    before = page.locator(SENT).evaluate_all("images => images.map(image => image.src)")
    page.reload()
    expect(page.locator(SENT)).to_have_count(3)
    assert page.locator(SENT).evaluate_all("images => images.map(image => image.src)") == before
    page.get_by_role("button", name="Remove input picture 2").focus()
    page.keyboard.press("Enter")
    expect(page.locator(SENT)).to_have_count(2)
    assert page.locator(SENT).evaluate_all("images => images.map(image => image.src)") == [before[0], before[2]]
    expect(page.get_by_role("button", name="Remove input picture 2")).to_be_focused()


def test_more_than_the_model_takes_are_left_out_in_words(
    open_page: OpenPage, give: Callable[..., None], keep: Keep
) -> None:
    page = open_page()
    _choose_model(page, "flux2-klein-4b", "512 × 512")
    give(page, "choose", "red", "lime", "blue", "white", "black")
    expect(page.locator(SENT)).to_have_count(4)
    expect(page.locator(LEFT)).to_contain_text("“black.png”: FLUX.2 klein 4B takes at most 4 input pictures.")
    expect(page.locator(ADD)).to_be_hidden()
    keep(page, "inputs-full-dark")
    page.select_option("#lu-model", "wan2.1-i2v-14b")
    expect(page.locator(COUNT)).to_have_text("4 of 1: remove 3")
    _make(page, "It moves")
    expect(page.locator(MESSAGE)).to_contain_text("takes at most 1 images")
    page.select_option("#lu-model", "demo-flux2")
    give(page, "drop", "red")
    expect(page.locator("#lu-toasts")).to_contain_text("takes no input pictures")


def test_a_picture_that_is_taken_out_while_it_is_sent_is_sent_no_further(
    open_page: OpenPage, give: Callable[..., None]
) -> None:
    page = open_page()
    _choose_model(page, "flux2-klein-4b", "512 × 512")
    ended: list[str] = []
    page.on("requestfailed", lambda request: ended.append(request.url))
    page.route("**/api/v1/uploads", lambda _route: None)
    give(page, "choose", "red")
    with page.expect_event("requestfailed"):
        page.get_by_role("button", name="Remove input picture 1").click()
    assert [url.endswith("/api/v1/uploads") for url in ended] == [True]
    expect(page.locator("#lu-inputs-left")).to_be_hidden()  # nothing is said to have failed
    page.unroute_all()
    held: list[Any] = []
    page.route("**/api/v1/uploads", lambda route: held.append(route))
    give(page, "choose", "lime")
    _make(page, "It waits for its picture")
    expect(page.locator("#lu-toasts")).to_have_text("Begins as soon as 1 file has come")
    held[0].continue_()
    expect(page.locator("img.lu-result[alt='It waits for its picture']")).to_be_visible()
    expect(page.locator(SENT)).to_have_count(1)


def test_what_is_no_picture_is_refused_at_the_row(open_page: OpenPage, keep: Keep) -> None:
    page = open_page()
    _choose_model(page, "flux2-klein-4b", "512 × 512")
    page.set_input_files(
        FILE,
        [
            {"name": "notes.png", "mimeType": "image/png", "buffer": b"hello"},
            {"name": "other.png", "mimeType": "image/png", "buffer": b"hello, you"},
        ],
    )
    expect(page.locator(LEFT)).to_contain_text("2 files were left out")
    expect(page.locator(LEFT)).to_contain_text(
        "“notes.png” and “other.png”: This file is not a picture of a known kind."
    )
    expect(page.locator(LIST)).to_have_count(0)
    keep(page, "inputs-refused-dark")
    page.evaluate(HAND_OVER, ["drop", [["huge.png", 20_000_001]]])
    expect(page.locator(LEFT).get_by_role("listitem")).to_have_text(
        ["“huge.png”: It is larger than 20 MB; make it smaller."]
    )
    page.locator(LEFT).get_by_role("button", name="Dismiss").click()
    expect(page.locator(LEFT)).to_be_hidden()


def test_a_model_of_two_pictures_asks_for_the_first_and_the_last(
    open_page: OpenPage, studio: Any, give: Callable[..., None], keep: Keep
) -> None:
    page = open_page()
    page.select_option("#lu-model", "wan2.1-flf2v-14b")
    page.click("#lu-sizes [data-key='832x480x33']")
    expect(page.locator("#lu-inputs-label")).to_have_text("First and last picture")
    give(page, "choose", "red")
    expect(page.locator(COUNT)).to_have_text("needs a first and a last picture")
    _make(page, "It opens")
    expect(page.locator(MESSAGE)).to_have_text(
        "This model needs a first and a last picture: drop, paste or choose them."
    )
    give(page, "drop", "blue")
    expect(page.locator(SENT)).to_have_count(2)
    expect(page.locator(COUNT)).to_have_text("2 of 2")
    keep(page, "inputs-first-and-last")
    page.click("#lu-generate")
    _expect_video(page, "It opens")
    assert len(_read_newest(studio)["recipe"]["images"]) == 2


def test_image_to_video_asks_for_its_first_picture_and_then_moves_it(
    open_page: OpenPage, studio: Any, give: Callable[..., None], keep: Keep
) -> None:
    page = open_page()
    before = len(json.loads(_read(studio, "/api/v1/jobs"))["jobs"])
    page.select_option("#lu-model", "wan2.1-i2v-14b")
    page.click("#lu-sizes [data-key='832x480x33']")
    expect(page.locator(COUNT)).to_have_text("needs a first picture")
    _make(page, "It moves")
    expect(page.locator(MESSAGE)).to_have_text("This model needs a first picture: drop, paste or choose one.")
    expect(page.locator(ADD)).to_be_focused()
    assert len(json.loads(_read(studio, "/api/v1/jobs"))["jobs"]) == before
    keep(page, "inputs-missing-dark")
    give(page, "choose", "red")
    expect(page.locator(MESSAGE)).to_be_empty()
    give(page, "drop", "blue")  # the only one: it takes the other's place
    expect(page.locator(SENT)).to_have_count(1)
    page.click("#lu-generate")
    _expect_video(page, "It moves")
    assert len(_read_newest(studio)["recipe"]["images"]) == 1
    expect(page.locator("#lu-use-as-input")).to_have_count(0)


def test_the_slider_says_how_much_of_a_picture_is_made_anew(
    open_page: OpenPage, studio: Any, give: Callable[..., None], keep: Keep
) -> None:
    page = open_page()
    page.select_option("#lu-model", "demo-sdxl")
    expect(page.locator("#lu-inputs-label")).to_have_text("Picture to start from")
    slider, value = page.locator("#lu-strength"), page.locator("#lu-strength-value")
    expect(slider).to_be_hidden()
    _make(page, "A boat from noise")
    expect(page.locator("img.lu-result[alt='A boat from noise']")).to_be_visible()
    assert _read_newest(studio)["recipe"]["strength"] is None
    give(page, "choose", "red")
    expect(page.locator(SENT)).to_have_count(1)
    expect(page.get_by_role("slider", name="Strength")).to_be_visible()
    expect(value).to_have_value("0.6")
    keep(page, "strength-dark")
    colours = []
    for strength, steps in (("0.9", 9), ("0.2", 2)):
        slider.fill(strength)
        expect(value).to_have_value(strength)
        page.fill("#lu-prompt", f"A boat at {strength}")
        page.fill("#lu-steps-value", "10")
        page.fill("#lu-seed", "7")  # some skies are as red as the picture
        page.click("#lu-generate")
        expect(page.locator(f"img.lu-result[alt='A boat at {strength}']")).to_be_visible()
        expect(page.locator("#lu-bar .lu-bar-sub")).to_contain_text(f"strength {strength}")
        job = _read_newest(studio)
        assert (job["recipe"]["strength"], job["recipe"]["steps"], job["steps"]) == (float(strength), 10, steps)
        colours.append(_colour_of(studio, job))
    assert colours[1][0] > colours[0][0] + 50  # the red of the picture
    page.click("#lu-save-preset")
    expect(page.locator("#lu-save-note")).to_contain_text("the strength of 0.2 is, for others' pictures")
    page.keyboard.press("Escape")
    page.reload()
    expect(value).to_have_value("0.2")
    page.fill("#lu-strength-value", "1.5")
    page.click("#lu-generate")
    expect(page.locator("[data-message=strength]")).to_contain_text("1.5 is out of range; allowed: 0.01 to 1")
    page.get_by_role("button", name="Remove input picture 1").click()
    expect(slider).to_be_hidden()
    page.select_option("#lu-model", "flux2-klein-4b")
    give(page, "choose", "red")
    expect(page.locator(SENT)).to_have_count(1)
    expect(slider).to_be_hidden()


def test_a_finished_picture_becomes_an_input(open_page: OpenPage, studio: Any, keep: Keep) -> None:
    page = open_page()
    page.select_option("#lu-model", "demo-flux2")
    _make(page, "A picture to start from")
    expect(page.locator("img.lu-result[alt='A picture to start from']")).to_be_visible()
    button = page.locator("#lu-use-as-input")
    expect(button).to_have_attribute("title", "Postcards (demo, FLUX.2 layout) takes no input pictures")
    expect(button).to_be_disabled()
    made = _read_newest(studio)["outputs"][0]["id"]
    _choose_model(page, "flux2-klein-4b", "512 × 512")
    expect(button).to_be_enabled()
    button.click()
    expect(page.locator(f"{LIST} img[src*='/outputs/{made}/thumb']")).to_be_visible()
    expect(button).to_have_attribute("title", "It is an input picture already")
    keep(page, "use-as-input-dark")
    _make(page, "Another one like it")
    expect(page.locator("img.lu-result[alt='Another one like it']")).to_be_visible()
    page.click("#lu-save-preset")
    expect(page.locator("#lu-save-seed-text")).to_contain_text("Others get this picture only with the same input")
    page.keyboard.press("Escape")
    assert _read_newest(studio)["recipe"]["images"] == [made]
    expect(page.locator("#lu-bar .lu-bar-sub")).to_contain_text("1 input picture")
    page.get_by_role("button", name="Remove input picture 1").click()
    page.get_by_role("button", name="Use settings").click()
    expect(page.locator(f"{LIST} img[src*='/outputs/{made}/thumb']")).to_be_visible()


def test_below_the_sizes_stands_whether_these_pictures_were_compiled_for(
    open_page: OpenPage, give: Callable[..., None], keep: Keep
) -> None:
    page = open_page()
    _choose_model(page, "flux2-klein-9b", "512 × 512")
    hint = page.locator("#lu-size-hint")
    expect(hint).not_to_contain_text("input picture")
    give(page, "choose", "red")
    expect(hint).to_contain_text("With an input picture like this: never compiled here")
    keep(page, "inputs-cold-dark")
    _make(page, "A boat like that one")
    expect(page.locator("img.lu-result[alt='A boat like that one']")).to_be_visible()
    expect(hint).to_have_text("With an input picture like this: compiled and in memory, starts at once.")
    give(page, "choose", "blue")
    expect(hint).to_have_text(
        "With 2 input pictures like these: never compiled here, so the first picture takes longer."
    )
    page.get_by_role("button", name="Remove input picture 1").click()
    page.get_by_role("button", name="Remove input picture 1").click()
    expect(hint).not_to_contain_text("input picture")


def test_on_a_phone_the_row_fits(open_page: OpenPage, give: Callable[..., None], keep: Keep) -> None:
    page = open_page(viewport=PHONE, color_scheme="light")
    _choose_model(page, "flux2-klein-4b", "512 × 512")
    for count in range(5):
        if count:
            give(page, "choose", ("red", "lime", "blue", "white")[count - 1])
        expect(page.locator(SENT)).to_have_count(count)
        assert page.evaluate("document.getElementById('studio').scrollWidth <= innerWidth")
        for place in page.locator(f"{LIST}, {ADD}:not([hidden])").all():
            box = place.bounding_box()
            assert box and box["x"] >= 0 and box["x"] + box["width"] <= PHONE["width"] and box["height"] >= 44
    page.locator("#lu-inputs").scroll_into_view_if_needed()
    keep(page, "inputs-phone-light")
    _make(page, "A boat on a phone")
    expect(page.locator("img.lu-result[alt='A boat on a phone']")).to_be_visible()
    actions = page.locator("#lu-bar .lu-button").evaluate_all(
        "buttons => buttons.map(button => button.getBoundingClientRect().right)"
    )
    assert max(actions) <= PHONE["width"]
    keep(page, "inputs-phone-done-light")


def _give_picture(page: Any, content: bytes) -> None:
    page.set_input_files(FILE, [{"name": "photo.png", "mimeType": "image/png", "buffer": content}])
    expect(page.locator(SENT)).to_have_count(1)


def test_the_size_follows_a_picture_until_somebody_chooses_and_what_is_cut_off_is_shown(
    open_page: OpenPage, studio: Any, encode_picture: Encode, keep: Keep
) -> None:
    page = open_page(color_scheme="light")
    page.select_option("#lu-model", "wan2.2-ti2v-5b")
    chosen, note = page.locator(".lu-size[aria-checked=true]"), page.locator("#lu-fit-note")
    _give_picture(page, encode_picture("red", size=(90, 160)))
    expect(page.locator("#lu-toasts")).to_contain_text("The size follows your picture: 704 × 1280, ")
    expect(chosen).to_contain_text("704 × 1280")
    expect(note).to_contain_text("2 % of the picture lies outside 704 × 1280")
    page.locator(".lu-size", has_text="1280 × 704").first.click()
    expect(note).to_contain_text("69 % of the picture lies outside 1280 × 704")
    frame = page.locator(".lu-input-frame").bounding_box()
    tile = page.locator(LIST).bounding_box()
    assert frame and tile and frame["height"] / tile["height"] == pytest.approx(0.31, abs=0.02)
    keep(page, "fit-crop-light")
    page.get_by_role("radio", name="Black bars").click()
    expect(note).to_contain_text("Black bars fill 69 % of 1280 × 704")
    keep(page, "fit-pad-light")
    page.click("#lu-sizes [data-key='832x480x33']")
    _make(page, "It moves, whole")
    _expect_video(page, "It moves, whole")
    assert _read_newest(studio)["recipe"]["fit"] == "pad"
    page.get_by_role("button", name="Remove input picture 1").click()
    _give_picture(page, encode_picture("blue", size=(90, 160)))
    expect(chosen).to_contain_text("832 × 480")  # the person's own
    page.reload()
    expect(note).to_contain_text("Black bars fill")


def test_what_of_a_picture_was_changed_is_said(open_page: OpenPage, encode_picture: Encode) -> None:
    page = open_page()
    page.select_option("#lu-model", "demo-sdxl")
    picture = io.BytesIO()
    Image.new("RGBA", (60, 40), (0, 255, 0, 0)).save(picture, "PNG")
    _give_picture(page, picture.getvalue())
    note = page.locator("#lu-inputs-note")
    expect(note).to_have_text("“photo.png”: Its transparent parts lie on white.")
    page.get_by_role("button", name="Remove input picture 1").click()
    expect(note).to_be_hidden()


def test_on_a_phone_the_fit_is_chosen_too(open_page: OpenPage, encode_picture: Encode, keep: Keep) -> None:
    page = open_page(viewport=PHONE)
    _choose_model(page, "demo-sdxl", "256 × 256")
    _give_picture(page, encode_picture("red", size=(30, 90)))
    for name in ("Crop", "Black bars", "Stretch"):
        box = page.get_by_role("radio", name=name).bounding_box()
        assert box and box["height"] >= 32 and box["x"] + box["width"] <= PHONE["width"]
    page.get_by_role("radio", name="Stretch").click()
    expect(page.locator("#lu-fit-note")).to_have_text("The picture is stretched to 256 × 256")
    page.locator("#lu-inputs").scroll_into_view_if_needed()
    keep(page, "fit-phone-dark")


def test_a_seed_of_sixty_three_bits_stays_exact_in_the_page(open_page: OpenPage, studio: Any) -> None:
    seed = 2**63 - 5
    page = open_page()
    page.select_option("#lu-model", "demo-sdxl")
    page.fill("#lu-seed", str(seed))
    _make(page, "A boat of a long seed")
    expect(page.locator("img.lu-result[alt='A boat of a long seed']")).to_be_visible()
    assert _read_newest(studio)["recipe"]["seed"] == seed
    expect(page.locator("#lu-bar .lu-bar-sub")).to_contain_text(f"seed {seed}")
    page.fill("#lu-seed", "-1")
    _make(page, "A boat of any seed")
    expect(page.locator("img.lu-result[alt='A boat of any seed']")).to_be_visible()
    assert 0 <= _read_newest(studio)["recipe"]["seed"] < 2**32

"""What becomes of a LoRA that was trained: it learns on as a new one, and is deleted with its training on wish."""

from collections.abc import Callable
from typing import Any

import pytest

playwright_api = pytest.importorskip("playwright.sync_api", reason="browser tests need `pip install playwright`")
expect = playwright_api.expect

from tests.browser.test_training import drop
from tests.browser.test_training_cards import DONE_MS, ask, call, card_of, open_train, read

OpenPage = Callable[..., Any]
Keep = Callable[[Any, str], None]

WATCH_TIMERS = """() => {
  const usual = setTimeout;
  globalThis.delays = [];
  globalThis.setTimeout = (act, delay) => {
    delays.push(delay);
    return usual(act, delay);
  };
}"""


def test_deleting_a_training_asks_for_its_lora_apart(open_page: OpenPage) -> None:
    page = open_page()
    open_train(page)
    trained = {name: ask(page, name, steps=8) for name in ("kept", "gone")}
    for job_id in trained.values():
        expect(card_of(page, job_id)).to_have_attribute("data-state", "done", timeout=DONE_MS)
    page.locator("#lu-train-earlier summary").click()
    asked: list[str] = []

    def answer(dialog: Any) -> None:
        asked.append(dialog.message)
        dialog.dismiss() if "the LoRA kept" in dialog.message else dialog.accept()

    page.on("dialog", answer)
    for name, job_id in trained.items():
        card_of(page, job_id).get_by_role("button", name=f"Delete: {name}").click()
        expect(card_of(page, job_id)).to_have_count(0)
    expect(page.locator("#lu-toasts")).to_contain_text("Deleted the LoRA gone")
    assert "Delete the LoRA kept too, for everybody?" in asked[1]
    assert read(page, "trainings")["trainings"] == []
    assert [lora["ref"] for lora in read(page, "loras")["loras"]] == ["kept"]


def test_a_lora_that_was_chosen_and_deleted_stays_in_sight_and_nothing_is_sent_with_it(open_page: OpenPage) -> None:
    page = open_page()
    open_train(page)
    start = page.get_by_role("combobox", name="Go on from")
    trained = {name: ask(page, name, steps=8) for name in ("other", "chosen")}
    for job_id in trained.values():
        expect(card_of(page, job_id)).to_have_attribute("data-state", "done", timeout=DONE_MS)
    start.select_option("chosen")
    drop(page, 1)
    page.get_by_role("textbox", name="Trigger word").fill("third")
    page.on("dialog", lambda dialog: dialog.accept())
    page.locator("#lu-train-earlier summary").click()
    for name, job_id in trained.items():
        card_of(page, job_id).get_by_role("button", name=f"Delete: {name}").click()
        expect(card_of(page, job_id)).to_have_count(0)
    options = start.locator("option")
    expect(options.filter(has_text="chosen")).to_have_text("chosen: not here any more")
    expect(options.filter(has_text="other")).to_have_count(0)
    expect(start).to_have_value("chosen")
    page.get_by_role("button", name="Train", exact=True).click()
    expect(page.locator('[data-message="start_from"]')).to_have_text(
        "The LoRA chosen is not here any more: choose another one, or begin a new one."
    )
    assert read(page, "trainings")["trainings"] == []
    start.select_option("")
    expect(options.filter(has_text="chosen")).to_have_count(0)
    expect(page.locator('[data-message="start_from"]')).to_be_empty()
    page.get_by_role("button", name="Train", exact=True).click()
    expect(page.locator("#lu-train-cards article")).to_have_count(1)


@pytest.mark.parametrize("button", ["Use it", "Download"])
def test_a_lora_that_was_deleted_elsewhere_is_neither_used_nor_downloaded(open_page: OpenPage, button: str) -> None:
    page = open_page()
    open_train(page)
    name = f"lost-{button.split()[0].lower()}"
    card = card_of(page, ask(page, name, steps=8))
    expect(card).to_have_attribute("data-state", "done", timeout=DONE_MS)
    asked = card.get_by_text(button, exact=True)
    expect(asked).to_be_visible()
    if button == "Download":
        with page.expect_download() as saved:
            asked.click()
        assert saved.value.suggested_filename == f"{name}.safetensors"
    assert call(page, "DELETE", f"loras/{name}") == 204
    page.evaluate(WATCH_TIMERS)
    asked.click()
    expect(page.locator("#lu-toasts")).to_contain_text(f"The LoRA {name} was deleted meanwhile.")
    assert page.evaluate("Math.max(...delays)") > 5000, "two sentences are there for as long as it takes to read them"
    expect(asked).to_have_count(0)  # the card has learnt of it
    expect(page.locator("#lu-train-title")).to_be_visible()
    expect(page.locator("#lu-loras-list li")).to_have_count(0)
    page.on("dialog", lambda dialog: dialog.accept())
    card.get_by_role("button", name=f"Delete: {name}").click()
    expect(card).to_have_count(0)


def test_the_notice_of_an_end_goes_once_what_was_learnt_is_used(open_page: OpenPage) -> None:
    page = open_page()
    open_train(page)
    job_id = ask(page, "taken", steps=8)
    notice = page.locator("#lu-toasts .lu-toast", has_text="Training taken is done")
    expect(notice).to_be_visible(timeout=DONE_MS)
    card_of(page, job_id).get_by_role("button", name="Use it: taken").click()
    expect(page.locator('#lu-loras-list li[data-key="taken"]')).to_be_visible()
    expect(page.locator("#lu-toasts .lu-toast")).to_have_text("Model and LoRA are set")
    assert call(page, "DELETE", f"trainings/{job_id}") == 204
    assert call(page, "DELETE", "loras/taken") == 204


def test_what_the_notice_of_an_end_offers_is_refused_once_it_was_deleted(open_page: OpenPage) -> None:
    page = open_page()
    job_id = ask(page, "noticed", steps=8)
    use = page.locator("#lu-toasts").get_by_role("button", name="Use it")
    expect(use).to_be_visible(timeout=DONE_MS)
    assert call(page, "DELETE", "loras/noticed") == 204
    use.click()
    expect(page.locator("#lu-toasts")).to_contain_text("The LoRA noticed was deleted meanwhile.")
    expect(page.locator("#lu-loras-list li")).to_have_count(0)
    assert call(page, "DELETE", f"trainings/{job_id}") == 204


def test_undo_of_cancelling_brings_back_what_can_be_made_and_says_what_cannot(open_page: OpenPage) -> None:
    page = open_page(watch=False)  # the server answers 409
    job_id = ask(page, "brief", steps=8)
    expect(page.locator("#lu-toasts")).to_contain_text("Training brief is done", timeout=DONE_MS)
    call(page, "POST", "queue/pause")
    with_lora, plain = (submit(page, loras) for loras in ([{"ref": "brief", "scale": 1}], []))
    waiting = page.locator(".lu-queue-item[data-state=queued]")
    expect(waiting).to_have_count(2)
    page.locator("#lu-queue-more").click()
    page.get_by_role("menuitem", name="Cancel waiting jobs (2)").click()
    expect(waiting).to_have_count(0)
    assert call(page, "DELETE", "loras/brief") == 204
    page.locator("#lu-toasts").get_by_role("button", name="Undo").click()
    expect(page.locator("#lu-toasts")).to_contain_text("The LoRA 'brief' is not here any more.")
    expect(waiting).to_have_count(1)
    assert [read(page, f"jobs/{one}")["state"] for one in (with_lora, plain)] == ["cancelled", "queued"]
    assert call(page, "DELETE", f"jobs/{plain}") == 200
    call(page, "POST", "queue/resume")
    assert call(page, "DELETE", f"trainings/{job_id}") == 204


def submit(page: Any, loras: list[dict[str, Any]]) -> str:
    return page.evaluate(
        """async (loras) => {
          const body = JSON.stringify({ model: "demo-sdxl", prompt: "A zorb", steps: 2, loras });
          const headers = { "Content-Type": "application/json" };
          return (await (await fetch("api/v1/jobs", { method: "POST", headers, body })).json()).id;
        }""",
        loras,
    )


def test_deleting_a_training_whose_lora_is_gone_already_is_no_failure(open_page: OpenPage) -> None:
    page = open_page(watch=False)  # the server answers 404
    open_train(page)
    card = card_of(page, ask(page, "twice", steps=8))
    expect(card).to_have_attribute("data-state", "done", timeout=DONE_MS)
    expect(card.get_by_role("button", name="Use it: twice")).to_be_visible()
    page.wait_for_load_state("networkidle")  # nothing more is read of it
    assert call(page, "DELETE", "loras/twice") == 204
    page.on("dialog", lambda dialog: dialog.accept())
    card.get_by_role("button", name="Delete: twice").click()
    expect(page.locator("#lu-toasts")).to_contain_text("Deleted the LoRA twice")


def test_loras_are_read_once_when_a_training_ends(open_page: OpenPage) -> None:
    page = open_page()
    open_train(page)
    job_id = ask(page, "once", steps=60)
    expect(card_of(page, job_id)).to_have_attribute("data-state", "running", timeout=DONE_MS)
    read_loras: list[str] = []
    page.on("request", lambda request: read_loras.append(request.url) if request.url.endswith("/loras") else None)
    expect(page.get_by_role("combobox", name="Go on from").locator("option", has_text="once")).to_have_count(
        1, timeout=DONE_MS
    )
    page.wait_for_load_state("networkidle")
    assert len(read_loras) == 1


def test_a_trained_lora_learns_on_as_a_new_one(open_page: OpenPage, keep: Keep) -> None:
    page = open_page()
    open_train(page)
    start = page.get_by_role("combobox", name="Go on from")
    expect(card_of(page, ask(page, "first", steps=8))).to_have_attribute("data-state", "done", timeout=DONE_MS)
    expect(start).to_have_value("")
    [lora] = [one for one in read(page, "loras")["loras"] if one["ref"] == "first"]
    start.select_option("first")
    expect(page.locator("#lu-train-start-note")).to_contain_text("as a new LoRA")
    expect(page.locator("#lu-train-numbers")).to_contain_text(f"rank {lora['rank']} ")
    drop(page, 1)
    page.get_by_role("textbox", name="Trigger word").fill("second")
    keep(page, "train-go-on-from-dark")
    page.get_by_role("button", name="Train", exact=True).click()
    card = page.locator("#lu-train-cards article").filter(has_text="second").first
    expect(start).to_have_value("")
    card.get_by_role("button", name="Use its pictures").click()
    expect(start).to_have_value("first")
    expect(page.locator("#lu-toasts")).not_to_contain_text("have no place")
    [training] = [one for one in read(page, "trainings")["trainings"] if one["name"] == "second"]
    assert read(page, f"trainings/{training['id']}")["start_from"] == "first"

"""Cards of trainings: what they tell while one learns, after a lost connection, and what can be done with them."""

import re
from collections.abc import Callable
from typing import Any

import pytest

playwright_api = pytest.importorskip("playwright.sync_api", reason="browser tests need `pip install playwright`")
expect = playwright_api.expect

from tests.browser.axe import run_axe
from tests.browser.held import hold_first
from tests.browser.test_training import draw_files

OpenPage = Callable[..., Any]
Keep = Callable[[Any, str], None]
DONE_MS = 60_000
LONG = 1200  # steps: some twenty seconds
WATCH_BAR = """() => {
  const seen = (globalThis.seenBars = []);
  const card = document.querySelector("#lu-train-cards .lu-training");
  const note = () => {
    if (card.dataset.state !== "running") return;
    const text = card.querySelector(".lu-training-state").textContent;
    const done = Number(card.querySelector(".lu-training-bar").style.getPropertyValue("--done"));
    seen.push([done, text]);
  };
  new MutationObserver(note).observe(card, { subtree: true, childList: true, attributes: true, characterData: true });
}"""
WATCH_STATES = """() => {
  const card = document.querySelector("#lu-train-cards .lu-training");
  const seen = (globalThis.seenStates = [card.dataset.state]);
  new MutationObserver(() => seen.push(card.dataset.state)).observe(card, { attributes: true });
}"""
KEEP_STREAMS = """globalThis.streams = [];
globalThis.EventSource = class extends EventSource {
  constructor(...values) {
    super(...values);
    streams.push(this);
  }
};"""


def ask(page: Any, name: str, *, steps: int, **fields: Any) -> str:
    """Asks for a training of one picture as this page's visitor, and returns its id."""
    [[_, png]] = draw_files(1)
    return page.evaluate(
        """async ([png, asked]) => {
          const form = new FormData();
          form.append("file", new File([new Uint8Array(png)], "zorb.png", { type: "image/png" }));
          const { id } = await (await fetch("api/v1/uploads", { method: "POST", body: form })).json();
          const body = JSON.stringify({ ...asked, pictures: [{ id, caption: "A zorb" }] });
          const headers = { "Content-Type": "application/json" };
          return (await (await fetch("api/v1/trainings", { method: "POST", headers, body })).json()).id;
        }""",
        [png, {"model": "demo-sdxl", "name": name, "trigger": "zorb", "steps": steps, **fields}],
    )


def read(page: Any, path: str) -> Any:
    return page.evaluate("async (path) => (await fetch(`api/v1/${path}`)).json()", path)


def wait_for_job(page: Any, job_id: str, field: str) -> None:
    """Waits until the server has something in this field of a job; wait_for_function does not wait for promises."""
    while not read(page, f"jobs/{job_id}")[field]:
        page.wait_for_timeout(20)


def call(page: Any, method: str, path: str) -> int:
    return page.evaluate("async ([method, path]) => (await fetch(`api/v1/${path}`, { method })).status", [method, path])


def open_train(page: Any) -> None:
    page.locator("#lu-nav-train").click()
    expect(page.locator("#lu-train-title")).to_be_focused()


def card_of(page: Any, job_id: str) -> Any:
    return page.locator(f'.lu-training[data-key="{job_id}"]')


def cancel(page: Any, job_id: str) -> None:
    call(page, "DELETE", f"jobs/{job_id}")
    expect(card_of(page, job_id)).to_have_attribute("data-state", "cancelled")


def test_the_bar_is_the_share_of_its_steps_and_never_goes_backwards(open_page: OpenPage) -> None:
    page = open_page()
    open_train(page)
    job_id = ask(page, "bars", steps=200)
    card = card_of(page, job_id)
    expect(card).to_be_visible()
    page.evaluate(WATCH_BAR)
    page.wait_for_function("seenBars.some(([done]) => done > 0.1)")
    card.get_by_role("button", name="Pause").click()
    expect(card).to_have_attribute("data-state", "paused")
    card.get_by_role("button", name="Go on").click()
    expect(card).to_have_attribute("data-state", "done", timeout=DONE_MS)
    seen = page.evaluate("seenBars")
    assert [done for done, _ in seen] == sorted(done for done, _ in seen)
    steps = [(done, re.search(r"Training (\d+)/200", text)) for done, text in seen]
    told = [(done, int(found[1])) for done, found in steps if found]
    ahead = [done - step / 200 for done, step in told]  # what is saved is told at once, steps four times a second
    assert ahead and min(ahead) > -0.01 and max(ahead) < 0.15, "it is the steps alone"


@pytest.mark.parametrize("way", ["", "/pause"])
def test_an_answer_on_its_way_does_not_bring_an_older_state_back(open_page: OpenPage, way: str) -> None:
    page = open_page()
    job_id = ask(page, "late", steps=LONG)
    while read(page, f"jobs/{job_id}")["state"] != "running":
        page.wait_for_timeout(50)
    held = hold_first(page, rf"/api/v1/trainings/{job_id}{way}$")
    open_train(page)
    if way:
        card_of(page, job_id).get_by_role("button", name="Pause").click()
    answer = held.wait(page)
    if not way:
        call(page, "POST", f"trainings/{job_id}/pause")
    expect(card_of(page, job_id)).to_have_attribute("data-state", "paused")
    assert answer["job"]["state"] == "running"
    page.evaluate(WATCH_STATES)
    held.release(page)
    assert {*page.evaluate("seenStates")} == {"paused"}, "not even for a moment"
    cancel(page, job_id)


def test_after_a_lost_connection_curve_and_samples_are_whole_again(open_page: OpenPage) -> None:
    page = open_page()
    page.add_init_script(KEEP_STREAMS)
    page.reload()
    open_train(page)
    job_id = ask(page, "gap", steps=LONG)
    card = card_of(page, job_id)
    expect(card.locator(".lu-training-strip img")).to_have_count(1)
    page.evaluate("streams.at(-1).dispatchEvent(new Event('error'))")
    expect(page.locator("#lu-engine-state")).to_have_text("Reconnecting…")
    found = page.wait_for_function(
        """(id) => {
          const card = document.querySelector(`.lu-training[data-key="${id}"]`);
          const [count, step] = card.querySelector(".lu-training-curve").dataset.points.split(" ").map(Number);
          const samples = card.querySelectorAll(".lu-training-strip img").length;
          return streams.at(-1).readyState === 1 && samples >= 4 && { state: card.dataset.state, count, step, samples };
        }""",
        arg=job_id,
    ).json_value()
    cancel(page, job_id)
    assert found["state"] == "running", "at its end everything is read anew anyway"
    assert found["count"] == found["step"] // 3, "every third step is a point"
    assert found["samples"] == found["step"] // 150


def test_pause_and_go_on_keep_the_focus_of_the_keyboard(open_page: OpenPage) -> None:
    page = open_page()
    open_train(page)
    job_id = ask(page, "keys", steps=LONG)
    card = card_of(page, job_id)
    button = card.locator('[data-key="turn"]')
    expect(card).to_have_attribute("data-state", "running")
    for label, state in (("Pause", "paused"), ("Go on", "running"), ("Pause", "paused")):
        expect(button).to_have_accessible_name(f"{label}: keys")
        expect(button).to_have_attribute("aria-disabled", "false")  # until what was pressed before is answered
        button.focus()
        page.keyboard.press("Enter")
        expect(card).to_have_attribute("data-state", state)
        expect(button).to_be_focused()
    card.get_by_role("button", name="Cancel: keys").focus()
    page.keyboard.press("Enter")
    expect(card).to_have_attribute("data-state", "cancelled")
    expect(card.locator("h3")).to_be_focused()


def test_a_screen_reader_hears_states_and_samples_and_no_clock(open_page: OpenPage) -> None:
    page = open_page()
    open_train(page)
    page.evaluate(
        """() => {
          const heard = (globalThis.heard = []);
          const note = (records) => {
            for (const { target } of records) {
              const element = target.nodeType === 1 ? target : target.parentElement;
              const place = element?.closest("[role=status], [role=alert], [aria-live]");
              if (place) heard.push(`${place.id}: ${place.textContent}`);
            }
          };
          const all = { subtree: true, childList: true, characterData: true };
          new MutationObserver(note).observe(document.querySelector("#lu-train"), all);
        }"""
    )
    job_id = ask(page, "heard", steps=400)
    expect(card_of(page, job_id)).to_have_attribute("data-state", "done", timeout=DONE_MS)
    heard = page.evaluate("[...new Set(heard)].filter((text) => text.startsWith('lu-train-live'))")
    assert "lu-train-live: heard: a sample of step 400" in heard
    assert len(page.evaluate("heard")) < 25, page.evaluate("heard")


def test_no_message_lies_over_the_card_of_what_was_paused_or_cancelled(open_page: OpenPage) -> None:
    page = open_page()
    open_train(page)
    job_id = ask(page, "calm", steps=LONG)
    card, live, toasts = card_of(page, job_id), page.locator("#lu-train-live"), page.locator("#lu-toasts .lu-toast")
    expect(card).to_have_attribute("data-state", "running")
    card.get_by_role("button", name="Pause").click()
    expect(live).to_have_text("Training calm is paused; all that it learnt is saved")
    expect(toasts).to_have_count(0)
    card.get_by_role("button", name="Go on").click()
    expect(card).to_have_attribute("data-state", "running")
    page.get_by_role("link", name="Create").click()
    call(page, "POST", f"trainings/{job_id}/pause")
    expect(toasts).to_have_text("Training calm is paused; all that it learnt is saved")
    open_train(page)
    cancel(page, job_id)
    expect(live).to_have_text("Training calm is cancelled")


def test_the_end_of_a_training_is_told_everywhere_and_its_lora_is_in_an_open_list(open_page: OpenPage) -> None:
    page = open_page()
    job_id = ask(page, "told", steps=40)
    toast = page.locator("#lu-toasts .lu-toast")
    expect(toast).to_contain_text("Training told is done", timeout=DONE_MS)
    expect(page.locator('#lu-loras-choice option[value="told"]')).to_have_count(1)
    expect(page.locator("#lu-frames .lu-frame")).to_have_count(0)
    expect(page.locator("#lu-film-row .lu-film-item")).to_have_count(0)
    toast.get_by_role("button", name="Use it").click()
    expect(page.locator('#lu-loras-list li[data-key="told"]')).to_be_visible()
    page.locator(f'.lu-queue-item[data-job="{job_id}"] .lu-queue-open').click()
    expect(card_of(page, job_id).locator("h3")).to_be_focused()


def test_a_training_without_a_sample_has_no_torn_picture_and_is_called_by_its_name(open_page: OpenPage) -> None:
    page = open_page()
    names = ["before", "behind"]
    running, waiting = (ask(page, name, steps=LONG, sample_prompts=["A zorb"]) for name in names)
    item = page.locator(f'.lu-queue-item[data-job="{running}"]')
    expect(item).to_have_attribute("data-state", "running")
    wait_for_job(page, running, "step")
    page.reload()  # a 404 would end this test
    expect(item.get_by_role("button", name="Training before", exact=True)).to_be_visible()
    expect(item.get_by_role("button", name="Cancel: Training before")).to_be_visible()
    expect(item.locator("img")).to_have_count(1)  # with its first sample
    assert item.locator("img").evaluate("(image) => image.decode().then(() => image.naturalWidth)") > 0
    behind = page.locator(f'.lu-queue-item[data-job="{waiting}"]')
    behind.get_by_role("button", name="More: Training behind").click()
    expect(page.get_by_role("menuitem", name="Show the training")).to_be_visible()
    page.keyboard.press("Escape")
    open_train(page)
    for job_id in (waiting, running):
        cancel(page, job_id)


def test_what_ended_is_set_aside_or_deleted_and_its_samples_are_looked_at_large(
    open_page: OpenPage, keep: Keep
) -> None:
    page = open_page()
    open_train(page)
    first, last = ask(page, "first", steps=40), ask(page, "last", steps=40, sample_prompts=["A zorb", "Two zorbs"])
    card = card_of(page, last)
    expect(card).to_have_attribute("data-state", "done", timeout=DONE_MS)
    expect(card.locator(".lu-training-strip figcaption").first).to_have_text("Step 40 · A zorb")
    queued = page.locator(f'.lu-queue-item[data-job="{last}"][data-state="done"]')
    expect(queued).to_contain_text("just now")
    expect(queued).not_to_contain_text("2 images")  # its samples
    link = card.get_by_role("link", name="Download: last")
    assert link.get_attribute("href").endswith("/api/v1/loras/last/file") and link.get_attribute("download") == ""
    assert not run_axe(page, "#lu-train")
    keep(page, "train-cards")

    card.get_by_role("button", name="Use its pictures: last").click()
    expect(page.get_by_role("textbox", name="Trigger word")).to_have_value("zorb")
    expect(page.get_by_role("textbox", name="Trigger word")).to_be_focused()

    card.get_by_role("button", name="Enlarge the sample of step 40: Two zorbs").click()
    words = page.locator("#lu-sample-words")
    expect(words).to_have_text("Step 40 · Two zorbs")
    page.locator("#lu-sample").get_by_role("button", name="Newer").press("Enter")
    expect(words).to_have_text("Step 40 · A zorb")
    expect(page.locator("#lu-sample").get_by_role("button", name="Older")).to_be_focused()
    page.keyboard.press("Control+Enter")  # trains nothing behind an open dialog
    page.keyboard.press("ArrowRight")
    expect(words).to_have_text("Step 40 · Two zorbs")
    keep(page, "train-sample")
    page.keyboard.press("Escape")
    expect(page.locator("#lu-sample")).to_be_hidden()

    card.get_by_role("button", name="Dismiss: last").click()
    expect(page.locator("#lu-train-cards .lu-training")).to_have_count(0)
    page.locator("#lu-train-earlier summary").click()
    expect(card_of(page, first).locator(".lu-training-strip img")).not_to_have_count(0)
    asked: list[str] = []
    answers = iter(("dismiss", "accept", "dismiss"))  # the last one is whether its LoRA goes too
    page.on("dialog", lambda dialog: (asked.append(dialog.message), getattr(dialog, next(answers))()))
    card.get_by_role("button", name="Delete: last").click()
    expect(card).to_be_visible()
    card.get_by_role("button", name="Delete: last").click()
    expect(card).to_have_count(0)
    expect(page.locator("#lu-train-title")).to_be_focused()
    assert last not in [training["id"] for training in read(page, "trainings")["trainings"]]
    assert "last" in [lora["ref"] for lora in read(page, "loras")["loras"]]
    assert len(asked) == 3
    assert "the state to go on from" in asked[0] and "The LoRA stays" in asked[0]


def test_what_made_room_is_told_on_every_card_and_the_next_one_in_front_is_whole(open_page: OpenPage) -> None:
    page = open_page()
    open_train(page)
    ids = []
    for name in ("elder", "younger"):
        ids.append(ask(page, name, steps=LONG))
        card = card_of(page, ids[-1])
        expect(card.locator(".lu-training-strip img")).not_to_have_count(0)
        cancel(page, ids[-1])
    saved = re.compile("saved at step")
    page.reload()
    open_train(page)
    page.evaluate(
        """async () => {
          const [method, headers] = ["POST", { "Content-Type": "application/json" }];
          await fetch("api/v1/system/cache/clear", { method, headers, body: '{"what": "trainings", "anyway": true}' });
        }"""
    )
    page.locator("#lu-train-earlier summary").click()
    for job_id in ids:
        state = card_of(page, job_id).locator(".lu-training-state")
        expect(state).to_contain_text("What it had learnt was deleted to make room; it begins anew.")
        expect(state).not_to_have_text(saved)
    page.reload()
    open_train(page)
    page.once("dialog", lambda dialog: dialog.accept())
    card_of(page, ids[1]).get_by_role("button", name="Delete: younger").click()
    expect(card_of(page, ids[1])).to_have_count(0)
    expect(page.locator(f'#lu-train-cards [data-key="{ids[0]}"] .lu-training-strip img')).not_to_have_count(0)


def test_an_answer_on_its_way_brings_no_deleted_training_back(open_page: OpenPage) -> None:
    page = open_page()
    job_id = ask(page, "ghost", steps=LONG)
    call(page, "DELETE", f"jobs/{job_id}")
    wait_for_job(page, job_id, "finished_at")
    held: list[Any] = []
    url = f"**/api/v1/trainings/{job_id}"

    def hold(route: Any) -> None:
        """Keeps what the training was like before; it may be asked for again until the page hears that it is gone."""
        if route.request.method == "GET":
            held.append((route, held[0][1] if held else route.fetch()))
        else:
            route.continue_()

    page.route(url, hold)
    open_train(page)
    expect(card_of(page, job_id)).to_be_visible()
    while not held:
        page.wait_for_timeout(20)
    assert call(page, "DELETE", f"trainings/{job_id}") == 204
    expect(card_of(page, job_id)).to_have_count(0)
    for route, answer in held:
        with page.expect_response(url):
            route.fulfill(response=answer)
    page.evaluate("new Promise((done) => setTimeout(done, 100))")
    expect(card_of(page, job_id)).to_have_count(0)
    expect(page.locator("#lu-train-message")).to_be_empty()

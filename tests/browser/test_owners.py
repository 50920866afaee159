"""Two people at one machine: each sees where they really stand in the whole line, and an admin sees everybody's."""

import functools
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("playwright.sync_api")
from playwright.sync_api import expect

from studio.access.users import Users
from tests.browser.test_system import find_violations

pytestmark = pytest.mark.browser
PASSWORD = "lovelace-1815"
WAITING = ".lu-queue-item[data-state=queued]"
ACTIVE = ".lu-queue-item:is([data-state=running], [data-state=queued])"
DESK = {"width": 1440, "height": 900}
PHONE = {"width": 390, "height": 844}
Enter = Callable[..., Any]
Keep = Callable[[Any, str], None]


@pytest.fixture(scope="module")
def house(tmp_path_factory: pytest.TempPathFactory, make_studio: Callable[[Path], Any]) -> Iterator[Any]:
    folder = tmp_path_factory.mktemp("house")
    users = Users(folder / "data" / "users.json")
    users.add("ada", password=PASSWORD, is_admin=True)
    users.add("bob", password=PASSWORD, is_admin=False)
    studio = make_studio(folder)
    studio.start()
    yield studio
    studio.stop()


@pytest.fixture(scope="module")
def visitor(house: Any, browser: Any) -> Callable[[str], Any]:
    """`visitor("ada")` is the browser of somebody who has logged in, and may have been here in an earlier test."""

    @functools.cache
    def visit(name: str) -> Any:
        context = browser.new_context(viewport=DESK, color_scheme="dark", reduced_motion="reduce")
        context.set_default_timeout(15_000)
        assert context.request.post(f"{house.url}/login", form={"name": name, "password": PASSWORD}).ok
        context.new_page()  # stays, and with it what compiled the scripts
        return context

    return visit


@pytest.fixture
def enter(house: Any, visitor: Callable[[str], Any]) -> Iterator[Enter]:
    """`enter("ada")` is a page of hers; the jobs of all who enter end with the test."""
    pages: list[Any] = []

    def enter(name: str, *, viewport: dict[str, int] = DESK, color_scheme: str = "dark") -> Any:
        page = visitor(name).new_page()
        pages.append(page)
        page.set_viewport_size(viewport)
        page.emulate_media(color_scheme=color_scheme)
        page.goto(house.url)
        page.wait_for_selector("#lu-sizes [role=radio]")
        return page

    yield enter
    for page in pages:
        page.request.post(f"{house.url}/api/v1/jobs/cancel", data={"scope": "all"})
        page.request.post(f"{house.url}/api/v1/jobs/clear")
        page.request.post(f"{house.url}/api/v1/queue/resume")
        page.evaluate("localStorage.clear()")
        page.close()


def submit(page: Any, url: str, prompt: str, *, steps: int = 100) -> str:
    recipe = {"model": "demo-sdxl", "prompt": prompt, "steps": steps}
    answer = page.request.post(f"{url}/api/v1/jobs", data=recipe)
    assert answer.ok, answer.text()
    return answer.json()["id"]


def test_place_and_reason_are_those_of_the_whole_line(
    house: Any, enter: Enter, keep: Keep, wait_for: Callable[..., Any]
) -> None:
    ada, bob = enter("ada"), enter("bob")
    expect(bob.locator("#lu-loras")).to_contain_text("Ask an admin to add one")
    expect(bob.locator("#lu-loras-bring")).to_be_hidden()
    expect(ada.locator("#lu-loras-bring")).to_be_visible()
    submit(ada, house.url, "Runs")
    expect(ada.locator(".lu-queue-item[data-state=running]")).to_have_count(1)
    submit(ada, house.url, "Of Ada, first")
    submit(bob, house.url, "Of Bob, first")
    submit(ada, house.url, "Of Ada, second")
    mine = submit(bob, house.url, "Of Bob, second")
    item = bob.locator(f"{WAITING}[data-job='{mine}']")
    grips = bob.locator(f"{WAITING} .lu-queue-grip")

    def find_places() -> list[int]:
        """The places that the server gives and the page shows; nothing while a job starts and they differ."""
        found = bob.request.get(f"{house.url}/api/v1/jobs/{mine}").json()
        waiting = bob.request.get(f"{house.url}/api/v1/jobs?state=queued").json()["jobs"]
        places = [one["position"] for one in waiting]
        assert found["position"] > 1 and found["reason"]
        is_shown = grips.all_inner_texts() == [str(place) for place in places] and found["position"] in places
        return places if is_shown and found["reason"] in item.inner_text() else []

    places = wait_for("the page to show the server's places", find_places)
    first = bob.locator(WAITING).first
    if places[0] > 1:
        expect(bob.locator("#lu-phase")).not_to_contain_text("Next")
        expect(bob.locator("#lu-phase")).to_contain_text(str(places[0]))
    else:
        expect(first).to_contain_text("next, when the running job ends")
    keep(bob, "owners-place-dark")
    ada.request.post(f"{house.url}/api/v1/jobs/cancel", data={"scope": "waiting"})
    expect(bob.locator(f"{WAITING} .lu-queue-grip")).to_have_text(["1", "2"])  # no event of Bob's told of it


@pytest.mark.parametrize(("viewport", "scheme"), [(DESK, "light"), (PHONE, "dark")])
def test_an_admin_sees_everybodys_line_and_may_end_a_job(
    house: Any, enter: Enter, keep: Keep, viewport: dict[str, int], scheme: str
) -> None:
    ada, bob = enter("ada", viewport=viewport, color_scheme=scheme), enter("bob")
    submit(bob, house.url, "Of Bob, running")
    submit(bob, house.url, "Of Bob, waiting")
    expect(bob.locator("#lu-queue-everyone")).to_be_hidden()
    account = ada.locator("#lu-me-button").bounding_box()
    assert account["x"] + account["width"] <= viewport["width"]
    if viewport is PHONE:
        ada.click("#lu-queue-toggle")
    switch = ada.locator("#lu-queue-everyone")
    expect(switch).to_have_attribute("aria-pressed", "false")
    expect(ada.locator(ACTIVE)).to_have_count(0)
    switch.click()
    expect(switch).to_have_attribute("aria-pressed", "true")
    expect(ada.locator(".lu-queue-item[data-state=running]")).to_contain_text("bob · Step")
    waiting = ada.locator(WAITING)
    expect(waiting).to_contain_text("bob · ")
    expect(waiting.locator(".lu-queue-grip")).to_have_count(0)
    submit(bob, house.url, "Of Bob, later")
    expect(waiting).to_have_count(2)
    expect(ada.locator("#lu-film")).to_be_hidden()
    keep(ada, f"owners-everyone-{scheme}")
    assert ada.evaluate("document.documentElement.scrollWidth <= innerWidth")
    waiting.first.hover()
    waiting.first.get_by_role("button", name="Cancel").click()
    expect(waiting).to_have_count(1)
    switch.click()
    expect(ada.locator(ACTIVE)).to_have_count(0)


def test_an_admin_adds_a_user_who_then_changes_the_password_and_makes_a_token(
    house: Any, browser: Any, enter: Enter, keep: Keep
) -> None:
    ada = enter("ada")
    ada.goto(f"{house.url}/#system/users")
    name, password = ada.locator("#lu-user-name"), ada.locator("#lu-user-password")
    name.fill("carol")
    ada.get_by_role("button", name="Suggest one").click()
    expect(password).to_have_attribute("type", "text")
    suggested = password.input_value()
    assert len(suggested) == 19
    ada.get_by_role("button", name="Add user").click()
    expect(ada.locator("#lu-user-note")).to_have_text("carol can log in now.")
    expect(password).to_have_value("")
    expect(ada.locator("#lu-users li")).to_contain_text(["ada (admin) (you)", "bob", "carol"])
    assert find_violations(ada, "#lu-sys-panel-users") == []
    keep(ada, "users-dark")

    with closing(browser.new_context(viewport=PHONE, color_scheme="light", reduced_motion="reduce")) as context:
        context.set_default_timeout(15_000)
        assert context.request.post(f"{house.url}/login", form={"name": "carol", "password": suggested}).ok
        carol = context.new_page()
        carol.goto(house.url)
        carol.click("#lu-more")  # she sees no System view
        carol.get_by_role("menuitem", name="Help").click()
        expect(carol.locator("#lu-keys")).to_be_visible()
        carol.keyboard.press("Escape")
        carol.click("#lu-me-button")
        carol.get_by_role("button", name="Account").click()
        dialog = carol.locator("#lu-account")
        carol.fill("#lu-token-name", "notebook")
        carol.fill("#lu-token-password", suggested)
        dialog.get_by_role("button", name="Make a token").click()
        expect(dialog.locator("#lu-tokens li")).to_contain_text("notebook")
        bearer = {"Authorization": f"Bearer {carol.input_value('#lu-token')}"}
        assert ada.request.get(f"{house.url}/api/v1/me", headers=bearer).json()["owner"] == "carol"
        assert find_violations(carol, "#lu-account") == []
        keep(carol, "account-phone")
        assert carol.evaluate("document.documentElement.scrollWidth <= innerWidth")
        change = dialog.get_by_role("button", name="Change password")
        for current, new, said in (
            ("wrong", "window-seat-21", "The current password is wrong."),
            (suggested, "password1", "This password is among the first that anybody tries."),
            (suggested, "window-seat-21", ""),
        ):
            for field, text in (("current", current), ("new", new), ("again", new)):
                carol.fill(f"#lu-account-{field}", text)
            change.click()
            if said:
                expect(carol.locator("#lu-account-message")).to_contain_text(said)
        expect(carol.locator("#lu-toasts")).to_contain_text("Password changed")
        expect(dialog.locator("#lu-tokens li")).to_have_count(0)
        assert carol.request.get(f"{house.url}/api/v1/me").json()["owner"] == "carol", "this session goes on"

        asked: list[str] = []
        ada.on("dialog", lambda box: (asked.append(box.message), box.accept()))
        ada.get_by_role("button", name="Remove: carol").click()
        expect(ada.locator("#lu-users li")).to_have_count(2)
        assert "outputs stay here" in asked[0]
        assert carol.request.get(f"{house.url}/api/v1/me").status == 401


def test_who_may_not_train_or_run_the_studio_is_told_so_and_nothing_is_asked_in_vain(
    house: Any, enter: Enter, keep: Keep
) -> None:
    bob = enter("bob")
    refused: list[str] = []
    bob.on("response", lambda answer: refused.append(answer.url) if answer.status == 403 else None)
    for view, hidden in (("train", "#lu-train-form"), ("system", "#lu-sys-tabs")):
        bob.goto(f"{house.url}/#{view}")
        bob.reload()
        expect(bob.locator(f"#lu-{view}-refused")).to_be_visible()
        expect(bob.locator(hidden)).to_be_hidden()
        expect(bob.locator(".lu-engine[data-state=idle]")).to_be_visible()
        keep(bob, f"refused-{view}-dark")
    assert not refused
    ada = enter("ada")
    for view, shown in (("train", "#lu-train-form"), ("system", "#lu-sys-tabs")):
        ada.goto(f"{house.url}/#{view}")
        ada.reload()
        expect(ada.locator(shown)).to_be_visible()
        expect(ada.locator(f"#lu-{view}-refused")).to_be_hidden()
    expect(ada.locator("#lu-sys-device")).not_to_be_empty()
    ada.goto(house.url)

"""Logging in by hand: at a desk and on a phone, light and dark, back to what a link asked for, and out again."""

from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from studio.access.users import Users
from tests.browser.test_system import find_violations

pytestmark = pytest.mark.browser
PASSWORD = "lovelace-1815"


@pytest.fixture
def house(tmp_path: Path, make_studio: Callable[[Path], Any]) -> Iterator[Any]:
    Users(tmp_path / "data" / "users.json").add("ada", password=PASSWORD, is_admin=True)
    studio = make_studio(tmp_path)
    studio.start()
    yield studio
    studio.stop()


@pytest.mark.parametrize(
    ("viewport", "scheme"), [({"width": 1440, "height": 900}, "light"), ({"width": 390, "height": 844}, "dark")]
)
def test_a_visitor_logs_in_and_out(
    house: Any, browser: Any, keep: Callable[[Any, str], None], viewport: dict[str, int], scheme: str
) -> None:
    with closing(browser.new_context(viewport=viewport, color_scheme=scheme)) as context:
        context.set_default_timeout(15_000)
        page = context.new_page()
        refused: list[str] = []
        page.on("console", lambda message: refused.append(message.text) if "Policy" in message.text else None)
        page.goto(f"{house.url}/#gallery")
        assert page.title() == "Log in · Lumesh"
        assert page.evaluate("document.activeElement.name") == "name"
        page.evaluate("document.fonts.ready")
        assert page.evaluate("[...document.fonts].map(({ family, status }) => [family, status])") == [
            ["Inter", "loaded"]
        ]
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
        page.get_by_label("Name").fill("ada")
        page.get_by_label("Password").fill("wrong")
        page.get_by_role("button", name="Log in").click()
        assert "Wrong name or password" in page.get_by_role("alert").inner_text()
        assert find_violations(page) == []
        keep(page, f"login-{scheme}")
        page.get_by_label("Password").fill(PASSWORD)
        page.keyboard.press("Enter")
        page.wait_for_selector("#lu-me-button")
        assert page.evaluate("location.hash") == "#gallery"
        page.click("#lu-me-button")
        assert page.locator("#lu-me-name").inner_text() == "ada (admin)"
        page.wait_for_selector("#lu-gallery-everyone")
        keep(page, f"logged-in-{scheme}")
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
        page.get_by_role("button", name="Log out").click()
        page.wait_for_selector("#password")
        assert not refused


def test_the_login_page_speaks_the_visitors_language(
    house: Any, browser: Any, keep: Callable[[Any, str], None]
) -> None:
    with closing(browser.new_context(viewport={"width": 390, "height": 844}, locale="zh-CN")) as context:
        context.set_default_timeout(15_000)
        page = context.new_page()
        page.goto(house.url)
        assert page.title() == "登录 · Lumesh"
        assert page.evaluate("document.documentElement.lang") == "zh-CN"
        page.get_by_label("用户名").fill("ada")
        page.get_by_label("密码").fill("wrong")
        page.get_by_role("button", name="登录").click()
        assert page.get_by_role("alert").inner_text() == "用户名或密码不正确。"
        keep(page, "login-chinese")
        page.get_by_label("密码").fill(PASSWORD)
        page.keyboard.press("Enter")
        page.wait_for_selector("#lu-me-button")
        page.click("#lu-me-button")
        keep(page, "logged-in-chinese")
        page.keyboard.press("Escape")
        page.click("#lu-more")
        page.get_by_role("menuitemcheckbox", name="English").click()  # counts for more than the browser's wish
        page.wait_for_selector("html[lang=en] #lu-me-button")
        page.click("#lu-me-button")
        page.get_by_role("button", name="Log out").click()
        page.wait_for_selector("#password")
        assert page.title() == "Log in · Lumesh"

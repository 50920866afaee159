"""A Space without storage: the page says that a restart deletes what was made, until somebody waves it away."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest

pytest.importorskip("playwright.sync_api")
from playwright.sync_api import expect

pytestmark = pytest.mark.browser
BANNER = "#lu-ephemeral"


@pytest.fixture(scope="module")
def studio(tmp_path_factory: pytest.TempPathFactory, make_studio: Callable[..., Any]) -> Iterator[Any]:
    studio = make_studio(tmp_path_factory.mktemp("space"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SPACE_ID", "ada/lumesh")
        patch.setenv("LUMESH_OPEN", "1")
        studio.start()
    yield studio
    studio.stop()


@pytest.mark.parametrize(
    ("viewport", "scheme"), [({"width": 1440, "height": 900}, "light"), ({"width": 390, "height": 844}, "dark")]
)
def test_the_notice_stands_above_the_picture_until_it_is_dismissed(
    open_page: Callable[..., Any], keep: Callable[[Any, str], None], viewport: dict[str, int], scheme: str
) -> None:
    page = open_page(viewport=viewport, color_scheme=scheme)
    expect(page.locator(BANNER)).to_contain_text("A restart of this Space deletes what was made")
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    keep(page, f"ephemeral-{scheme}")
    page.locator(BANNER).get_by_role("button", name="Dismiss").click()
    expect(page.locator(BANNER)).to_be_hidden()
    page.reload()
    page.wait_for_selector(".lu-engine[data-state=idle], .lu-engine[data-state=busy]")
    expect(page.locator(BANNER)).to_be_hidden()

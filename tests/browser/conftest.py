"""A real Chromium before a real studio: `python app.py --fake` on a free port, with a data directory of its own.

Every page watches itself: a request to another host, a script error or a failed file ends its test, whatever else the
test is about. `LUMESH_ARTIFACTS=FOLDER` keeps screenshots there.
Needs Playwright for Python and the system's Chromium; skipped, with the reason, without either.
One Chromium serves all files of a test process, and the visitors of a file's tests (visitors.py).
"""

import asyncio
import os
import shutil
import signal
import socket
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.browser.visitors import DESK, OPEN_FOLD, TIMEOUT_MS, Visitors
from tests.studio_processes import Process, end_app, fork_app, start_app

playwright_api = pytest.importorskip("playwright.sync_api", reason="browser tests need `pip install playwright`")

playwright_api.expect.set_options(timeout=15_000)  # of a machine that does other things too
START_TIMEOUT_S = 60.0
CHROMIUM_NAMES = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
CHROMIUM_FLAGS = [
    "--no-sandbox",  # containers run as root
    "--disable-gpu",
    "--renderer-process-limit=1",  # of each visitor's pages: the next one finds the scripts compiled (visitors.py)
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]


class Studio:
    """One studio process that can be stopped, killed and started again on the same port and data."""

    def __init__(self, folder: Path, *flags: str, environment: Mapping[str, str] | None = None) -> None:
        """With an `environment` it starts as a command, because some of that is read by imports."""

        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = probe.getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}"
        self.data_dir = folder / "data"
        self._folder = folder
        self._flags = flags
        self._environment = environment
        self._process: Process | None = None

    def start(self) -> None:
        flags = [
            "--fake",
            "--port",
            str(self.port),
            "--data-dir",
            str(self.data_dir),
            *(() if "--model" in self._flags else ("--model", "demo-sdxl")),  # it takes input pictures
            *self._flags,
        ]
        log = self._folder / "app.log"
        self._process = fork_app(flags, log) if self._environment is None else start_app(flags, log, self._environment)
        deadline = time.monotonic() + START_TIMEOUT_S
        while not self._answers():
            if self._process.poll() is not None or time.monotonic() > deadline:
                self._process.kill()
                pytest.fail((self._folder / "app.log").read_text())
            time.sleep(0.1)

    def stop(self, how: signal.Signals = signal.SIGTERM) -> None:
        assert self._process is not None
        end_app(self._process, self._folder / "app.log", how)

    def _answers(self) -> bool:
        try:
            with urllib.request.urlopen(f"{self.url}/api/v1/health", timeout=2) as answer:
                return answer.status == 200
        except urllib.error.HTTPError as refusal:
            return refusal.code == 401  # of a studio with a login
        except (urllib.error.URLError, OSError):
            return False


@pytest.fixture(scope="session")
def make_studio() -> type[Studio]:
    """`make_studio(folder)` is a studio that is not started yet."""
    return Studio


@pytest.fixture(scope="module")
def studio(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Studio]:
    """One for a file of tests, with the flags that its `STUDIO_FLAGS` names."""
    studio = Studio(tmp_path_factory.mktemp("studio"), *getattr(request.module, "STUDIO_FLAGS", ()))
    studio.start()
    yield studio
    studio.stop()


@pytest.fixture(scope="session")
def _chromium() -> Iterator[tuple[Any, asyncio.AbstractEventLoop]]:
    """A browser for all files of this process, and the loop that Playwright runs: starting both takes a second."""
    found = next((path for name in CHROMIUM_NAMES if (path := shutil.which(name))), None)
    if found is None:
        pytest.skip(f"browser tests need Chromium on the PATH; looked for {', '.join(CHROMIUM_NAMES)}")
    with playwright_api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=found, args=CHROMIUM_FLAGS)
        loop = asyncio.get_running_loop()
        asyncio._set_running_loop(None)
        yield browser, loop
        asyncio._set_running_loop(loop)
        browser.close()


@pytest.fixture(scope="module")
def browser(_chromium: tuple[Any, asyncio.AbstractEventLoop]) -> Iterator[Any]:
    """Chromium, for the tests of one file.

    Playwright's loop counts as running as long as Playwright does, and then asyncio runs no other: so it does not
    count between the files of browser tests, where other tests of this process come.
    """
    browser, loop = _chromium
    asyncio._set_running_loop(loop)
    try:
        yield browser
        for context in browser.contexts:
            context.close()
    finally:
        asyncio._set_running_loop(None)


@pytest.fixture(scope="module")
def visitors(studio: Studio, browser: Any) -> Visitors:
    return Visitors(browser, studio.url)


@pytest.fixture(scope="module")
def _lent() -> list[tuple[Any, list[str]]]:
    """The page that a file's tests share, if there is one, and what went wrong on it."""
    return []


@pytest.fixture
def open_page(
    request: pytest.FixtureRequest, studio: Studio, visitors: Visitors, _lent: list[tuple[Any, list[str]]]
) -> Iterator[Callable[..., Any]]:
    """`open_page(viewport=…, color_scheme=…)` gives a page of a new visitor, with its controls filled and open.

    `address` is what comes after the studio's own address, as in a link.
    """
    troubles: list[str] = []
    if "shared_page" not in request.fixturenames:
        _close(_lent)

    def open_page(
        address: str = "",
        *,
        viewport: dict[str, int] = DESK,
        color_scheme: str = "dark",
        reduced_motion: str = "reduce",  # drawn without a GPU, animations take a core
        watch: bool = True,
    ) -> Any:
        page = visitors.open_page(viewport, color_scheme, reduced_motion)
        if watch:
            _watch(page, studio.url, troubles)
        _enter(page, f"{studio.url}/{address}")
        return page

    yield open_page
    visitors.leave()
    assert not troubles


@pytest.fixture
def shared_page(studio: Studio, browser: Any, _lent: list[tuple[Any, list[str]]]) -> Iterator[Any]:
    """A page for tests that follow each other and leave it as they found it: nothing typed, chosen or open.

    A view that shows, dialogs and messages are put away for them. Loading a page takes more of a processor than most of
    what tests do with it; one that stays open would draw all that the next tests make, so it is closed for others.
    """
    if not _lent:
        context = browser.new_context(viewport=DESK, color_scheme="dark", reduced_motion="reduce")
        context.set_default_timeout(TIMEOUT_MS)
        context.add_init_script(OPEN_FOLD)
        page, troubles = context.new_page(), []
        _watch(page, studio.url, troubles)
        _enter(page, studio.url)
        _lent.append((page, troubles))
    (page, troubles), found = _lent[0], _lent[0][0].evaluate(LOOK_AT)
    yield page
    page.unroute_all(behavior="ignoreErrors")
    page.evaluate(PUT_AWAY)
    left = page.evaluate(LOOK_AT)
    changed = {name: value for name, value in left.items() if name in found and value != found[name]}
    if troubles or changed:
        _close(_lent)  # the next test gets another page
    assert not troubles
    assert not changed, "a test that changes what a page shows asks for open_page"


# Leaves what a test has looked at as somebody does who begins anew.
PUT_AWAY = """() => {
  for (const dialog of document.querySelectorAll("dialog[open]")) dialog.close();
  document.getElementById("lu-toasts").replaceChildren();
  location.hash = "#create";
}"""
# What everybody who opens the page finds in the same state: fields, switches, what is selected. Dialogs, an open output
# and System fill their own fields whenever they are opened.
LOOK_AT = """() => {
  const found = { unselected: document.getElementById("lu-chosen")?.hidden ?? true };
  for (const field of document.querySelectorAll("#studio :is(input, select, textarea)[id]"))
    found[field.id] = ["checkbox", "radio"].includes(field.type) ? field.checked : field.value;
  for (const toggle of document.querySelectorAll("#lu-gallery [id][aria-pressed], #lu-negative-toggle"))
    found[toggle.id] = toggle.ariaPressed ?? toggle.ariaExpanded;
  for (const one of document.querySelectorAll("dialog [id], #lu-detail [id], #lu-system [id]")) delete found[one.id];
  return found;
}"""


def _close(lent: list[tuple[Any, list[str]]]) -> None:
    while lent:
        lent.pop()[0].context.close()


def _watch(page: Any, url: str, troubles: list[str]) -> None:
    page.on("request", lambda request: _note_foreign(request.url, url, troubles))
    page.on("pageerror", lambda error: troubles.append(f"script error: {error}"))
    page.on("response", lambda answer: _note_failed(answer.status, answer.url, troubles))


def _enter(page: Any, address: str) -> None:
    """Waits until the controls are filled."""
    page.goto(address)
    page.wait_for_selector("#lu-sizes [role=radio]")
    page.wait_for_selector(".lu-engine[data-state=idle], .lu-engine[data-state=busy]")


def _note_foreign(url: str, own: str, troubles: list[str]) -> None:
    if not url.startswith((own, "data:", "blob:")):
        troubles.append(f"left the host: {url}")


def _note_failed(status: int, url: str, troubles: list[str]) -> None:
    # A preview is gone the moment its job ends, so asking for it may come too late; 422 is a field's message.
    if status >= 400 and status != 422 and "preview.jpg" not in url:
        troubles.append(f"{status}: {url}")


@pytest.fixture(scope="session")
def keep() -> Callable[[Any, str], None]:
    """`keep(page, name)` stores a screenshot as an artifact, if a folder for them is named."""
    given = os.environ.get("LUMESH_ARTIFACTS")
    if not given:
        return lambda _page, _name: None
    folder = Path(given)
    folder.mkdir(parents=True, exist_ok=True)
    return lambda page, name: page.screenshot(path=folder / f"{name}.png")

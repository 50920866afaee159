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

from tests.browser.visitors import DESK, Visitors
from tests.studio_processes import Process, fork_app, start_app

playwright_api = pytest.importorskip("playwright.sync_api", reason="browser tests need `pip install playwright`")

playwright_api.expect.set_options(timeout=15_000)  # of a machine that does other things too
START_TIMEOUT_S = 60.0
STOP_TIMEOUT_S = 15.0
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
        self._process.send_signal(how)
        self._process.wait(STOP_TIMEOUT_S)

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


@pytest.fixture
def open_page(studio: Studio, visitors: Visitors) -> Iterator[Callable[..., Any]]:
    """`open_page(viewport=…, color_scheme=…)` gives a page of a new visitor, with its controls filled and open."""
    troubles: list[str] = []

    def open_page(
        *,
        viewport: dict[str, int] = DESK,
        color_scheme: str = "dark",
        reduced_motion: str = "reduce",  # drawn without a GPU, animations take a core
        watch: bool = True,
    ) -> Any:
        page = visitors.open_page(viewport, color_scheme, reduced_motion)
        if watch:
            page.on("request", lambda request: _note_foreign(request.url, studio.url, troubles))
            page.on("pageerror", lambda error: troubles.append(f"script error: {error}"))
            page.on("response", lambda answer: _note_failed(answer.status, answer.url, troubles))
        page.goto(studio.url)
        page.wait_for_selector("#lu-sizes [role=radio]")
        page.wait_for_selector(".lu-engine[data-state=idle], .lu-engine[data-state=busy]")
        return page

    yield open_page
    visitors.leave()
    assert not troubles


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

"""How heavy the page is and when it shows something: `python -m tests.browser.measure_paint [ROUNDS]`.

Starts a studio without models and opens it in Chromium, each round with an empty cache and then with a filled one.
Prints the medians of first paint, the moment a prompt can be written, and what came over the wire, ours and Gradio's.
Not a test: nothing here can fail.
"""

import shutil
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from typing import Any

from playwright.sync_api import sync_playwright
from rich.console import Console
from rich.table import Table

from tests.places import ROOT

PORT = 7994
ROUNDS = 5
TIMEOUT_MS = 120_000

READ = """() => {
  const paint = performance.getEntriesByName("first-contentful-paint")[0].startTime;
  const files = [...performance.getEntriesByType("navigation"), ...performance.getEntriesByType("resource")]
    .filter(({ name }) => !name.includes("/api/v1/"));
  const sum = (some) => some.reduce((total, { transferSize }) => total + transferSize, 0);
  const ours = files.filter(({ name }) => name.includes("/ui/"));
  return { paint, ours: sum(ours), all: sum(files), files: files.length };
}"""


def main(rounds: int) -> None:
    """One line with an empty cache, one with a filled one."""
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "app.py", "--fake", "--port", str(PORT), "--data-dir", folder]
        studio = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.DEVNULL)
        try:
            _wait_until_up()
            with sync_playwright() as playwright:
                flags = ["--no-sandbox", "--disable-gpu"]
                browser = playwright.chromium.launch(
                    executable_path=shutil.which("chromium-headless-shell") or shutil.which("chromium"), args=flags
                )
                _show([_open_twice(browser) for _ in range(rounds)])
        finally:
            studio.terminate()
            studio.wait()


def _wait_until_up() -> None:
    while True:
        try:
            urllib.request.urlopen(f"http://127.0.0.1:{PORT}/api/v1/health").close()
        except OSError:
            time.sleep(0.5)
        else:
            return


def _open_twice(browser: Any) -> tuple[dict[str, float], dict[str, float]]:
    context = browser.new_context(viewport={"width": 1440, "height": 900})
    context.set_default_timeout(TIMEOUT_MS)
    page = context.new_page()
    found = []
    for _ in range(2):
        page.goto(f"http://127.0.0.1:{PORT}/")
        page.wait_for_selector("#lu-sizes [role=radio]")
        ready = page.evaluate("performance.now()")
        found.append({**page.evaluate(READ), "ready": ready})
    context.close()
    return found[0], found[1]


def _show(rounds: list[tuple[dict[str, float], dict[str, float]]]) -> None:
    table = Table("", "first paint", "ready to write", "over the wire", "of which ours", "files")
    for name, visits in zip(("empty cache", "filled cache"), zip(*rounds, strict=True), strict=True):
        middle = {key: statistics.median(visit[key] for visit in visits) for key in visits[0]}
        table.add_row(
            name,
            f"{middle['paint']:.0f} ms",
            f"{middle['ready']:.0f} ms",
            f"{middle['all'] / 1e3:.0f} kB",
            f"{middle['ours'] / 1e3:.0f} kB",
            f"{middle['files']:.0f}",
        )
    Console().print(table)


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else ROUNDS)

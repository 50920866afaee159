"""How smoothly the gallery scrolls: `python -m tests.browser.measure_gallery [COUNT]`.

Starts a studio over COUNT made-up outputs with real thumbnails, scrolls them in Chromium at several speeds, and prints
what a frame costs the page's main thread, in time of its own: the time between frames says more about who else is at
work on the machine. Not a test: nothing here can fail.
"""

import itertools
import os
import shutil
import subprocess
import sys
import tempfile
import time
import urllib.request
from contextlib import closing
from pathlib import Path
from typing import Any

from playwright.sync_api import sync_playwright
from rich.console import Console
from rich.table import Table

from studio.database import open_database
from studio.library.bench import COUNT, fill
from tests.places import ROOT

PORT = 7995
SPEEDS_PX_S = (600, 2000, 6000, 40_000)
SECONDS = 5
PARTS = {"script": "ScriptDuration", "style": "RecalcStyleDuration", "layout": "LayoutDuration", "all": "TaskDuration"}

SCROLL = """async ([px_s, seconds]) => {
  const wall = document.getElementById("lu-gallery-scroll");
  wall.scrollTop = 0;
  const times = [];
  const start = performance.now();
  await new Promise((done) => {
    const tick = (now) => {
      times.push(now);
      wall.scrollTop = ((now - start) / 1000) * px_s;
      now - start < seconds * 1000 ? requestAnimationFrame(tick) : done();
    };
    requestAnimationFrame(tick);
  });
  return times;
}"""


def main(count: int) -> None:
    """One line for each speed."""
    table = Table(f"{count:,} outputs", "frames", "between frames, p50", "p95", *(f"{part}, a frame" for part in PARTS))
    with tempfile.TemporaryDirectory() as folder:
        _fill_studio(Path(folder), count)
        command = [sys.executable, "app.py", "--fake", "--port", str(PORT), "--data-dir", folder]
        studio = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.DEVNULL)
        try:
            _wait_until_up()
            with sync_playwright() as playwright:
                flags = ["--no-sandbox", "--disable-gpu"]
                browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=flags)
                for line in _measure(browser.new_page(viewport={"width": 1440, "height": 900})):
                    table.add_row(*line)
        finally:
            studio.terminate()
            studio.wait()
    Console().print(table)


def _fill_studio(folder: Path, count: int) -> None:
    outputs_dir = folder / "outputs"
    outputs_dir.mkdir()
    shipped = [file.with_suffix(".webp") for file in sorted((ROOT / "presets" / "gallery").glob("*.json"))]
    pictures = [shutil.copy(file, outputs_dir) for file in shipped if file.exists()]
    with closing(open_database(folder / "jobs.db")) as database:
        for thumb, picture in zip(fill(database, count), itertools.cycle(pictures), strict=False):
            os.link(picture, outputs_dir / thumb)


def _wait_until_up() -> None:
    while True:
        try:
            urllib.request.urlopen(f"http://127.0.0.1:{PORT}/api/v1/health").close()
        except OSError:
            time.sleep(0.5)
        else:
            return


def _measure(page: Any) -> list[list[str]]:
    page.goto(f"http://127.0.0.1:{PORT}/#gallery")
    page.wait_for_selector(".lu-shot img[data-is-here]")
    tools = page.context.new_cdp_session(page)
    tools.send("Performance.enable", {"timeDomain": "threadTicks"})
    lines: list[list[str]] = []
    for px_s in SPEEDS_PX_S:
        before = _read(tools)
        times = page.evaluate(SCROLL, [px_s, SECONDS])
        after = _read(tools)
        gaps = sorted(late - early for early, late in itertools.pairwise(times))
        middle, late = (f"{gaps[int(share * (len(gaps) - 1))]:.1f} ms" for share in (0.5, 0.95))
        costs = [f"{1000 * (after[name] - before[name]) / len(times):.1f} ms" for name in PARTS.values()]
        lines.append([f"{px_s} px/s", str(len(times)), middle, late, *costs])
    return lines


def _read(tools: Any) -> dict[str, float]:
    return {one["name"]: one["value"] for one in tools.send("Performance.getMetrics")["metrics"]}


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else COUNT)

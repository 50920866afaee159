"""Benchmark of searches among many outputs: `python -m studio.library.bench [COUNT]`.

It fills a temporary database with made-up outputs and prints medians of what REST does for one page: search, count, and
the answer as JSON. The CPU time beside the wall time stays meaningful on a busy machine.
"""

import json
import random
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import closing
from functools import partial
from pathlib import Path
from statistics import median

from rich.console import Console
from rich.table import Table

from pipelines.recipes.recipe import Recipe
from studio.database import Database, open_database
from studio.library import records
from studio.library.files import SavedFile
from studio.library.search import Filters, count_values, find_outputs

COUNT = 10_000
RUNS = 20
PAGE = 100  # the number that the gallery requests at a time
COLOURS = ("red", "blue", "green", "golden", "misty", "purple", "old", "tiny")
SUBJECTS = ("sailboat", "lighthouse", "house", "cactus", "mountain", "balloon", "cat", "tower")
PLACES = ("on the ocean at sunset", "in the desert at noon", "by the sea at night", "in a valley with clouds")
LONG_TAIL = ", cinematic lighting, highly detailed, 35mm photograph, soft focus, volumetric light, warm colours"
MODELS = ("demo-sdxl", "sdxl-base", "flux2-dev")

SEARCHES = {
    "everything, newest": Filters(),
    "one word in 1 of 8": Filters(words="sailboat"),
    "two words": Filters(words="sunset sail"),
    "a word in every prompt": Filters(words="cinematic"),
    "two letters": Filters(words="ca"),
    "word, model, size, days": Filters(words="cactus", models=["demo-sdxl"], shape="256x256", after=1.0),
    "nothing found": Filters(words="zebra"),
}


def main(count: int) -> None:
    """Prints one line for each kind of search."""
    table = Table(f"search among {count:,} outputs", "found", "median", "of the processor")
    with tempfile.TemporaryDirectory() as folder, closing(open_database(Path(folder) / "jobs.db")) as database:
        fill(database, count)
        for name, filters in SEARCHES.items():
            total = find_outputs(database, filters, owner="local").total
            table.add_row(name, f"{total:,}", *_measure(partial(_answer, database, filters)))
        table.add_row("what there is to filter by", "", *_measure(partial(count_values, database, owner="local")))
    Console().print(table)


def fill(database: Database, count: int) -> list[str]:
    """Adds made-up outputs without files; returns the names of their would-be thumbnails."""
    thumbs: list[str] = []
    draw = random.Random(0)
    with database.write() as tx:
        for number in range(count):
            prompt = f"A {draw.choice(COLOURS)} {draw.choice(SUBJECTS)} {draw.choice(PLACES)}{LONG_TAIL}"
            recipe = Recipe(model=draw.choice(MODELS), shape="256x256", prompt=prompt, seed=number, steps=12)
            name = f"bench{number}"
            thumbs.append(f"{name}.webp")
            saved = SavedFile(
                kind="image", file=f"{name}.png", thumb=thumbs[-1], width=256, height=256, frames=1, recipe=recipe
            )
            records.add(tx, saved, job_id=name, owner="local", number=0, created_at=float(number), made_with={})
    return thumbs


def _answer(database: Database, filters: Filters) -> str:
    page = find_outputs(database, filters, owner="local", limit=PAGE)
    return json.dumps([output.to_json() for output in page.outputs])


def _measure(act: Callable[[], object]) -> tuple[str, str]:
    """Returns the medians of wall time and CPU time in milliseconds."""
    passed_s: list[float] = []
    worked_s: list[float] = []
    for _ in range(RUNS):
        clock, work = time.perf_counter(), time.process_time()
        act()
        passed_s.append(time.perf_counter() - clock)
        worked_s.append(time.process_time() - work)
    return f"{1000 * median(passed_s):.1f} ms", f"{1000 * median(worked_s):.1f} ms"


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else COUNT)

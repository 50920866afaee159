"""Figures of the line: `python -m tests.load.choices [--waiting 10000]`.

Claims on SQLite with that many jobs waiting, by the code that a worker calls, and the simulation of many workers by the
code that chooses. One line each, with the load of the machine.
"""

import argparse
import os
import statistics
import tempfile
import time
from pathlib import Path

from rich.console import Console

from pipelines.messages import english
from pipelines.recipes.recipe import Recipe
from studio.database import open_database
from studio.jobs import claims, queue
from studio.jobs.queue import Wanted
from studio.jobs.workers import WorkerState, describe
from tests.studio.jobs.line.simulation import Case, find_p95, simulate

CLAIMS = 2000
MODELS, OWNERS, WORKERS = 20, 50, 20
CASES = (
    Case(workers=1000, models=20, load=0.8, jobs=40_000),
    Case(workers=1000, models=20, load=0.95, jobs=40_000),
    Case(workers=8, models=3, load=0.8, jobs=4_000),
    Case(workers=4, models=6, load=0.6, jobs=2_000),
)


def main() -> None:
    """Prints what was measured."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--waiting", type=int, default=10_000)
    console = Console(highlight=False, soft_wrap=True)
    for waiting in (100, 1000, parser.parse_args().waiting):
        with tempfile.TemporaryDirectory() as folder:
            took_s = measure_claims(Path(folder), waiting)
        console.print(
            f"claims with {waiting} jobs waiting: p50 {1000 * statistics.median(took_s):.2f} ms, "
            f"p95 {1000 * find_p95(took_s):.2f} ms, {len(took_s) / sum(took_s):.0f} a second"
        )
    for case in CASES:
        outcome = simulate(case)
        waits_s = outcome.all_waits_s
        console.print(
            f"{case.workers} workers, {case.models} models, load {case.load}: "
            f"{100 * outcome.swaps / case.jobs:.2f} % switches, waits p95 {find_p95(waits_s):.1f} s "
            f"(light owners {find_p95(outcome.light_waits_s):.1f} s), longest {max(waits_s):.0f} s; "
            f"{outcome.decisions / outcome.took_s:.0f} decisions a second"
        )
    console.print(f"load of the machine {os.getloadavg()[0]:.1f}")


def measure_claims(folder: Path, waiting: int, *, claimed: int = CLAIMS) -> list[float]:
    """Returns the seconds of each claim, while the line is kept as long as it was by new jobs, which do not count."""
    database = open_database(folder / "jobs.db")
    with database.write() as tx:
        for number in range(WORKERS):
            state = WorkerState.READY
            describe(tx, f"worker-{number}", state, activity=english("ready"), model=f"model-{number % MODELS}")
    recipes = [
        Recipe(model=f"model-{number}", prompt="a red boat", shape="256x256", steps=4) for number in range(MODELS)
    ]

    def add(numbers: range) -> None:
        for number in numbers:
            wanted = Wanted(recipe=recipes[number * 7 % MODELS], programs="256x256")
            queue.submit_all(database, [wanted], owner=f"owner-{number * 11 % OWNERS}", quota=10**9)

    add(range(waiting))
    claims.claim_next(database, "worker-0", resident="model-0")  # reads the line for the first time
    took_s: list[float] = []
    for number in range(claimed):
        worker = number % WORKERS
        clock = time.perf_counter()
        job = claims.claim_next(database, f"worker-{worker}", resident=f"model-{worker % MODELS}")
        took_s.append(time.perf_counter() - clock)
        assert job is not None
        claims.end_cancelled(database, job)
        add(range(number, number + 1))
    database.close()
    return took_s


if __name__ == "__main__":
    main()

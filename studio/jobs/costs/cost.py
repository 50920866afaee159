"""Costs of jobs in chip seconds: the seconds that a job held the machine, times its chips; in money if a price is set.

A job holds all chips of its worker from its start to its end, load and compilation included, however it ends. Jobs of
one batch share the machine in proportion to their outputs; when one gives up, the others take over its share. A retry
adds to the job's earlier cost. Money is charged at the current price and is not revised when the price changes.
Seconds are those of a monotonic clock, which all processes of one machine share: setting the clock costs nobody
anything.
"""

import time
from dataclasses import dataclass
from typing import Any

from studio.database import Database, Transaction
from studio.jobs.states import JobState

HOUR_S = 3600.0


@dataclass(frozen=True, kw_only=True)
class Cost:
    """A cost; `usd` is None when no price is set."""

    chip_seconds: float
    usd: float | None

    def share(self, count: int) -> "Cost":
        """Returns the cost of one of `count` outputs."""
        return Cost(chip_seconds=self.chip_seconds / count, usd=None if self.usd is None else self.usd / count)


@dataclass(frozen=True, kw_only=True)
class Usage:
    """The total cost of one owner's jobs so far."""

    owner: str
    jobs: int
    chip_seconds: float
    cost_usd: float | None


_OUTPUTS = "json_extract(recipe, '$.batch_size')"
# Seconds for which a job held the whole machine, until :now (monotonic); a batch counts each job's share.
_HELD_S = "held_s + machine_share * max(0, :now - coalesce(held_from_s, :now))"


def share_machine(tx: Transaction, worker: str | None, *, now_s: float) -> None:
    """Divides a worker's machine anew among the jobs that it runs as one batch, in proportion to their outputs."""
    running = "state = :running AND worker = :worker"
    tx.execute(
        f"UPDATE jobs SET held_s = {_HELD_S}, held_from_s = :now, "
        f"machine_share = 1.0 * {_OUTPUTS} / (SELECT sum({_OUTPUTS}) FROM jobs WHERE {running}) WHERE {running}",
        {"now": now_s, "running": JobState.RUNNING, "worker": worker},
    )


def measure(tx: Transaction, job_id: str, *, until_s: float | None = None) -> Cost:
    """Returns what a running job has cost until now, or `until_s`, by its share of the worker's machine."""
    held = tx.execute(
        f"SELECT {_HELD_S} AS seconds, chips, chip_price FROM jobs JOIN workers ON workers.id = jobs.worker "
        "WHERE jobs.id = :id",
        {"id": job_id, "now": time.monotonic() if until_s is None else until_s},
    ).fetchone()
    chip_seconds, price = held["chips"] * held["seconds"], held["chip_price"]
    return Cost(chip_seconds=chip_seconds, usd=None if price is None else chip_seconds * price / HOUR_S)


def charge(tx: Transaction, job_id: str, to: JobState, *, now_s: float) -> dict[str, Any]:
    """Returns the cost columns to set when a job ends; empty for a job that never started."""
    row = tx.execute(
        "SELECT jobs.state, chip_seconds, cost_usd, beat_s "
        "FROM jobs LEFT JOIN workers ON workers.id = jobs.worker WHERE jobs.id = ?",
        (job_id,),
    ).fetchone()
    if row is None or row["state"] != JobState.RUNNING:
        return {}
    # An interrupted job is charged until its worker's last heartbeat: the server may have been down for hours since, or
    # the machine started anew, and its monotonic clock with it.
    cost = measure(tx, job_id, until_s=row["beat_s"] if to is JobState.INTERRUPTED else now_s)
    usd = row["cost_usd"] if cost.usd is None else (row["cost_usd"] or 0.0) + cost.usd
    return {"chip_seconds": row["chip_seconds"] + cost.chip_seconds, "cost_usd": usd}


def add_up(database: Database) -> list[Usage]:
    """Returns each owner's running total, the largest first."""
    rows = database.read(
        "SELECT owner, count(*) AS jobs, sum(chip_seconds) AS chip_seconds, sum(cost_usd) AS cost_usd FROM jobs "
        "WHERE chip_seconds > 0 GROUP BY owner ORDER BY sum(chip_seconds) DESC"
    )
    return [Usage(**dict(row)) for row in rows]

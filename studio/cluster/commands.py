"""`python app.py workers ...`: which workers there are, and the cluster's token, on the machine that holds the data."""

import argparse
from collections.abc import Mapping, Sequence
from contextlib import closing

from rich.console import Console
from rich.table import Table

from pipelines.errors import LumeshError
from pipelines.messages import english
from studio.cluster.token import make_token
from studio.database import open_database
from studio.flags import read_settings
from studio.jobs import workers

COMMAND = "workers"
DRAINING = {"drain": "lets a worker finish its job and gives it no other", "undrain": "gives it jobs again"}

console = Console(highlight=False, soft_wrap=True)


class NoWorkerError(LumeshError):
    """No worker has this id."""

    title = english("There is no such worker")


def run(arguments: Sequence[str], environment: Mapping[str, str]) -> int:
    """Runs one command; raises NoWorkerError, TokenError."""
    parser = argparse.ArgumentParser(prog="app.py workers", allow_abbrev=False)
    parser.add_argument("--data-dir", help="the studio's data directory")
    actions = parser.add_subparsers(dest="action")
    actions.add_parser("list", help="all workers: what they are and what they do")
    actions.add_parser("token", help="the secret that machines need to join; who holds it can do anything on them")
    for name, says in DRAINING.items():
        actions.add_parser(name, help=says).add_argument("id")
    found = parser.parse_args(arguments)
    settings = read_settings(["--data-dir", found.data_dir] if found.data_dir else [], environment)
    if found.action == "token":
        console.print(make_token(settings.ray_token_file), markup=False)
        return 0
    with closing(open_database(settings.database_file)) as database:
        if found.action not in DRAINING:
            _show(workers.read_workers(database))
            return 0
        with database.write() as tx:
            is_known = workers.set_draining(tx, found.id, is_draining=found.action == "drain")
        if not is_known:
            raise NoWorkerError(english(f"{found.id!r} is none."), advice=english("`workers list` names them."))
        told = "gets no more jobs; `workers undrain` undoes it" if found.action == "drain" else "gets jobs again"
        console.print(f"{found.id} {told}", markup=False)
    return 0


def _show(rows: Sequence[workers.WorkerRow]) -> None:
    table = Table("worker", "machine", "device", "model", "state")
    for row in rows:
        state = f"{row.state}, draining" if row.is_draining else str(row.state)
        model = f"{row.model}, pinned" if row.is_pinned else row.model
        table.add_row(row.id, row.node or "this one", row.device, model, f"{state}: {row.activity}")
    console.print(table)

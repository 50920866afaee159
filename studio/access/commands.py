"""`python app.py users ...`: who may log in, from the command line of the machine that holds the data.

Passwords are prompted for or read from standard input; never from an argument, which others on the machine could see.
"""

import argparse
import getpass
import sqlite3
import sys
from collections.abc import Mapping, Sequence
from contextlib import closing, suppress
from datetime import UTC, datetime
from pathlib import Path

from rich.console import Console
from rich.table import Table

from pipelines.messages import english
from studio.access.audit import Audit
from studio.access.users import Users, UsersError, require_good, require_new
from studio.flags import read_settings

EXAMPLES = """examples:
  python app.py users add ada --admin      asks for a password
  python app.py users token ada            prints a token for scripts, this once
  python app.py users list
"""
COMMAND = "users"

console = Console(highlight=False, soft_wrap=True)


def run(arguments: Sequence[str], environment: Mapping[str, str]) -> int:
    """Runs one command; raises UsersError."""
    found = _make_parser().parse_args(arguments)
    settings = read_settings(["--data-dir", found.data_dir] if found.data_dir else [], environment)
    users, audit = Users(settings.users_file), Audit(settings.audit_log)
    name: str = getattr(found, "name", "").casefold()
    match found.action:
        case "list":
            _show(users)
            return 0
        case "add":
            require_new(users.read(), name)  # before anybody types a password
            if left := _list_left(settings.database_file, name):
                notice = f"NOTICE  An earlier {name} left {left}, which {name} gets back now."
                console.print(f"{notice} For somebody else choose another name.", markup=False)
            password = None if found.no_password else _read_password(name, is_piped=found.password_stdin)
            users.add(name, password=password, is_admin=found.admin)
            said = f"{name} can log in" if password else f"{name} is there; `users token {name}` makes a token"
        case "password":
            users.set_password(name, _read_password(name, is_piped=found.password_stdin))
            said = f"{name} has a new password, and must log in again; tokens are void (`users token` makes new ones)"
        case "remove":
            users.remove(name)
            said = f"{name} is out; jobs and files stay"
        case "revoke":
            said = f"{users.revoke_tokens(name)} tokens of {name} are void"
        case _:
            console.print(users.add_token(name), markup=False)
            said = ""
    audit.note(f"users.{found.action}", name=name)
    if said:
        console.print(said, markup=False)
    return 0


def _show(users: Users) -> None:
    table = Table("name", "admin", "password", "tokens")
    for name, user in sorted(users.read().items()):
        made = ", ".join(f"{datetime.fromtimestamp(token.created_at, UTC):%Y-%m-%d}" for token in user.tokens)
        table.add_row(name, "yes" if user.is_admin else "", "yes" if user.password else "", made)
    console.print(table)


def _list_left(database: Path, name: str) -> str:
    """Says how much a user of this name left, such as "3 outputs, 1 preset"; "" for nothing, and without a database."""
    if not database.is_file():
        return ""
    counts: list[str] = []
    with suppress(sqlite3.Error), closing(sqlite3.connect(f"{database.as_uri()}?mode=ro", uri=True)) as opened:
        for table in ("outputs", "jobs", "presets", "uploads", "webhooks"):
            count = opened.execute(f"SELECT count(*) FROM {table} WHERE owner = ?", (name,)).fetchone()[0]
            counts += [f"{count} {table if count > 1 else table[:-1]}"] if count else []
    return ", ".join(counts)


def _read_password(name: str, *, is_piped: bool) -> str:
    if is_piped:
        password = sys.stdin.readline().rstrip("\n")
    else:
        password = getpass.getpass("Password: ")
        if getpass.getpass("Again: ") != password:
            raise UsersError(english("The two are not the same."), advice=english("Try again."))
    require_good(password, name)
    return password


def _make_parser() -> argparse.ArgumentParser:
    shared = argparse.ArgumentParser(add_help=False)
    shared.add_argument("--data-dir", "--data_dir", help="the studio's data directory (default: as app.py's)")
    parser = argparse.ArgumentParser(
        prog="app.py users",
        description="Who may log in to the studio.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")

    def offer(name: str, what: str) -> argparse.ArgumentParser:
        action = actions.add_parser(name, help=what, description=what, parents=[shared])
        if name != "list":
            action.add_argument("name", metavar="NAME")
        if name in ("add", "password"):
            action.add_argument("--password-stdin", action="store_true", help="read the password's line from a pipe")
        return action

    add = offer("add", "add somebody")
    add.add_argument("--admin", action="store_true", help="sees and may change what everybody made")
    add.add_argument("--no-password", action="store_true", help="only tokens, for a script")
    offer("list", "show who there is")
    offer("remove", "let somebody in no more")
    offer("password", "give a new password, which ends all sessions and tokens")
    offer("token", "print a new token for scripts")
    offer("revoke", "make all tokens of somebody void")
    return parser

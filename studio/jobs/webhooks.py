"""Webhooks: the address that each owner wants called when a job ends, and its delivery state.

A webhook is a cursor in the event log: nothing is lost when the app restarts, messages are delivered in order, and a
failed delivery is retried before the next message.
Not here: sending (services/webhook_sender.py).
"""

import base64
import json
import secrets
import sqlite3
import time
from dataclasses import dataclass
from typing import Any

from pipelines.messages import Message, add_codes, read_code, write_code
from studio.database import Database, Transaction
from studio.events import Event, read_last_id

TOLD_KINDS = ("job.done", "job.failed", "job.cancelled")
# After the last delay the message is dropped: a receiver that was away for three hours asks GET /api/v1/jobs.
RETRY_DELAYS_S = (5.0, 30.0, 120.0, 600.0, 1800.0, 7200.0)
SECRET_PREFIX = "whsec_"  # as in Standard Webhooks, whose libraries check our signatures
SECRET_BYTES = 24


@dataclass(frozen=True, kw_only=True)
class Webhook:
    """One owner's webhook. `told` describes the outcome of the last delivery attempt, at `told_at`."""

    owner: str
    url: str
    secret: str
    cursor: int
    attempts: int
    next_at: float
    told_at: float | None
    told: Message

    def to_json(self) -> dict[str, Any]:
        """Returns the webhook without its secret, which is shown only once."""
        return add_codes({"url": self.url, "told_at": self.told_at, "told": self.told, "attempts": self.attempts})


@dataclass(frozen=True, kw_only=True)
class Delivery:
    """One event for one webhook."""

    webhook: Webhook
    event: Event


def make_secret() -> str:
    return SECRET_PREFIX + base64.b64encode(secrets.token_bytes(SECRET_BYTES)).decode()


def set_webhook(database: Database, *, owner: str, url: str) -> Webhook:
    """Sets the owner's webhook, with a new secret, for events from now on; replaces an earlier one."""
    with database.write() as tx:
        tx.execute(
            "INSERT OR REPLACE INTO webhooks (owner, url, secret, cursor) VALUES (?, ?, ?, ?)",
            (owner, url, make_secret(), read_last_id(database)),
        )
    webhook = read_webhook(database, owner=owner)
    assert webhook is not None, "it was stored just now"
    return webhook


def read_webhook(database: Database, *, owner: str) -> Webhook | None:
    row = database.read_one("SELECT * FROM webhooks WHERE owner = ?", (owner,))
    return _read(row) if row else None


def remove_webhook(database: Database, *, owner: str) -> None:
    with database.write() as tx:
        tx.execute("DELETE FROM webhooks WHERE owner = ?", (owner,))


def list_due(database: Database, *, now_s: float) -> list[Delivery]:
    """Returns the next message of each webhook that has one and is not waiting for a retry."""
    due = [_read(row) for row in database.read("SELECT * FROM webhooks WHERE next_at <= ?", (now_s,))]
    kinds = ", ".join(f"'{kind}'" for kind in TOLD_KINDS)
    messages: list[Delivery] = []
    for webhook in due:
        row = database.read_one(
            f"SELECT * FROM events WHERE id > ? AND owner = ? AND kind IN ({kinds}) ORDER BY id LIMIT 1",
            (webhook.cursor, webhook.owner),
        )
        if row is not None:
            messages.append(Delivery(webhook=webhook, event=Event(**dict(row))))
    return messages


def note_told(database: Database, message: Delivery, how: Message) -> None:
    """Records that the message was delivered; the next one is due."""
    with database.write() as tx:
        _update(tx, message, cursor=message.event.id, attempts=0, next_at=0.0, told=how, told_said=write_code(how))


def note_refused(database: Database, message: Delivery, why: Message, *, now_s: float) -> None:
    """Records a failed delivery: the message is retried later, or dropped after the last retry."""
    attempts = message.webhook.attempts
    is_last = attempts >= len(RETRY_DELAYS_S)
    with database.write() as tx:
        _update(
            tx,
            message,
            cursor=message.event.id if is_last else message.webhook.cursor,
            attempts=0 if is_last else attempts + 1,
            next_at=0.0 if is_last else now_s + RETRY_DELAYS_S[attempts],
            told=why,
            told_said=write_code(why),
        )


def make_payload(kind: str, at: float, data: dict[str, Any]) -> bytes:
    """Returns the body that is signed and sent: `type`, `timestamp` and `data`."""
    stamp = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(at))
    return json.dumps({"type": kind, "timestamp": stamp, "data": data}, separators=(",", ":")).encode()


def _read(row: sqlite3.Row) -> Webhook:
    columns: dict[str, Any] = {name: row[name] for name in row.keys()}  # noqa: SIM118 - iterating a Row gives values
    columns["told"] = read_code(columns["told"], columns.pop("told_said"))
    return Webhook(**columns)


def _update(tx: Transaction, message: Delivery, **columns: Any) -> None:
    """Updates the webhook unless it was replaced meanwhile, which its different secret shows."""
    assignments = ", ".join(f"{name} = :{name}" for name in columns)
    tx.execute(
        f"UPDATE webhooks SET {assignments}, told_at = :_now WHERE owner = :_owner AND secret = :_secret",
        {**columns, "_now": time.time(), "_owner": message.webhook.owner, "_secret": message.webhook.secret},
    )

"""Delivers webhook messages about ended jobs: signed, in order, with retries.

The service runs in the app process. Signatures follow the Standard Webhooks (`webhook-id`, `webhook-timestamp`,
`webhook-signature`: "v1," and the base64 of HMAC-SHA256 over "id.timestamp.body"), so receivers can use its libraries.
Not here: what is due (jobs/webhooks.py), safe connections (outbound.py).
"""

import asyncio
import base64
import hashlib
import hmac
import json
import logging
import time

from pipelines.messages import Message, say
from studio.database import Database
from studio.jobs import webhooks
from studio.jobs.webhooks import SECRET_PREFIX, Delivery, Webhook
from studio.services.background import Service
from studio.services.outbound import post

INTERVAL_S = 1.0
TAKEN = say("it took the message")

log = logging.getLogger(__name__)


def make_service(database: Database, *, allows_private: bool) -> Service:
    """Makes the service that looks for webhooks with a message due, and sends each without waiting for others."""
    under_way: dict[str, asyncio.Task[None]] = {}

    async def work() -> None:
        await start_due(database, under_way, allows_private=allows_private)

    return Service(name="telling webhooks", interval_s=INTERVAL_S, work=work)


async def start_due(database: Database, under_way: dict[str, asyncio.Task[None]], *, allows_private: bool) -> None:
    """Starts one message to each webhook that has one due and none `under_way`, by owner.

    A receiver that hangs delays only its own messages. What fails is logged, and due again at the next turn.
    """
    for owner, task in [*under_way.items()]:
        if task.done():
            del under_way[owner]
            if not task.cancelled() and (error := task.exception()) is not None:
                log.error("a message to the webhook of %s failed", owner, exc_info=error)
    for message in await asyncio.to_thread(webhooks.list_due, database, now_s=time.time()):
        owner = message.webhook.owner
        if owner not in under_way:
            under_way[owner] = asyncio.create_task(_send(database, message, allows_private=allows_private))


async def send_due(database: Database, *, allows_private: bool) -> None:
    """Sends one message to each webhook that has one due, and waits for all of them."""
    under_way: dict[str, asyncio.Task[None]] = {}
    await start_due(database, under_way, allows_private=allows_private)
    await asyncio.gather(*under_way.values())


async def send_ping(webhook: Webhook, *, allows_private: bool) -> Message:
    """Sends an empty message to test a URL; returns "" when it was accepted, else what happened."""
    now = time.time()
    body = webhooks.make_payload("ping", now, {})
    return await _post(webhook, name=f"ping-{now:.0f}", body=body, allows_private=allows_private)


def sign(secret: str, *, name: str, stamp: str, body: bytes) -> str:
    """Returns the signature of one message."""
    key = base64.b64decode(secret.removeprefix(SECRET_PREFIX))
    digest = hmac.new(key, f"{name}.{stamp}.".encode() + body, hashlib.sha256).digest()
    return f"v1,{base64.b64encode(digest).decode()}"


async def _send(database: Database, message: Delivery, *, allows_private: bool) -> None:
    event = message.event
    job = json.loads(event.data)["job"]
    body = webhooks.make_payload(event.kind, event.at, {"job": job})
    problem = await _post(message.webhook, name=f"event-{event.id}", body=body, allows_private=allows_private)
    if problem:
        await asyncio.to_thread(webhooks.note_refused, database, message, problem, now_s=time.time())
    else:
        await asyncio.to_thread(webhooks.note_told, database, message, TAKEN)


async def _post(webhook: Webhook, *, name: str, body: bytes, allows_private: bool) -> Message:
    stamp = str(int(time.time()))
    headers = {
        "content-type": "application/json",
        "user-agent": "Lumesh",
        "webhook-id": name,
        "webhook-timestamp": stamp,
        "webhook-signature": sign(webhook.secret, name=name, stamp=stamp, body=body),
    }
    return await post(webhook.url, body, headers, allows_private=allows_private)

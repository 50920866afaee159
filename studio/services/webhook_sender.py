"""Tells webhooks of jobs that ended: signed, in order, tried again until they took it.

Runs in the app process beside the routes. Signatures follow the Standard Webhooks (`webhook-id`, `webhook-timestamp`,
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
from collections.abc import Awaitable, Callable
from typing import NoReturn

from studio.context import Studio
from studio.jobs import webhooks
from studio.jobs.webhooks import SECRET_PREFIX, Message, Webhook
from studio.services.outbound import post

POLL_S = 1.0
TAKEN = "it took the message"

log = logging.getLogger(__name__)


async def send_webhooks(studio: Studio, *, wait: Callable[[float], Awaitable[None]] = asyncio.sleep) -> NoReturn:
    """Runs as long as the application."""
    while True:
        try:
            await send_due(studio)
        except Exception:
            log.exception("webhooks wait for the next turn")
        await wait(POLL_S)


async def send_due(studio: Studio) -> None:
    """One message to each webhook that has one due."""
    due = await asyncio.to_thread(webhooks.list_due, studio.database, now_s=time.time())
    await asyncio.gather(*(_send(studio, message) for message in due))


async def send_ping(studio: Studio, webhook: Webhook) -> str:
    """A message that tells nothing, to try an address; empty when it was taken, else what happened."""
    now = time.time()
    return await _post(studio, webhook, name=f"ping-{now:.0f}", body=webhooks.make_payload("ping", now, {}))


def sign(secret: str, *, name: str, stamp: str, body: bytes) -> str:
    """The signature of one message."""
    key = base64.b64decode(secret.removeprefix(SECRET_PREFIX))
    digest = hmac.new(key, f"{name}.{stamp}.".encode() + body, hashlib.sha256).digest()
    return f"v1,{base64.b64encode(digest).decode()}"


async def _send(studio: Studio, message: Message) -> None:
    event = message.event
    job = json.loads(event.data)["job"]
    body = webhooks.make_payload(event.kind, event.at, {"job": job})
    problem = await _post(studio, message.webhook, name=f"event-{event.id}", body=body)
    if problem:
        await asyncio.to_thread(webhooks.note_refused, studio.database, message, problem, now_s=time.time())
    else:
        await asyncio.to_thread(webhooks.note_told, studio.database, message, TAKEN)


async def _post(studio: Studio, webhook: Webhook, *, name: str, body: bytes) -> str:
    stamp = str(int(time.time()))
    headers = {
        "content-type": "application/json",
        "user-agent": "Lumesh",
        "webhook-id": name,
        "webhook-timestamp": stamp,
        "webhook-signature": sign(webhook.secret, name=name, stamp=stamp, body=body),
    }
    return await post(webhook.url, body, headers, allows_private=studio.settings.allow_private_webhooks)

"""The visitor's webhook over REST: set, read, test, remove."""

from typing import Any

from fastapi import APIRouter
from pydantic import BaseModel, ConfigDict

from pipelines.errors import LumeshError
from pipelines.messages import add_codes, say
from pipelines.web.public_addresses import find_url_problem
from studio.access.limits import RateError
from studio.api.answers import jobs as jobs_answers
from studio.api.visitor import Visitor
from studio.jobs import webhooks
from studio.services.webhook_sender import TAKEN, send_ping
from studio.visit import NotFoundError

router = APIRouter(tags=["webhook"])


class WebhookError(LumeshError):
    """No message can be sent to the address."""

    title = say("Please check the address")
    status = 422


class Address(BaseModel):
    """The URL that receives messages."""

    model_config = ConfigDict(extra="forbid")
    url: str


@router.get("/webhook", response_model=jobs_answers.OwnWebhook)
def get_webhook(visit: Visitor) -> dict[str, Any]:
    """Returns your webhook (`url`; `told` describes the last delivery, at `told_at`); null when there is none."""
    webhook = webhooks.read_webhook(visit.database, owner=visit.owner)
    return {"webhook": webhook.to_json() if webhook else None}


@router.put("/webhook", response_model=jobs_answers.NewWebhook)
def set_webhook(address: Address, visit: Visitor) -> dict[str, Any]:
    """Sets the address that is called whenever a job of yours ends; answers with the `secret`, only this once.

    Each message is a POST of `{"type": "job.done" | "job.failed" | "job.cancelled", "timestamp", "data": {"job"}}`,
    signed as in Standard Webhooks, and retried for about three hours. Only public addresses are allowed, unless the
    server was started with `--allow-private-webhooks`.
    """
    problem = find_url_problem(address.url, allows_private=visit.studio.settings.allow_private_webhooks)
    if problem:
        raise WebhookError(say("{url} {problem}.", url=repr(address.url[:100]), problem=problem))
    webhook = webhooks.set_webhook(visit.database, owner=visit.owner, url=address.url)
    return {"webhook": webhook.to_json(), "secret": webhook.secret}


@router.delete("/webhook", response_model=jobs_answers.OwnWebhook)
def remove_webhook(visit: Visitor) -> dict[str, Any]:
    """Removes your webhook."""
    webhooks.remove_webhook(visit.database, owner=visit.owner)
    return {"webhook": None}


@router.post("/webhook/ping", response_model=jobs_answers.Ping)
async def ping_webhook(visit: Visitor) -> dict[str, Any]:
    """Sends a message of type `ping` now; `is_taken` tells whether it was accepted, `told` what happened."""
    webhook = webhooks.read_webhook(visit.database, owner=visit.owner)
    if webhook is None:
        raise NotFoundError(say("There is no webhook yet."), advice=say("PUT /api/v1/webhook sets one."))
    wait_s = visit.studio.pings.take(visit.owner)
    if wait_s:
        raise RateError(say("Too many test messages."), wait_s=wait_s)
    problem = await send_ping(webhook, allows_private=visit.studio.settings.allow_private_webhooks)
    return {"is_taken": not problem, **add_codes({"told": problem or TAKEN})}

"""What a webhook is told next: every end of its owner's jobs, in order, again until it arrives or is given up."""

from collections.abc import Callable

from studio.database import Database
from studio.jobs import claims, queue, webhooks
from studio.jobs.job import Card, Job
from studio.jobs.webhooks import RETRY_DELAYS_S, Message, Webhook

Submit = Callable[..., Job]
URL = "https://example.com/told"


def end(database: Database, submit: Submit, owner: str = "local") -> Job:
    job = submit(owner=owner)
    queue.cancel(database, job.id)
    return job


def list_due(database: Database, now_s: float = 0.0) -> list[Message]:
    return webhooks.list_due(database, now_s=now_s)


def test_only_what_ends_from_now_on_and_is_ones_own_is_told(database: Database, submit: Submit) -> None:
    end(database, submit)
    webhooks.set_webhook(database, owner="local", url=URL)
    end(database, submit, owner="her")
    waiting = submit()
    assert list_due(database) == []
    card = Card(title="Broken", detail="It broke.", advice="Mend it.")
    claims.fail(database, claims.claim_next(database, resident=None), card)
    (message,) = list_due(database)
    assert (message.event.kind, message.event.job_id) == ("job.failed", waiting.id)


def test_messages_come_in_order_one_at_a_time(database: Database, submit: Submit) -> None:
    webhooks.set_webhook(database, owner="local", url=URL)
    jobs = [end(database, submit) for _ in range(2)]
    told = []
    for _ in jobs:
        (message,) = list_due(database)
        told.append(message.event.job_id)
        webhooks.note_told(database, message, "it took the message")
    assert told == [job.id for job in jobs]
    assert list_due(database) == []


def test_what_did_not_arrive_is_tried_again_later_and_at_last_given_up(database: Database, submit: Submit) -> None:
    webhooks.set_webhook(database, owner="local", url=URL)
    first, second = end(database, submit), end(database, submit)
    now_s = 1000.0
    for delay_s in RETRY_DELAYS_S:
        (message,) = list_due(database, now_s)
        assert message.event.job_id == first.id
        webhooks.note_refused(database, message, "it answered 500", now_s=now_s)
        assert list_due(database, now_s + delay_s - 0.1) == []
        now_s += delay_s
    found = webhooks.read_webhook(database, owner="local")
    assert (found.told, found.attempts) == ("it answered 500", len(RETRY_DELAYS_S))
    webhooks.note_refused(database, list_due(database, now_s)[0], "it answered 500", now_s=now_s)
    assert list_due(database, now_s)[0].event.job_id == second.id


def test_an_answer_for_a_replaced_webhook_changes_nothing(database: Database, submit: Submit) -> None:
    old = webhooks.set_webhook(database, owner="local", url=URL)
    end(database, submit)
    (message,) = list_due(database)
    new = webhooks.set_webhook(database, owner="local", url="https://example.com/new")
    webhooks.note_refused(database, message, "it answered 500", now_s=0.0)
    assert webhooks.read_webhook(database, owner="local") == new
    assert new.secret != old.secret
    assert "secret" not in Webhook.to_json(new)
    webhooks.remove_webhook(database, owner="local")
    assert webhooks.read_webhook(database, owner="local") is None

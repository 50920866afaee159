"""Many people who queue pictures over REST: each waits for one to end, then asks for the next."""

import asyncio
import itertools
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import httpx

LOOK_S = 0.5
ENDED = ("done", "failed", "cancelled", "interrupted")


@dataclass(kw_only=True)
class Submitted:
    """The ids that the server answered, in order of the answers, and how long those took."""

    ids: list[str] = field(default_factory=list[str])
    answers_s: list[float] = field(default_factory=list[float])


async def submit_while(
    url: str, count: int, may_submit: Callable[[int], bool], recipe: dict[str, Any], *, look_s: float = LOOK_S
) -> Submitted:
    """`count` people, each as long as `may_submit` says so of the number of jobs so far."""
    submitted = Submitted()
    seeds = itertools.count()

    async def keep_submitting(client: httpx.AsyncClient) -> None:
        while may_submit(seed := next(seeds)):
            clock = time.perf_counter()
            answer = await client.post("/api/v1/jobs", json={**recipe, "seed": seed})
            submitted.answers_s.append(time.perf_counter() - clock)
            job_id = answer.raise_for_status().json()["id"]
            submitted.ids.append(job_id)
            while (await client.get(f"/api/v1/jobs/{job_id}")).raise_for_status().json()["state"] not in ENDED:
                await asyncio.sleep(look_s)

    async with httpx.AsyncClient(base_url=url, timeout=60, trust_env=False) as client, asyncio.TaskGroup() as group:
        for _ in range(count):
            group.create_task(keep_submitting(client))
    return submitted

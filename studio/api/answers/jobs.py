"""Response models of jobs, their costs, sweeps and grids."""

from typing import Any

from pipelines.recipes.recipe import Recipe
from studio.api.answers.answer import Answer, Said, eg, said
from studio.jobs.many.axes import Axes, Axis, AxisField
from studio.jobs.states import JobState

JOB, OUTPUT, GRID, NOW = "5b6250a4b9", "5b6250a4b9-0", "e41f09aa37", 1795325528.93
RECIPE = Recipe(
    model="demo-sdxl",
    shape="256x256",
    prompt="A red sailboat at sunset",
    negative_prompt="",
    seed=7,
    steps=12,
    guidance_scale=4.0,
    scheduler="euler",
)
AXES = Axes(x=Axis(field=AxisField.STEPS, values="4, 8"), y=Axis(field=AxisField.PROMPT, values="red, blue"))
LABELS = {"x": ["Steps 4", "Steps 8"], "y": ["red", "blue"]}


class Id(Answer):
    id: str = eg(JOB)


class Ids(Answer):
    ids: list[str] = eg([JOB])


class OutputLink(Answer):
    """An output and its files; videos have a poster."""

    id: str = eg(OUTPUT)
    kind: str = eg("image")
    url: str = eg(f"/api/v1/outputs/{OUTPUT}/file")
    thumb_url: str = eg(f"/api/v1/outputs/{OUTPUT}/thumb")
    poster_url: str | None = eg(None, default=None, exclude_if=lambda url: url is None)
    width: int = eg(256)
    height: int = eg(256)
    frames: int = eg(1)
    seed: int = eg(7)


class JobOutput(OutputLink):
    """An output as its job lists it; favourite mark and tags are left out until somebody sets them."""

    favourite: bool | None = eg(None, default=None, exclude_if=lambda mark: mark is None)
    is_trashed: bool | None = eg(None, default=None, exclude_if=lambda mark: mark is None)


class Card(Answer):
    """An error for people: what happened, with which value, what to do next."""

    title: str = eg("Out of memory")
    title_said: Said | None = said()
    detail: str = eg("The decoder needs 3.1 GiB, 2.4 are free.")
    detail_said: Said | None = said()
    advice: str = eg("Choose a smaller size.")
    advice_said: Said | None = said()


class Job(Answer):
    """A job in its current state. Only waiting jobs have `position` (1 is next), `reason` and `eta_error_s`."""

    id: str = eg(JOB)
    kind: str = eg("generate")
    owner: str = eg("local")
    state: JobState = eg("done")
    worker: str | None = eg("local")
    attempt: int = eg(1)
    recipe: Recipe = eg(RECIPE)
    created_at: float = eg(NOW - 3)
    started_at: float | None = eg(NOW - 2)
    finished_at: float | None = eg(NOW)
    phase: str = eg("saving")
    phase_done: int = eg(1)
    phase_total: int = eg(1)
    phase_detail: str = eg("")
    step: int = eg(12)
    steps: int = eg(12)
    eta_s: float | None = eg(None)
    eta_error_s: float | None = eg(None)
    position: int | None = eg(None)
    reason: str = eg("")
    reason_said: Said | None = said()
    compiles: int | None = eg(0)
    revision: str = eg("5f0c…")
    timings: dict[str, Any] = eg({"encode_s": 0.02, "denoise_s": 0.15, "step_ms": 12.5, "total_s": 0.2})
    error: Card | None = eg(None)
    outputs: list[JobOutput]
    notes: list[str] = eg(["SDXL reads 300 of the 342 word pieces of the prompt. Not read: at night"])
    notes_said: list[Said | None] | None = said()
    cancel_requested: bool = eg(False)
    programs: str = eg("256x256")
    is_placed: bool = eg(False)
    is_cleared: bool = eg(False)
    chip_seconds: float = eg(1.6)
    cost_usd: float | None = eg(None)
    title: str = eg("")


class Jobs(Answer):
    jobs: list[Job]
    last_event_id: int = eg(26)


class Cancelled(Answer):
    cancelled: int = eg(3)


class Cleared(Answer):
    cleared: int = eg(2)


class Queue(Answer):
    is_paused: bool = eg(False)
    quota: int = eg(200)


class Estimate(Answer):
    programs: str = eg("256x256")
    state: str = eg("warm")
    warm_s: float | None = eg(0.0)
    seconds: float | None = eg(0.2)


class SweepCount(Answer):
    count: int = eg(4)
    prompts: int = eg(2)
    combinations: int = eg(2)
    seeds: int = eg(2)
    images: int = eg(4)
    examples: list[str] = eg(["A red boat", "A blue boat"])
    is_plain: bool = eg(False)
    limit: int = eg(100)
    seconds: float | None = eg(11.1)


class Reading(Answer):
    """How a model reads a prompt: `count` word pieces, of which `limit` are read; `room` is what it fills now."""

    count: int = eg(342)
    room: int = eg(300)
    limit: int = eg(300)
    chunks: int = eg(4)
    unread: str = eg("a lighthouse at night")


class UnknownWords(Answer):
    """`offers` are places in the model's list of examples."""

    words: list[str] = eg(["cat", "astronaut"])
    offers: list[int] = eg([0, 4, 2])
    note: str = eg('Postcards knows no "cat", "astronaut". It can draw, say, "A red sailboat on the ocean at sunset".')
    note_said: Said | None = said()


class PromptReading(Answer):
    prompt: Reading | None
    negative_prompt: Reading | None
    unknown: UnknownWords | None
    notes: list[str] = eg(["SDXL reads 300 of the 342 word pieces of the prompt. Not read: a lighthouse at night"])
    notes_said: list[Said | None] | None = said()


class Load(Answer):
    model: str = eg("demo-sdxl")
    seconds: float | None = eg(1.9)


class Warming(Answer):
    model: str = eg("demo-sdxl")
    programs: str = eg("256x256")
    state: str = eg("disk")
    seconds: float | None = eg(0.4)


class GridPrice(Answer):
    count: int = eg(4)
    axes: dict[str, list[str]] = eg(LABELS)
    may_compile: list[str] = eg([])
    limit: int = eg(100)
    seconds: float | None = eg(1.4)
    loads: list[Load]
    warmings: list[Warming]


class GridIds(Answer):
    id: str = eg(GRID)
    ids: list[str] = eg([JOB])


class GridCell(Answer):
    job_id: str = eg(JOB)
    state: str = eg("done")
    output_id: str | None = eg(OUTPUT)


class GridState(Answer):
    id: str = eg(GRID)
    created_at: float = eg(NOW)
    ended_at: float | None = eg(None)
    axes: Axes = eg(AXES)
    labels: dict[str, list[str]] = eg(LABELS)
    recipe: Recipe = eg(RECIPE)
    states: dict[str, int] = eg({"done": 1, "queued": 3})
    cells: list[GridCell]
    output_id: str | None = eg(None)


class Grids(Answer):
    grids: list[GridState]


class Webhook(Answer):
    url: str = eg("https://example.com/lumesh")
    told_at: float | None = eg(None)
    told: str = eg("")
    told_said: Said | None = said()
    attempts: int = eg(0)


class OwnWebhook(Answer):
    webhook: Webhook | None = eg(None)


class NewWebhook(Answer):
    webhook: Webhook
    secret: str = eg("whsec_c2VjcmV0IHNlY3JldCBzZWNyZXQ=")


class Ping(Answer):
    is_taken: bool = eg(True)
    told: str = eg("it took the message")
    told_said: Said | None = said()


class WildcardCount(Answer):
    name: str = eg("animals")
    count: int = eg(2)


class Wildcards(Answer):
    wildcards: list[WildcardCount]


class Wildcard(WildcardCount):
    lines: list[str] = eg(["# of the farm", "cat", "dog"])

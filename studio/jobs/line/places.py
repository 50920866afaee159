"""Each waiting job's place in line: its number, why it is there, and how long it takes until its picture.

Every page reads its queue anew after every event, and all of them ask the same: the places are worked out once for each
event, whoever asks. Not here: the order itself (order.py), what a single job takes (estimates.py).
"""

import threading
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from weakref import WeakKeyDictionary

from pipelines.recipe import Recipe
from studio import events
from studio.database import Database
from studio.jobs.costs.estimates import estimate_job_s, read_history, read_shape_state
from studio.jobs.engine import EngineState, read_engine
from studio.jobs.job import Job
from studio.jobs.line.batch_join import Company, Share
from studio.jobs.line.order import PAUSED, Waiting, plan_turns
from studio.jobs.line.waiting_rows import find_resident, read_line
from studio.jobs.states import JobState


@dataclass(frozen=True, kw_only=True)
class Place:
    """A waiting job's place in the whole line: 1 is next. `reason` says why it waits.

    `eta_s` is how long until its picture (None: never measured, or paused); `eta_error_s` is by how much it may be
    wrong, as past estimates were; None when there were none.
    """

    position: int
    reason: str
    eta_s: float | None
    eta_error_s: float | None


@dataclass(kw_only=True)
class _Known:
    """The places as of the event `last_id`."""

    last_id: int = -1
    places: dict[str, Place] = field(default_factory=dict[str, Place])
    lock: threading.Lock = field(default_factory=threading.Lock)


_known: WeakKeyDictionary[Database, _Known] = WeakKeyDictionary()
_lock = threading.Lock()


def with_places(database: Database, jobs: list[Job]) -> list[Job]:
    """The jobs, waiting ones with their places. Not within a transaction, whose events may yet be undone."""
    if not any(job.state is JobState.QUEUED for job in jobs):
        return jobs
    places = _know_places(database)
    return [job.waiting(**vars(places[job.id])) if job.id in places else job for job in jobs]


def in_line(database: Database, job_ids: Sequence[str]) -> list[str]:
    """Those that wait, in the order in which they will run."""
    places = _know_places(database)
    return sorted((job_id for job_id in job_ids if job_id in places), key=lambda job_id: places[job_id].position)


def _know_places(database: Database) -> dict[str, Place]:
    """Whatever changes a place appends an event in its transaction, so as long as there is no new one they hold."""
    with _lock:
        known = _known.setdefault(database, _Known())
    with known.lock:
        last_id = events.read_last_id(database)  # before the places: what happens between makes them newer, not older
        if known.last_id != last_id:
            known.places = read_places(database)
            known.last_id = last_id
        return known.places


def read_places(database: Database) -> dict[str, Place]:
    """The places of everybody who waits, worked out anew, also inside a transaction of this thread.

    An eta ends at the first job in line that was never measured.
    """
    engine, history = read_engine(database), read_history(database)
    running = database.read_one("SELECT eta_s, recipe, programs FROM jobs WHERE state = ?", (JobState.RUNNING,))
    elapsed_s: float | None = 0.0
    error_s: float | None = 0.0
    ready: set[tuple[str, str]] = set()
    if running:
        now, now_programs = Recipe.model_validate_json(running["recipe"]), running["programs"]
        ready.add((now.model, now_programs))
        elapsed_s = running["eta_s"]
        if elapsed_s is None:  # it has only just begun
            state = read_shape_state(engine, history, now.model, now_programs)
            is_resident = engine.model == now.model
            elapsed_s = estimate_job_s(history, now, programs=now_programs, shape_state=state, is_resident=is_resident)
        error_s = _multiply(elapsed_s, history.estimate_error(now, now_programs))
    rows = database.read("SELECT id, owner, recipe, programs FROM jobs WHERE state = ?", (JobState.QUEUED,))
    recipes = {row["id"]: (Recipe.model_validate_json(row["recipe"]), row["programs"]) for row in rows}
    owners = {row["id"]: row["owner"] for row in rows}
    before: Counter[str] = Counter()  # jobs before, of each owner
    is_coming_up = engine.state in (EngineState.STARTING, EngineState.PREPARING, EngineState.RESTARTING)
    places: dict[str, Place] = {}
    resident = find_resident(database, engine)
    alike: dict[tuple[object, ...], tuple[float | None, float | None]] = {}  # a long line is mostly more of the same
    makes_many = engine.outputs_at_once > 1
    company = Company({job_id: Share.of(*one) for job_id, one in recipes.items()} if makes_many else {})

    def join(first: Waiting, others: Iterator[Waiting]) -> list[Waiting]:
        return company.choose(first, others, room=engine.outputs_at_once if first.model == engine.model else 0)

    turns = plan_turns(read_line(database), resident, history.load_s(resident), join=join)
    for position, turn in enumerate((turn for turn in turns if turn.job_id in recipes), start=1):
        recipe, programs = recipes[turn.job_id]
        key = (recipe.model, programs)
        state = "warm" if key in ready else read_shape_state(engine, history, *key)
        is_resident = resident == recipe.model
        kind = (*key, recipe.batch_size, recipe.denoising_steps, state, is_resident)
        if kind not in alike:
            own_s = estimate_job_s(history, recipe, programs=programs, shape_state=state, is_resident=is_resident)
            alike[kind] = own_s, _multiply(own_s, history.estimate_error(recipe, programs))
        own_s, own_error_s = alike[kind]
        owner = owners[turn.job_id]
        if first := places.get(turn.together_with or ""):
            reason = f"runs together with job {first.position} in line"
            places[turn.job_id] = replace(first, position=position, reason=reason)
            before[owner] += 1
            continue
        elapsed_s = None if turn.reason == PAUSED else _add(elapsed_s, own_s)
        error_s = None if elapsed_s is None else _add(error_s, own_error_s)
        reason = turn.reason or (engine.activity if is_coming_up else "")
        if not reason:
            reason = _say_place(before.total(), of_others=before.total() - before[owner], is_busy=running is not None)
        before[owner] += 1
        places[turn.job_id] = Place(position=position, reason=reason, eta_s=elapsed_s, eta_error_s=error_s)
        if resident != recipe.model:
            resident = recipe.model
            ready.clear()
        ready.add(key)
    return places


def _say_place(before: int, *, of_others: int, is_busy: bool) -> str:
    """Why a job waits that waits for nothing but its turn."""
    if not before:
        return "next, when the running job ends" if is_busy else "next"
    jobs = "job" if before == 1 else "jobs"
    if of_others == before:
        return f"{before} {jobs} of others before it"
    return f"{before} {jobs} before it, {of_others} of others'" if of_others else f"{before} {jobs} before it"


def _add(one: float | None, other: float | None) -> float | None:
    """What is unknown stays unknown."""
    return None if one is None or other is None else one + other


def _multiply(one: float | None, other: float | None) -> float | None:
    return None if one is None or other is None else round(one * other, 2)

"""The machine over REST: devices and memory, versions, disk, caches, the worker's log, cost, and plans for other chips.

All routes are for operators (`Operator`), except each owner's own cost.
Not here: measuring (worker/gauges.py), making plans (plans.py).
"""

from collections.abc import Mapping, Sequence
from functools import cache
from importlib import metadata
from platform import python_version
from shutil import disk_usage
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Query, Response
from pydantic import BaseModel, ConfigDict, Field

from pipelines.errors import LumeshError, ModelError, RecipeError
from pipelines.mesh_text import asks_for_many
from pipelines.messages import NOTHING, Message, add_codes, join, say
from pipelines.models.catalog import Model
from pipelines.plan.topologies import TOPOLOGIES
from pipelines.runtime.kernels import switches
from studio import VERSION
from studio.api.answers import system as system_answers
from studio.api.visitor import Visitor, only_operators
from studio.jobs import trainings, workers
from studio.jobs.costs import cost
from studio.jobs.costs.offers import describe_models
from studio.library import training_room
from studio.library.folders import empty_folder, measure_folder, measure_parts
from studio.library.logs import read_tail
from studio.services.plans import DEFAULT_TOPOLOGY, MODES, Question, suggest_topology
from studio.settings import Settings
from studio.visit import Visit

router = APIRouter(prefix="/system", tags=["system"])

PACKAGES = ("jax", "jaxlib", "libtpu", "torch", "torchax", "diffusers", "transformers", "huggingface_hub", "gradio")
MAX_LINES = 2000
MIXED = "mixed"


Operator = Annotated[Visit, only_operators(say("Only admins see the machine."))]


class CompilingError(LumeshError):
    """The cache is in use by a compilation."""

    title = say("A program is being compiled")
    status = 409


class LoadingError(LumeshError):
    """The weights are in use by a model that is loading."""

    title = say("A model is being loaded")
    status = 409


class TrainingError(LumeshError):
    """A training reads what would be deleted."""

    title = say("A training runs")
    status = 409


class Clear(BaseModel):
    """The cache to clear: compiled `programs`, the compiler's answers for `plans`, or `layouts` of weights on the mesh.

    `trainings` are what ended trainings would go on from, and what models read of training pictures. `anyway`: clear it
    even during a compilation.
    """

    model_config = ConfigDict(extra="forbid")

    what: Literal["programs", "plans", "layouts", "trainings"] = "programs"
    anyway: bool = False


class Wanted(BaseModel):
    """A plan to make; null stands for the model's default shape, and for this hardware if it is a TPU (else a v6e-8).

    On this hardware, a `mode` of null is the worker's (`--mesh`), and so is the mesh.
    """

    model_config = ConfigDict(
        extra="forbid", json_schema_extra={"examples": [{"model": "flux2-dev", "topology": "v6e-8"}]}
    )

    model: str
    topology: Annotated[str | None, Field(description="a name of GET /api/v1/system/topologies")] = None
    shape: str | None = None
    mode: Literal["latency", "throughput"] | None = None


@router.get("", response_model=system_answers.System)
def get_system(operator: Operator) -> dict[str, Any]:
    """Describes the machine and its current state.

    `engine` is the worker; `machine` its devices with their memory in bytes, host memory, mesh and chips, measured
    every two seconds; `models` have their shapes as `warm`, `disk` or `cold`, and `unusable` says why what else is in
    `models/` of the data directory is no model. `kernels` says what the doctor found of ours, "" where it did not look,
    and `weights` how models' weights lie on the devices: `full`, `int8`, `w8a8`, or `mixed` where not all are alike.
    """
    worker, catalog = workers.read_worker(operator.database), operator.studio.catalog
    return {
        "engine": worker.to_engine_json(),
        "machine": worker.to_machine_json(),
        "models": [
            {
                "id": model["id"],
                "title": model["title"],
                "is_resident": model["is_resident"],
                "load_s": model["load_s"],
                "shapes": [{name: shape[name] for name in ("shape", "state", "warm_s")} for shape in model["shapes"]],
            }
            for model in describe_models(catalog, operator.database)
        ],
        "unusable": [add_codes(vars(one)) for one in catalog.unusable],
        "versions": read_versions(),
        **add_codes({"kernels": describe_kernels(operator.studio.settings, worker.devices)}),
        "weights": _find_weights(catalog.models),
        "data_dir": str(operator.studio.settings.data_dir),
        "worker_log": str(operator.studio.settings.worker_log),
    }


@router.get("/disk", response_model=system_answers.Disk)
def get_disk(operator: Operator) -> dict[str, Any]:
    """Lists each part of the data directory in bytes and files, and the free space on its disk."""
    settings = operator.studio.settings
    whole = disk_usage(settings.data_dir)
    return {
        "parts": [part.to_json() for part in measure_parts(settings)],
        "free_bytes": whole.free,
        "total_bytes": whole.total,
    }


@router.get("/cache", response_model=system_answers.Caches)
def get_cache(operator: Operator) -> dict[str, Any]:
    """Lists the caches: compiled programs, answers for plans, sharded weights, and what clearing frees of trainings.

    Each has its bytes and files, and whether something is being compiled for it.
    """
    settings = operator.studio.settings
    programs, said = measure_folder(settings.cache_dir), measure_folder(settings.data_dir / "cache" / "plan")
    kept, layouts = measure_folder(settings.plans_dir), measure_folder(settings.layouts_dir)
    ended = training_room.measure_ended(operator.database, settings.training_dir)
    read = measure_folder(settings.training_cache_dir)
    return {
        "programs": {
            "bytes": programs[0],
            "files": programs[1],
            "is_compiling": workers.is_compiling(operator.database),
        },
        "plans": {
            "bytes": said[0] + kept[0],
            "files": said[1] + kept[1],
            "is_compiling": operator.studio.planner.is_running,
        },
        "layouts": {"bytes": layouts[0], "files": layouts[1], "is_compiling": False},
        "trainings": {"bytes": ended[0] + read[0], "files": ended[1] + read[1], "is_compiling": False},
    }


@router.post("/cache/clear", response_model=system_answers.ClearedCache)
def clear_cache(clear: Clear, operator: Operator) -> dict[str, Any]:
    """Clears a cache. What is in memory stays; everything else is compiled or read anew when it is next needed.

    During a compilation for it the answer is 409, unless `anyway` is true; then `was_compiling` says so.
    Layouts are never deleted while a model is being loaded: 409. Nor is what trainings read while one runs. Cancelled,
    failed and interrupted trainings would begin anew; paused ones are not touched.
    """
    settings, planner = operator.studio.settings, operator.studio.planner
    is_of_programs = clear.what == "programs"
    folders, was_compiling = {
        "programs": ([settings.cache_dir], is_of_programs and workers.is_compiling(operator.database)),
        "plans": ([settings.data_dir / "cache" / "plan", settings.plans_dir], planner.is_running),
        "layouts": ([settings.layouts_dir], False),
        "trainings": ([settings.training_cache_dir], False),
    }[clear.what]
    if clear.what == "layouts" and workers.is_loading(operator.database):
        raise LoadingError(say("It may be reading what would be deleted."), advice=say("Try again when it is loaded."))
    if clear.what == "trainings" and trainings.is_any_running(operator.database):
        raise TrainingError(say("It may be reading what would be deleted."), advice=say("Try again when it has ended."))
    if was_compiling and not clear.anyway:
        raise CompilingError(
            say("Clearing now may lose what it is about to keep."),
            advice=say("Wait until it is done, or clear anyway (`anyway`: true)."),
        )
    freed = [empty_folder(folder) for folder in folders]
    if clear.what == "trainings":
        freed.append(training_room.free_ended(operator.database, settings.training_dir))
    if is_of_programs:
        with operator.database.write() as tx:
            workers.forget_disk(tx)
    operator.note("cache.cleared", cache=clear.what)
    return {
        "bytes": sum(size for size, _ in freed),
        "files": sum(count for _, count in freed),
        "was_compiling": was_compiling,
    }


@router.get("/log", response_model=system_answers.Log)
def get_log(operator: Operator, lines: Annotated[int, Query(ge=1, le=MAX_LINES)] = 200) -> dict[str, list[str]]:
    """Returns the end of the worker's log, without tokens, passwords in addresses and other secrets."""
    settings = operator.studio.settings
    secrets = [settings.text_encoder_token] if settings.text_encoder_token else []
    return {"lines": read_tail(settings.worker_log, lines=lines, secrets=secrets)}


@router.get("/usage", response_model=system_answers.Usage)
def get_usage(visit: Visitor) -> dict[str, Any]:
    """Returns the cost of jobs so far: `mine`, and that of all `owners` you may see.

    A job costs the seconds from its start to its end, times the chips of the machine, however it ends; `cost_usd` is
    null without a price (`chip_price`, in dollars per chip and hour).
    """
    totals = cost.add_up(visit.database)
    mine = next((one for one in totals if one.owner == visit.owner), None)
    nothing = cost.Usage(owner=visit.owner, jobs=0, chip_seconds=0.0, cost_usd=None)
    return {
        "mine": vars(mine or nothing),
        "owners": [vars(one) for one in totals if visit.may_see(one.owner)],
        "chip_price": workers.read_worker(visit.database).chip_price,
    }


@router.get("/topologies", response_model=system_answers.Topologies)
def list_topologies(operator: Operator) -> dict[str, Any]:
    """Lists the machines that a plan can be made for, and which of them is this one (`here`; null: none of them).

    `here_mode` and `here_mesh` (null: automatic) are the worker's settings. The models of `remote_text_encoders` have
    their text encoder on another machine; plans include it all the same.
    """
    found = workers.read_worker(operator.database)
    settings = operator.studio.settings
    here = suggest_topology(found.devices, chips=found.chips)
    return {
        "topologies": [
            {"name": one.name, "title": one.title, "chips": one.chips, "is_tpu": one.chip is not None}
            for one in TOPOLOGIES.values()
        ],
        "modes": list(MODES),
        "here": here.name if here else None,
        "default": here.name if here and here.chip else DEFAULT_TOPOLOGY,
        "here_mode": "throughput" if asks_for_many(settings.mesh) else "latency",
        "here_mesh": None if asks_for_many(settings.mesh) else settings.mesh,
        "remote_text_encoders": [
            model.id for model in operator.studio.catalog.models if settings.find_text_encoder(model) is not None
        ],
    }


@router.get("/plan", response_model=system_answers.Plan)
def get_plan(operator: Operator, wanted: Annotated[Wanted, Query()]) -> dict[str, Any]:
    """Returns the plan for this model, shape and topology in its current state; starts nothing.

    `state` is `done` (see `plan`: the object that `python -m pipelines plan --json` prints, estimated by the TPU
    compiler), `running` (see `progress`), `failed` (see `error`), `cancelled` or `unknown`; `shipped` is a `plan` that
    came with Lumesh, in which the bytes of weights include those of inputs. `other` is another plan that is being made.
    """
    question = _read_question(wanted, operator)
    planner = operator.studio.planner
    run, last = planner.find(question), planner.last
    other = last if last and planner.is_running and last.question != question else None
    found = run.to_json() if run else {**question.to_json(), "state": "unknown", "plan": None}
    return {**found, "other": other.question.to_json() if other else None}


@router.post("/plan", response_model=system_answers.PlanRun)
def make_plan(wanted: Wanted, operator: Operator, response: Response) -> dict[str, Any]:
    """Makes a plan in a process of its own: 200 with a cached one, 202 while it is made.

    `GET /api/v1/system/plan` reports the progress; large models take minutes the first time. 409 while another one is
    being made.
    """
    run = operator.studio.planner.ask(_read_question(wanted, operator))
    response.status_code = 202 if run.state == "running" else 200
    return run.to_json()


@router.delete("/plan", response_model=system_answers.CancelledPlan)
def cancel_plan(operator: Operator) -> dict[str, Any]:
    """Cancels the plan that is being made, if any. The compiler's answers so far are kept for the next try."""
    operator.studio.planner.cancel()
    last = operator.studio.planner.last
    return {"plan": last.to_json() if last else None}


def _find_weights(models: Sequence[Model]) -> str:
    """Returns how the weights of these models lie on the devices, `mixed` if not all alike."""
    kinds = {model.weights for model in models}
    return kinds.pop() if len(kinds) == 1 else MIXED


def describe_kernels(settings: Settings, devices: Sequence[Mapping[str, Any]]) -> Message:
    """Returns which of our kernels are off on these devices, and why; "" where nobody checked or chose any."""
    if settings.kernels is not None:
        return say("chosen with --kernels {choice}", choice=settings.kernels)
    file = switches.find_file(settings.cache_dir)
    kind = devices[0]["kind"] if devices else ""
    checked = switches.find(file, versions=switches.list_versions(), kind=kind)
    if checked is None:
        return NOTHING
    bad = [
        say("{check}: {verdict}", check=name, verdict=found.describe())
        for name, found in checked.checks.items()
        if found.is_bad
    ]
    passed = sum(found.verdict == "right" for found in checked.checks.values())
    if not bad and passed < len(checked.checks):
        left = len(checked.checks) - passed
        return say("{count} checks passed, there was no time for {left}", count=passed, left=left)
    if not bad:
        return say("all {count} checks passed", count=passed)
    return say("off: {names} ({reasons})", names=", ".join(checked.off) or "-", reasons=join(bad, ";"))


@cache
def read_versions() -> dict[str, str]:
    """Returns the versions of Lumesh and of the packages that its pictures depend on; missing ones are left out."""
    found = {"lumesh": VERSION, "python": python_version()}
    for package in PACKAGES:
        try:
            found[package] = metadata.version(package)
        except metadata.PackageNotFoundError:  # libtpu on a machine without a TPU
            continue
    return found


def _read_question(wanted: Wanted, operator: Visit) -> Question:
    """Converts the request to a question for the planner; raises RecipeError for values not in the catalogue."""
    try:
        model: Model = operator.studio.catalog.get(wanted.model)
    except ModelError as error:
        raise RecipeError({"model": error.whole}) from error
    shape = wanted.shape or str(model.default_shape)
    if shape not in map(str, model.shapes):
        raise RecipeError(
            {
                "shape": say(
                    "{shape} is not a shape of {model}; allowed: {shapes}",
                    shape=shape,
                    model=model.id,
                    shapes=model.shape_list(),
                )
            }
        )
    machines = list_topologies(operator)
    topology = wanted.topology or machines["default"]
    if topology not in TOPOLOGIES:
        raise RecipeError(
            {"topology": say("there is no {name}; allowed: {names}", name=repr(topology), names=", ".join(TOPOLOGIES))}
        )
    here_mode = machines["here_mode"] if topology == machines["here"] else None
    mode = wanted.mode or here_mode or MODES[0]
    mesh = machines["here_mesh"] if mode == here_mode else None
    return Question.of(model, shape=shape, topology=topology, mode=mode, mesh=mesh)

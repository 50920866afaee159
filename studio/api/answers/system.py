"""Response models of the studio itself: the visitor, health, models, the machine, plans; and of OpenAI's routes."""

from typing import Any

from studio.api.answers.answer import Answer, Said, eg, said
from studio.api.answers.jobs import NOW, OUTPUT, Card
from studio.jobs.workers import WorkerState

GIB = 2**30
SWAP = {"model": "sdxl-base", "previous": "demo-sdxl", "unload_s": 0.3, "load_s": 2.2, "total_s": 24.9}
DEVICE = {"name": "TPU v6 lite 0", "used_bytes": 6 * GIB, "limit_bytes": 31 * GIB, "peak_bytes": 9 * GIB}


class Me(Answer):
    owner: str = eg("local")
    name: str = eg("local")
    is_known: bool = eg(False)
    is_admin: bool = eg(False)
    is_operator: bool = eg(True)
    may_train: bool = eg(True)
    sees_everyone: bool = eg(False)
    can_log_out: bool = eg(False)
    has_account: bool = eg(False)
    is_ephemeral: bool = eg(False)


class Engine(Answer):
    """The worker's activity; `shapes` are the resident model's, `swap` is the last model switch."""

    state: WorkerState = eg("ready")
    activity: str = eg("ready")
    activity_said: Said | None = said()
    pid: int | None = eg(4711)
    device: str = eg("TPU v6e, 8 chips")
    device_said: Said | None = said()
    model: str = eg("demo-sdxl")
    shapes: dict[str, str] = eg({"256x256": "warm", "320x192": "disk"})
    phase: str = eg("")
    phase_done: int = eg(0)
    phase_total: int = eg(0)
    error: Card | None = eg(None)
    heartbeat_at: float = eg(NOW)
    outputs_at_once: int = eg(1)
    swap: dict[str, Any] | None = eg(SWAP)


class Health(Answer):
    """`engine` is the activity of `worker`, the first of the `workers`, which are counted by their state."""

    status: str = eg("ok")
    problems: list[Card] = eg([])
    engine: Engine
    worker: str = eg("local")
    workers: dict[str, int] = eg({"busy": 1, "ready": 2})
    jobs: dict[str, int] = eg(
        {"queued": 1, "running": 0, "done": 1, "failed": 1, "cancelled": 0, "interrupted": 0, "paused": 0}
    )
    last_event_id: int = eg(26)


class Defaults(Answer):
    shape: str = eg("256x256")
    negative_prompt: str = eg("")
    steps: int = eg(12)
    guidance_scale: float = eg(4.0)
    guidance_scale_2: float | None = eg(None)
    scheduler: str = eg("euler")
    flow_shift: float | None = eg(None)
    fps: int | None = eg(None)
    strength: float | None = eg(0.6)


class Limits(Answer):
    steps: int = eg(100)
    useful_steps: int = eg(40)
    guidance_scale: float = eg(20.0)
    guidance_scale_2: float = eg(20.0)
    batch_size: int = eg(8)
    min_images: int = eg(0)
    images: int = eg(1)
    flow_shift: float = eg(20)
    fps: int = eg(60)
    strength: float = eg(1)


class Variant(Answer):
    """Programs of a shape for several outputs at once, or with the other guidance, that are warm or on disk."""

    batch_size: int = eg(4)
    is_guided: bool = eg(True)
    state: str = eg("disk")
    warm_s: float | None = eg(1.2)
    seconds: float | None = eg(2.1)


class Shape(Answer):
    """A size; `state` and the seconds are of one output with the model's own guidance, `variants` of other programs."""

    shape: str = eg("256x256")
    width: int = eg(256)
    height: int = eg(256)
    frames: int = eg(1)
    flow_shift: float | None = eg(None)
    state: str = eg("warm")
    warm_s: float | None = eg(0.0)
    step_s: float | None = eg(0.0125)
    seconds: float | None = eg(0.2)
    variants: list[Variant]


class Example(Answer):
    prompt: str = eg("A red sailboat on the ocean at sunset")
    seed: int | None = eg(7)
    picture_url: str | None = eg("/api/v1/models/demo-sdxl/examples/0/picture")


class Model(Answer):
    id: str = eg("demo-sdxl")
    title: str = eg("Postcards (demo, SDXL layout)")
    family: str = eg("sdxl")
    family_title: str = eg("SDXL")
    description: str = eg("A tiny SDXL trained by Lumesh's own trainer on pictures it draws itself.")
    knows: str = eg("Times (sunrise, noon, sunset, night), places, subjects, colours.")
    licence: str = eg("Apache-2.0")
    examples: list[Example]
    is_demo: bool = eg(True)
    weights: str = eg("full")
    """How the large matrices lie on the chips: `full` as they compute, `int8` or `w8a8` (`--weights`)."""
    has_references: bool = eg(False)
    is_resident: bool = eg(True)
    load_s: float | None = eg(1.9)
    defaults: Defaults
    limits: Limits
    schedulers: list[str] = eg(["euler", "euler_ancestral", "dpmpp_2m", "ddim"])
    take_sigmas: tuple[str, ...] = eg(("euler", "er_sde"))
    step_cache: dict[str, float] | None = eg({"mild": 0.5, "strong": 0.36, "taylor": 0.4})
    """Strength -> share of the default steps that it computes; null for a model without a step cache."""
    shapes: list[Shape]
    is_here: bool = eg(True)


class UnusableModel(Answer):
    """Something in models/ of the data directory, or an entry of its models.toml, that is no model here."""

    name: str = eg("author/my-model")
    reason: str = eg("Its model_index.json is not there.")
    reason_said: Said | None = said()
    advice: str = eg("Wait if its download is under way; else copy the whole folder.")
    advice_said: Said | None = said()


class Models(Answer):
    """`default` is the model that a new visitor's page opens with; null until the worker knows its devices."""

    models: list[Model]
    default: str | None = eg("demo-flux2")
    unusable: list[UnusableModel]


class Download(Answer):
    """`bytes` is null where the hub does not tell."""

    bytes: int | None = eg(6_938_000_000)
    free_bytes: int = eg(412_000_000_000)


class Machine(Answer):
    chips: int = eg(8)
    chip_price: float | None = eg(2.7)
    mesh: str = eg("dp=2,sp=4")
    devices: list[dict[str, Any]] = eg([DEVICE])
    host: dict[str, int] = eg({"total_bytes": 708 * GIB, "available_bytes": 650 * GIB, "worker_bytes": 14 * GIB})
    compiling: int = eg(0)
    measured_at: float = eg(NOW)
    cache_cleared_at: float = eg(0.0)


class ShapeState(Answer):
    shape: str = eg("256x256")
    state: str = eg("warm")
    warm_s: float | None = eg(0.0)


class SystemModel(Answer):
    id: str = eg("sdxl-base")
    title: str = eg("Stable Diffusion XL 1.0")
    is_resident: bool = eg(True)
    load_s: float | None = eg(21.4)
    shapes: list[ShapeState]


class System(Answer):
    engine: Engine
    machine: Machine
    models: list[SystemModel]
    unusable: list[UnusableModel]
    versions: dict[str, str] = eg({"lumesh": "1.0", "jax": "0.11.0", "libtpu": "0.0.42"})
    kernels: str = eg("all 16 checks passed")
    kernels_said: Said | None = said()
    weights: str = eg("full")
    data_dir: str = eg("/home/me/lumesh")
    worker_log: str = eg("/home/me/lumesh/logs/worker.log")


class DiskPart(Answer):
    name: str = eg("outputs")
    holds: str = eg("pictures and videos")
    path: str = eg("/home/me/lumesh/outputs")
    bytes: int = eg(48_211_034)
    files: int = eg(212)


class Disk(Answer):
    parts: list[DiskPart]
    free_bytes: int = eg(67_907_006_464)
    total_bytes: int = eg(270_553_174_016)


class Cache(Answer):
    bytes: int = eg(412_000_000)
    files: int = eg(61)
    is_compiling: bool = eg(False)


class Caches(Answer):
    programs: Cache
    plans: Cache
    layouts: Cache
    trainings: Cache


class ClearedCache(Answer):
    bytes: int = eg(1_204_311)
    files: int = eg(9)
    was_compiling: bool = eg(False)


class Log(Answer):
    lines: list[str] = eg(["2026-11-22 06:25:20 job 5b6250a4b9 ended after 0.21 s"])


class OwnerUsage(Answer):
    owner: str = eg("local")
    jobs: int = eg(52)
    chip_seconds: float = eg(1210.4)
    cost_usd: float | None = eg(0.91)


class Usage(Answer):
    mine: OwnerUsage
    owners: list[OwnerUsage]
    chip_price: float | None = eg(2.7)


class Topology(Answer):
    name: str = eg("v6e-8")
    title: str = eg("8 chips TPU v6e")
    chips: int = eg(8)
    is_tpu: bool = eg(True)


class Topologies(Answer):
    topologies: list[Topology]
    modes: list[str] = eg(["latency", "throughput"])
    here: str | None = eg("v6e-8")
    default: str = eg("v6e-8")
    here_mode: str = eg("latency")
    here_mesh: str | None = eg("dp=2,sp=4")
    remote_text_encoders: list[str] = eg([])


class PlanQuestion(Answer):
    model: str = eg("flux2-dev")
    shape: str = eg("1024x1024")
    topology: str = eg("v6e-8")
    mode: str = eg("latency")
    mesh: str | None = eg("dp=2,sp=4")
    weights: str = eg("full")


class PlanProgress(Answer):
    phase: str = eg("compiling flux2-dev denoise")
    done: int = eg(1)
    total: int = eg(4)
    elapsed_s: float | None = eg(38.2)


class PlanRun(PlanQuestion):
    """A running or ended plan; `plan` is the output of `python -m pipelines plan --json`."""

    state: str = eg("running")
    progress: PlanProgress
    plan: dict[str, Any] | None = eg(None)
    error: str = eg("")
    error_said: Said | None = said()


class Plan(PlanQuestion):
    """`progress` and `error` are left out of a plan that is `unknown`; `other` is another plan that is being made."""

    state: str = eg("running")
    progress: PlanProgress | None = eg(
        {"phase": "compiling flux2-dev denoise", "done": 1, "total": 4, "elapsed_s": 38.2},
        default=None,
        exclude_if=lambda progress: progress is None,
    )
    plan: dict[str, Any] | None = eg(None)
    error: str | None = eg("", default=None, exclude_if=lambda error: error is None)
    error_said: Said | None = said()
    other: PlanQuestion | None = eg(None)


class CancelledPlan(Answer):
    plan: PlanRun | None = eg(None)


class OpenAiModel(Answer):
    id: str = eg("demo-sdxl")
    object: str = eg("model")
    created: int = eg(0)
    owned_by: str = eg("lumesh")


class OpenAiModels(Answer):
    object: str = eg("list")
    data: list[OpenAiModel]


class OpenAiPicture(Answer):
    """A picture as its URL, as base64, or both, as requested."""

    id: str = eg(OUTPUT)
    seed: int = eg(7)
    url: str | None = eg(
        f"http://localhost:7860/api/v1/outputs/{OUTPUT}/file", default=None, exclude_if=lambda url: url is None
    )
    b64_json: str | None = eg(None, default=None, exclude_if=lambda content: content is None)


class OpenAiPictures(Answer):
    created: int = eg(1795325528)
    model: str = eg("demo-sdxl")
    size: str = eg("256x256")
    output_format: str = eg("png")
    background: str = eg("opaque")
    notes: list[str] = eg([])
    data: list[OpenAiPicture]

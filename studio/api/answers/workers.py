"""Response models of the workers."""

from studio.api.answers.answer import Answer, eg
from studio.api.answers.jobs import JOB, NOW
from studio.api.answers.system import Engine, Machine


class WorkersJob(Answer):
    """A job as its worker's row shows it."""

    id: str = eg(JOB)
    kind: str = eg("generate")
    owner: str = eg("local")
    model: str = eg("demo-sdxl")
    phase: str = eg("denoising")
    step: int = eg(5)
    steps: int = eg(12)
    eta_s: float | None = eg(0.1)


class Worker(Answer):
    """A worker; `node` is the address of its machine, empty for the studio's own; a slice has several `hosts`."""

    id: str = eg("gpu-host")
    node: str = eg("10.0.0.7")
    hosts: int = eg(1)
    is_alive: bool = eg(True)
    is_draining: bool = eg(False)
    is_pinned: bool = eg(False)
    model_since: float = eg(NOW - 600)
    jobs: list[WorkersJob]
    engine: Engine
    machine: Machine


class Workers(Answer):
    """All workers; `engine` is that of the studio (`local` or `ray`), `join` the address that machines join."""

    workers: list[Worker]
    engine: str = eg("ray")
    join: str | None = eg("10.0.0.2:6379")

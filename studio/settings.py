"""Every setting of the studio, and where its data directory keeps what; flags.py reads them.

The app and the worker accept the same flags, so the app starts the worker by passing its own settings on.
"""

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from pipelines.models.catalog import Model
from pipelines.runtime.weights.hub_pins import PINS_FILE
from pipelines.runtime.weights.hub_token import TOKEN_FILE
from studio.access_settings import USERS_FILE, AccessSettings
from studio.ray_ports import Ports

QUEUE_QUOTA = 200  # jobs of one owner that may wait at a time
LOCAL = "local"  # the id of this machine's first worker; further ones are local-2, local-3, ...
RAY_PORT = 6379  # Ray's own default
FINISH_S = 8  # Docker kills after 10


@dataclass(frozen=True, kw_only=True)
class Settings:
    """The settings of a studio. `model` is loaded while idle; None means the one that suits the devices.

    `packs` are files or folders with compiled programs, in addition to packs/ in the data directory; `profile` is the
    folder for a trace of one job.
    `prewarm` lists shapes to compile while idle: `512x512`, `512x512+2` (with two input pictures), `512x512*4` (four
    outputs at once), `all`, `all+1*2`, `demo-sdxl:256x256*4` (for that model only).
    `text_encoder_urls` maps a model's id, or a family for all of its models, to its text encoder server.
    `chip_price` is the price of a chip per hour in US dollars.
    `weights` is how all models' weights lie on the devices (pipelines/models/model.py); None leaves each its own.
    `kernels` names those of our kernels that are used, whatever the doctor found (runtime/kernels/switches.py).
    Tokens are secrets, so they come only from the environment: the list of processes does not show it.
    """

    host: str
    port: int
    data_dir: Path
    model: str | None = None
    mesh: str | None = None
    fake: bool = False
    kernels: str | None = None
    doctor: str = "auto"
    """Whether the worker checks its devices before it opens them: accelerators that it has not seen, all, or none."""
    weights: str | None = None
    verify_weights: bool = False
    keep_layouts: bool = False
    allow_cpu: bool = False
    prewarm: tuple[str, ...] = ()
    packs: tuple[Path, ...] = ()
    profile: Path | None = None
    text_encoder_urls: Mapping[str, str] = field(default_factory=dict[str, str])
    text_encoder_token: str | None = field(default=None, repr=False)
    engine: str = "local"
    workers: int = 1
    """The number of worker processes of this machine, among which its devices are divided."""
    ray_address: str | None = None
    """The Ray cluster to use; None: one that the studio starts."""
    ray_host: str | None = None
    """The address of this machine that other machines reach it by; None: the one that Ray finds."""
    ray_port: int = RAY_PORT
    ray_ports: Ports | None = None
    """The range of all other ports of Ray's processes on this machine; None: the system chooses."""
    outputs: Path | None = None
    trainings: Path | None = None
    queue_quota: int = QUEUE_QUOTA
    openai_exact_models: bool = False
    allow_private_webhooks: bool = False
    allow_private_downloads: bool = False
    civitai_token: str | None = field(default=None, repr=False)
    max_disk_bytes: int | None = None
    finish_s: float = FINISH_S
    is_ephemeral: bool = False
    """True on a Space without storage, whose disk is empty after each restart."""
    chip_price: float | None = None
    access: AccessSettings = field(default_factory=AccessSettings)

    @property
    def database_file(self) -> Path:
        return self.data_dir / "jobs.db"

    @property
    def outputs_dir(self) -> Path:
        """The folder of what was made; a worker on another machine has one of its own, for what is on its way."""
        return self.outputs or self.data_dir / "outputs"

    @property
    def uploads_dir(self) -> Path:
        return self.data_dir / "uploads"

    @property
    def presets_dir(self) -> Path:
        return self.data_dir / "presets"

    @property
    def wildcards_dir(self) -> Path:
        return self.data_dir / "wildcards"

    @property
    def models_dir(self) -> Path:
        return self.data_dir / "models"

    @property
    def loras_dir(self) -> Path:
        return self.data_dir / "loras"

    @property
    def hub_token_file(self) -> Path:
        """The token for gated models that an admin entered."""
        return self.data_dir / TOKEN_FILE

    @property
    def hub_pins_file(self) -> Path:
        return self.data_dir / PINS_FILE

    @property
    def default_model_file(self) -> Path:
        """The id of the model that an admin chose to start with."""
        return self.data_dir / "default-model"

    @property
    def training_dir(self) -> Path:
        """The folder of trainings' states, samples and, while they run, pictures: a folder for each job.

        A worker of a cluster has one of its own.
        """
        return self.trainings or self.data_dir / "training"

    @property
    def training_cache_dir(self) -> Path:
        """The folder for what a model reads of pictures and captions, by their content."""
        return self.data_dir / "cache" / "training"

    @property
    def cache_dir(self) -> Path:
        return self.data_dir / "cache" / "jax"

    @property
    def layouts_dir(self) -> Path:
        """The folder for the worker's copies of weights, sharded for the mesh, with `keep_layouts`."""
        return self.data_dir / "cache" / "layouts"

    @property
    def pack_paths(self) -> tuple[Path, ...]:
        """The files and folders that may hold compiled programs."""
        folder = self.data_dir / "packs"
        return (*self.packs, folder) if folder.is_dir() else self.packs

    @property
    def plans_dir(self) -> Path:
        """The folder for finished plans, as the System page shows them; compilers' answers are in cache/plan."""
        return self.data_dir / "cache" / "plans"

    @property
    def ray_token_file(self) -> Path:
        """The secret that machines of the cluster share: who holds it can run anything on all of them."""
        return self.data_dir / "ray.token"

    @property
    def ray_head_file(self) -> Path:
        """Where the cluster is that the studio started, and its process."""
        return self.data_dir / "ray.json"

    @property
    def ray_studio_file(self) -> Path:
        """The id of this studio on a cluster that it may share with others."""
        return self.data_dir / "ray.studio"

    def read_ray_address(self) -> str | None:
        """Reads the address that machines join; None while the studio's own cluster is not there."""
        if self.ray_address is not None:
            return self.ray_address
        try:
            return json.loads(self.ray_head_file.read_text("utf-8"))["address"]
        except (OSError, ValueError, KeyError):
            return None

    @property
    def dispatcher_lock(self) -> Path:
        return self.data_dir / "worker-dispatcher.lock"

    @property
    def dispatcher_log(self) -> Path:
        return self.data_dir / "logs" / "dispatcher.log"

    @property
    def dispatcher_error_file(self) -> Path:
        """Why the last dispatcher could not start, as a card."""
        return self.data_dir / "logs" / "dispatcher-error.json"

    @property
    def worker_log(self) -> Path:
        """The log of this machine's first worker."""
        return self.find_log(LOCAL)

    def find_log(self, worker: str) -> Path:
        """Returns the log of one of this machine's workers."""
        return self.data_dir / "logs" / f"worker{_suffix(worker)}.log"

    @property
    def audit_log(self) -> Path:
        return self.data_dir / "logs" / "audit.jsonl"

    @property
    def users_file(self) -> Path:
        return self.data_dir / USERS_FILE

    @property
    def secret_file(self) -> Path:
        return self.data_dir / "secret.key"

    @property
    def app_lock(self) -> Path:
        return self.data_dir / "app.lock"

    def find_worker_lock(self, worker: str) -> Path:
        """Returns the lock that one of this machine's workers holds while it runs."""
        return self.data_dir / f"worker{_suffix(worker)}.lock"

    def list_worker_locks(self) -> list[Path]:
        """Lists the locks of this machine's workers, those of earlier runs too."""
        return sorted({self.find_worker_lock(LOCAL), *self.data_dir.glob("worker*.lock")})

    @property
    def local_workers(self) -> tuple[str, ...]:
        """The ids of this machine's workers."""
        return tuple(LOCAL if number == 1 else f"{LOCAL}-{number}" for number in range(1, self.workers + 1))

    @property
    def private_paths(self) -> tuple[Path, ...]:
        """Files and folders that hold prompts, pictures or secrets: no other account of the machine may read them."""
        database = (self.database_file.with_name(f"{self.database_file.name}{end}") for end in ("", "-wal", "-shm"))
        folders = (self.outputs_dir, self.uploads_dir, self.presets_dir, self.training_dir, self.worker_log.parent)
        return (*database, *folders, self.data_dir / "copies", self.users_file, self.secret_file, self.ray_token_file)

    def find_text_encoder(self, model: Model) -> str | None:
        """Returns the URL of this model's text encoder server; None when it runs its own text encoder."""
        return self.text_encoder_urls.get(model.id) or self.text_encoder_urls.get(model.family)

    def worker_flags(self) -> list[str]:
        """Returns the flags that give the worker process these settings, but for `worker_environment`."""
        flags = ["--data-dir", str(self.data_dir)]
        for name, value in (("--model", self.model), ("--mesh", self.mesh), ("--chip-price", self.chip_price)):
            if value is not None:
                flags += [name, str(value)]
        flags += [] if self.weights is None else ["--weights", self.weights]
        for name, value in (("--kernels", self.kernels), ("--doctor", self.doctor if self.doctor != "auto" else None)):
            flags += [] if value is None else [name, value]
        if self.packs:
            flags += ["--pack", os.pathsep.join(map(str, self.packs))]
        if self.profile is not None:
            flags += ["--profile", str(self.profile)]
        if self.prewarm:
            flags += ["--prewarm", ",".join(self.prewarm)]
        if self.access.image_hook is not None:
            flags += ["--image-hook", self.access.image_hook]
        flags += ["--verify-weights"] if self.verify_weights else []
        flags += ["--keep-layouts"] if self.keep_layouts else []
        flags += ["--allow-cpu"] if self.allow_cpu else []
        return [*flags, "--fake"] if self.fake else flags

    def cluster_flags(self) -> list[str]:
        """Returns the flags that give the dispatcher what workers do not need."""
        flags = ["--engine", self.engine, "--workers", str(self.workers), "--ray-port", str(self.ray_port)]
        flags += ["--ray-address", self.ray_address] if self.ray_address else []
        flags += ["--ray-ports", str(self.ray_ports)] if self.ray_ports else []
        return flags + (["--ray-host", self.ray_host] if self.ray_host else [])

    def worker_environment(self, environment: Mapping[str, str]) -> dict[str, str]:
        """Returns the worker's environment: what may hold a password is not for the list of processes."""
        urls = ",".join(f"{name}={url}" for name, url in self.text_encoder_urls.items())
        return {**environment, "LUMESH_TEXT_ENCODER_URL": urls}


def _suffix(worker: str) -> str:
    """Returns what distinguishes the files of a worker that is not the first one."""
    return worker.removeprefix(LOCAL) if worker.startswith(LOCAL) else f"-{worker}"

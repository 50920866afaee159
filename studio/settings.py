"""Every setting of the studio, and the only place that reads the environment.

Flags override `LUMESH_*` variables, which override the defaults; `GRADIO_SERVER_NAME` and `GRADIO_SERVER_PORT` are
honoured, and on Hugging Face Spaces (`SPACE_ID` is set) the page listens on 0.0.0.0:7860. The app and the worker accept
the same flags, so the app starts the worker by passing its own settings on.
"""

import argparse
import json
import math
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NoReturn
from urllib.parse import urlsplit

import platformdirs

from pipelines.catalog import Model, Shape
from pipelines.errors import MeshError, RecipeError
from pipelines.families import list_traits
from pipelines.mesh_text import check_mesh
from pipelines.runtime.kernels.switches import INSTEAD, read_choice
from pipelines.runtime.weights.hub_token import TOKEN_FILE
from studio import access_settings
from studio.access_settings import USERS_FILE, AccessSettings

QUEUE_QUOTA = 200  # jobs of one owner that may wait at a time
LOCAL = "local"  # the id of this machine's first worker; further ones are local-2, local-3, ...
MAX_WORKERS = 64  # of one machine
ENGINES = ("local", "ray")
DOCTOR = ("auto", "on", "off")
RAY_PORT = 6379  # Ray's own default

DATA_DIR = platformdirs.user_data_dir("lumesh", appauthor=False)
SPACES_DISK = Path("/data")  # where a Space's persistent storage is mounted
FINISH_S = 8  # Docker kills after 10
BYTES = {"": 1, "K": 10**3, "M": 10**6, "G": 10**9, "T": 10**12}

_SWITCHES = (
    "fake",
    "verify_weights",
    "keep_layouts",
    "allow_cpu",
    "allow_private_webhooks",
    "openai_exact_models",
    *access_settings.SWITCHES,
)

EXAMPLES = """examples:
  python app.py                                  the studio on http://127.0.0.1:7860
  python app.py users add ada --admin            asks for a password; from then on people log in
  python app.py --host 0.0.0.0 --port 8080       reachable from other machines
  python app.py --data-dir ~/lumesh --mesh dp=2,tp=4
  python app.py --fake                           page, queue and files without any model
  python app.py backup FILE                      the data directory as one file, also while the studio runs
  python app.py restore FILE                     and back, when it is stopped
"""


@dataclass(frozen=True, kw_only=True)
class Settings:
    """The settings of a studio. `model` is loaded while idle; None means the one that suits the devices.

    `packs` are files or folders with compiled programs, in addition to packs/ in the data directory; `profile` is the
    folder for a trace of one job.
    `prewarm` lists shapes to compile while idle: `512x512`, `512x512+2` (with two input pictures), `512x512*4` (four
    outputs at once), `all`, `all+1*2`, `demo-sdxl:256x256*4` (for that model only).
    `text_encoder_urls` maps a model's id, or a family for all of its models, to its text encoder server.
    `chip_price` is the price of a chip per hour in US dollars.
    `kernels` names those of our kernels that are used, whatever the doctor found (runtime/kernels/switches.py).
    The token is a secret, so it comes only from the environment, where it is not visible in the list of processes.
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
    outputs: Path | None = None
    queue_quota: int = QUEUE_QUOTA
    openai_exact_models: bool = False
    allow_private_webhooks: bool = False
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
    def default_model_file(self) -> Path:
        """The id of the model that an admin chose to start with."""
        return self.data_dir / "default-model"

    @property
    def training_dir(self) -> Path:
        """The folder of trainings' states, samples and, while they run, pictures: a folder for each job."""
        return self.data_dir / "training"

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
        return flags + (["--ray-host", self.ray_host] if self.ray_host else [])

    def worker_environment(self, environment: Mapping[str, str]) -> dict[str, str]:
        """Returns the worker's environment: what may hold a password is not for the list of processes."""
        urls = ",".join(f"{name}={url}" for name, url in self.text_encoder_urls.items())
        return {**environment, "LUMESH_TEXT_ENCODER_URL": urls}


def _suffix(worker: str) -> str:
    """Returns what distinguishes the files of a worker that is not the first one."""
    return worker.removeprefix(LOCAL) if worker.startswith(LOCAL) else f"-{worker}"


def read_settings(arguments: Sequence[str], environment: Mapping[str, str]) -> Settings:
    """Reads the settings; exits with code 2 and one clear line when a value is wrong."""
    parser = _make_parser(_read_defaults(environment))
    found = parser.parse_args(arguments)
    data_dir = found.data_dir.expanduser().absolute()
    if not found.workers and found.engine == "local":
        parser.error("--workers 0 leaves nobody to make pictures; it is for --engine ray, where other machines do")
    return Settings(
        host=found.host,
        port=found.port,
        data_dir=data_dir,
        model=found.model,
        mesh=found.mesh,
        fake=found.fake,
        verify_weights=found.verify_weights,
        keep_layouts=found.keep_layouts,
        kernels=found.kernels,
        doctor=found.doctor,
        allow_cpu=found.allow_cpu,
        prewarm=found.prewarm,
        packs=found.pack,
        profile=found.profile and found.profile.expanduser().absolute(),
        text_encoder_urls=found.text_encoder_url,
        text_encoder_token=environment.get("LUMESH_TEXT_ENCODER_TOKEN"),
        engine=found.engine,
        workers=found.workers,
        ray_address=found.ray_address,
        ray_host=found.ray_host,
        ray_port=found.ray_port,
        queue_quota=found.queue_quota,
        openai_exact_models=found.openai_exact_models,
        allow_private_webhooks=found.allow_private_webhooks,
        max_disk_bytes=found.max_disk,
        finish_s=found.finish_timeout,
        is_ephemeral="SPACE_ID" in environment and not found.data_dir.is_relative_to(SPACES_DISK),
        chip_price=found.chip_price,
        access=access_settings.make(found, environment, has_users=(data_dir / USERS_FILE).is_file()),
    )


class _Parser(argparse.ArgumentParser):
    """An argparse parser that prints errors without the usage lines."""

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"{self.prog}: {message}; --help shows examples\n")


def _read_defaults(environment: Mapping[str, str]) -> dict[str, str]:
    """Reads defaults from the environment as text, so that argparse checks variables like flags."""
    on_spaces = "SPACE_ID" in environment
    defaults = {
        "host": environment.get("GRADIO_SERVER_NAME", "0.0.0.0" if on_spaces else "127.0.0.1"),
        "port": environment.get("GRADIO_SERVER_PORT", "7860"),
        "data_dir": str(SPACES_DISK / "lumesh") if on_spaces and os.access(SPACES_DISK, os.W_OK) else DATA_DIR,
        "engine": "local",
        "doctor": "auto",
        "workers": "1",
        "ray_port": str(RAY_PORT),
        "queue_quota": str(QUEUE_QUOTA),
        "finish_timeout": str(FINISH_S),
        **access_settings.read_defaults(environment),
    }
    if packs := environment.get("LUMESH_PACKS"):
        defaults["pack"] = packs
    others = (
        "ray_address",
        "ray_host",
        "model",
        "mesh",
        "kernels",
        "prewarm",
        "profile",
        "text_encoder_url",
        "max_disk",
        "chip_price",
    )
    for name in (*defaults, *_SWITCHES, *others):
        if value := environment.get(f"LUMESH_{name.upper()}"):
            defaults[name] = value
    return defaults


def _make_parser(defaults: Mapping[str, str]) -> argparse.ArgumentParser:
    parser = _Parser(
        prog="app.py",
        description="Lumesh: a studio for pictures on TPU.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("--host", help="address to listen on (default 127.0.0.1)")
    parser.add_argument("--port", type=_parse_port, help="port to listen on (default 7860)")
    parser.add_argument("--data-dir", "--data_dir", type=Path, help="jobs, outputs, models, caches and logs live here")
    parser.add_argument(
        "--engine",
        type=_parse_engine,
        help="where workers run: local (default), on this machine; ray, also on machines that join",
    )
    parser.add_argument(
        "--ray-address", "--ray_address", metavar="HOST:PORT", help="use this Ray cluster (default: start one here)"
    )
    parser.add_argument(
        "--ray-host", "--ray_host", metavar="ADDRESS", help="this machine's address for machines that join"
    )
    parser.add_argument(
        "--ray-port", "--ray_port", type=_parse_port, help=f"port for machines that join (default {RAY_PORT})"
    )
    parser.add_argument(
        "--workers",
        type=_parse_workers,
        metavar="N",
        help="worker processes on this machine, among which its GPUs or TPU chips are divided (default 1); "
        "0 with --engine ray: only others work",
    )
    parser.add_argument(
        "--model",
        help="id of the model to load while idle, which new visitors' pages open with (default: on a TPU the best that "
        "fits the chips and is on this machine, elsewhere the catalogue's first)",
    )
    parser.add_argument(
        "--mesh",
        type=_parse_mesh,
        help="how to split the devices, such as dp=2,tp=4 (default: from their number)",
    )
    parser.add_argument(
        "--kernels",
        type=_parse_kernels,
        metavar="off|on|NAME,...|no-NAME,...",
        help=f"which of our own kernels to use, and plain XLA for the others: none, all, these, or all but these "
        f"({', '.join(INSTEAD)}; default: all that the doctor did not find bad on these chips)",
    )
    parser.add_argument(
        "--doctor",
        type=_parse_doctor,
        metavar="|".join(DOCTOR),
        help="check chips, links and kernels before the first model: auto (default), on a TPU or GPU that was not "
        "checked with these versions; on, also a CPU; off, never",
    )
    parser.add_argument(
        "--prewarm",
        type=_parse_prewarm,
        default=(),
        help="shapes to compile while nobody waits: 512x512,1024x1024 or all; 512x512*4 or all*4 is for four images at "
        "once, 512x512+1 with one input picture, for models that compile for them; demo-sdxl:256x256*4 is for that "
        "model only",
    )
    parser.add_argument(
        "--pack",
        type=_parse_packs,
        default=(),
        help=f"compiled programs to load, or folders of such packs, with {os.pathsep} between them; packs/ in the data "
        "directory is always looked into; a pack is code: use only those you trust",
    )
    parser.add_argument(
        "--profile", type=Path, metavar="DIR", help="write a trace of the first job that compiles nothing there"
    )
    parser.add_argument(
        "--text-encoder-url",
        "--text_encoder_url",
        type=_parse_text_encoders,
        default={},
        help="let a server read the prompts of FLUX.2: http://host:port of an encoder-server, or MODEL=URL,MODEL=URL; "
        "its token is LUMESH_TEXT_ENCODER_TOKEN",
    )
    parser.add_argument(
        "--queue-quota",
        "--queue_quota",
        type=_parse_quota,
        help=f"jobs that may wait at a time, for each owner (default {QUEUE_QUOTA})",
    )
    parser.add_argument(
        "--max-disk",
        "--max_disk",
        type=_parse_bytes,
        metavar="SIZE",
        help="what outputs, uploads and presets may take, such as 50GB: the oldest of the trash is deleted first, "
        "then nothing new is queued (default: no limit)",
    )
    parser.add_argument(
        "--finish-timeout",
        "--finish_timeout",
        type=_parse_seconds,
        metavar="SECONDS",
        help=f"when told to stop (SIGTERM), how long the running job may take to finish before it goes back in line "
        f"(default {FINISH_S})",
    )
    parser.add_argument(
        "--chip-price",
        "--chip_price",
        type=_parse_price,
        help="US dollars that a chip costs an hour, so that jobs and outputs tell what they cost",
    )
    parser.add_argument("--fake", action="store_true", help="serve every model by a numpy drawing, without jax")
    parser.add_argument(
        "--allow-private-webhooks",
        "--allow_private_webhooks",
        action="store_true",
        help="let webhooks reach addresses of this machine and its network",
    )
    parser.add_argument(
        "--openai-exact-models",
        "--openai_exact_models",
        action="store_true",
        help="refuse OpenAI's own model names (gpt-image-1, dall-e-3) below /v1, where they mean the default model",
    )
    parser.add_argument(
        "--verify-weights",
        "--verify_weights",
        action="store_true",
        help="compare the weights' SHA-256 with the hub's, or with the folder's SHA256SUMS, at each load",
    )
    parser.add_argument(
        "--keep-layouts",
        "--keep_layouts",
        action="store_true",
        help="keep a copy of the weights as they lie on the mesh: later loads read that, half the bytes of a "
        "checkpoint in fp32",
    )
    parser.add_argument(
        "--allow-cpu",
        "--allow_cpu",
        action="store_true",
        help="run on the CPU where this machine's TPU or GPU cannot be used, for instance because another process "
        "holds it (default: an error)",
    )
    access_settings.add_flags(parser)
    switches = {name: defaults.get(name, "").lower() in ("1", "true", "yes", "on") for name in _SWITCHES}
    parser.set_defaults(**{**defaults, **switches})
    return parser


def _parse_port(text: str) -> int:
    if not text.isdecimal() or not 0 < int(text) < 65536:
        raise argparse.ArgumentTypeError(f"{text!r} is not a port; use a number from 1 to 65535")
    return int(text)


def _parse_mesh(text: str) -> str | None:
    try:
        return check_mesh(text)
    except MeshError as error:
        raise argparse.ArgumentTypeError(f"{str(error).rstrip('.')}") from error


def _parse_kernels(text: str) -> str:
    try:
        read_choice(text)
    except RecipeError as error:
        raise argparse.ArgumentTypeError(str(error.fields["kernels"])) from error
    return text


def _parse_doctor(text: str) -> str:
    if text not in DOCTOR:
        raise argparse.ArgumentTypeError(f"{text!r} is not known; use {', '.join(DOCTOR)}")
    return text


def _parse_quota(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of jobs; use 1 or more")
    return int(text)


def _parse_workers(text: str) -> int:
    if not text.isdecimal() or not 0 <= int(text) <= MAX_WORKERS:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of workers; use 1 to {MAX_WORKERS}")
    return int(text)


def _parse_bytes(text: str) -> int:
    found = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([KMGT]?)B?", text.strip().upper())
    if found is None or not float(found[1]):
        raise argparse.ArgumentTypeError(f"{text!r} is not a size; write 500MB, 50GB or 2TB")
    return round(float(found[1]) * BYTES[found[2]])


def _parse_seconds(text: str) -> float:
    if not re.fullmatch(r"\d+(\.\d+)?", text):
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of seconds; use 0 or more")
    return float(text)


def _parse_price(text: str) -> float:
    try:
        price = float(text)
    except ValueError:
        price = math.nan
    if not 0 <= price < math.inf:
        raise argparse.ArgumentTypeError(f"{text!r} is not a price; write dollars for a chip and an hour, as in 1.20")
    return price


def _parse_prewarm(text: str) -> tuple[str, ...]:
    names = [name.strip() for name in text.split(",") if name.strip()]
    return tuple(_parse_prewarmed(name) for name in names)


def _parse_prewarmed(name: str) -> str:
    model, colon, sizes = name.rpartition(":")
    if colon and not model:
        raise argparse.ArgumentTypeError(f"{name!r}: before the : stands a model's id, as in demo-sdxl:256x256")
    sizes, star, count = sizes.partition("*")
    if star and not _is_count(count):
        raise argparse.ArgumentTypeError(
            f"{name!r}: after the * stands a number of images at once, as in 512x512*4 or 512x512+1*4"
        )
    shape, plus, pictures = sizes.partition("+")
    if plus and not _is_count(pictures):
        raise argparse.ArgumentTypeError(f"{name!r}: after the + stands a number of pictures, as in 512x512+1")
    try:
        size = "all" if shape.strip().lower() == "all" else str(Shape.parse(shape))
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"{error}, several with commas, or all") from error
    return f"{model}{colon}{size}{plus}{int(pictures) if plus else ''}{star}{int(count) if star else ''}"


def _is_count(text: str) -> bool:
    return text.isascii() and text.isdecimal() and len(text) < 4 and int(text) > 0


def _parse_packs(text: str) -> tuple[Path, ...]:
    paths = tuple(Path(name.strip()).expanduser().absolute() for name in text.split(os.pathsep) if name.strip())
    for path in paths:
        if not path.exists():
            raise argparse.ArgumentTypeError(f"there is no pack or folder {path}")
    return paths


def _parse_text_encoders(text: str) -> dict[str, str]:
    found: dict[str, str] = {}
    for entry in text.split(","):
        name, separator, url = entry.strip().partition("=")
        names = [name]
        if not separator or "/" in name:  # a URL alone, which may have an = in its query
            names = [family for family, traits in list_traits() if traits.has_remote_encoder]
            url = entry.strip()
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise argparse.ArgumentTypeError(f"{url!r} is not an address; write http://host:port, or MODEL=http://...")
        found |= dict.fromkeys(names, url)
    return found


def _parse_engine(text: str) -> str:
    if text not in ENGINES:
        raise argparse.ArgumentTypeError(f"{text!r} is not an engine; use {' or '.join(ENGINES)}")
    return text

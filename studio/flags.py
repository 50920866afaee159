"""The studio's flags, and the only place that reads its environment.

Flags override `LUMESH_*` variables, which override the defaults; `GRADIO_SERVER_NAME` and `GRADIO_SERVER_PORT` are
honoured, and on Hugging Face Spaces (`SPACE_ID` is set) the page listens on 0.0.0.0:7860.
"""

import argparse
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NoReturn

import platformdirs

from pipelines.models.model import WEIGHTS
from pipelines.runtime.kernels.switches import INSTEAD
from studio import access_settings
from studio.access_settings import USERS_FILE
from studio.flag_values import (
    DOCTOR,
    parse_bytes,
    parse_doctor,
    parse_engine,
    parse_kernels,
    parse_mesh,
    parse_packs,
    parse_port,
    parse_ports,
    parse_prewarm,
    parse_price,
    parse_quota,
    parse_seconds,
    parse_text_encoders,
    parse_weights,
    parse_workers,
)
from studio.settings import FINISH_S, QUEUE_QUOTA, RAY_PORT, Settings

DATA_DIR = platformdirs.user_data_dir("lumesh", appauthor=False)
SPACES_DISK = Path("/data")  # where a Space's persistent storage is mounted

_SWITCHES = (
    "fake",
    "verify_weights",
    "keep_layouts",
    "allow_cpu",
    "allow_private_webhooks",
    "allow_private_downloads",
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


def read_settings(arguments: Sequence[str], environment: Mapping[str, str]) -> Settings:
    """Reads the settings; exits with code 2 and one clear line when a value is wrong."""
    parser = _make_parser(_read_defaults(environment))
    found = parser.parse_args(arguments)
    data_dir = found.data_dir.expanduser().absolute()
    if not found.workers and found.engine == "local":
        parser.error("--workers 0 leaves nobody to make pictures; it is for --engine ray, where other machines do")
    if found.ray_ports is not None and (found.ray_port in found.ray_ports or found.port in found.ray_ports):
        parser.error(f"--ray-ports {found.ray_ports} must not hold --ray-port {found.ray_port} or --port {found.port}")
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
        weights=found.weights,
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
        ray_ports=found.ray_ports,
        queue_quota=found.queue_quota,
        openai_exact_models=found.openai_exact_models,
        allow_private_webhooks=found.allow_private_webhooks,
        allow_private_downloads=found.allow_private_downloads,
        civitai_token=environment.get("CIVITAI_TOKEN"),
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
        "ray_ports",
        "model",
        "mesh",
        "weights",
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
    parser.add_argument("--port", type=parse_port, help="port to listen on (default 7860)")
    parser.add_argument("--data-dir", "--data_dir", type=Path, help="jobs, outputs, models, caches and logs live here")
    parser.add_argument(
        "--engine",
        type=parse_engine,
        help="where workers run: local (default), on this machine; ray, also on machines that join",
    )
    parser.add_argument(
        "--ray-address", "--ray_address", metavar="HOST:PORT", help="use this Ray cluster (default: start one here)"
    )
    parser.add_argument(
        "--ray-host", "--ray_host", metavar="ADDRESS", help="this machine's address for machines that join"
    )
    parser.add_argument(
        "--ray-port", "--ray_port", type=parse_port, help=f"port for machines that join (default {RAY_PORT})"
    )
    parser.add_argument(
        "--ray-ports",
        "--ray_ports",
        type=parse_ports,
        metavar="FIRST-LAST",
        help="all other ports of Ray's processes on this machine (default: the system chooses)",
    )
    parser.add_argument(
        "--workers",
        type=parse_workers,
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
        type=parse_mesh,
        help="how to split the devices, such as dp=2,tp=4 (default: from their number)",
    )
    parser.add_argument(
        "--weights",
        type=parse_weights,
        metavar="|".join(WEIGHTS),
        help="how all models' weights lie on the devices: full, as they compute; int8, the large matrices rounded "
        "while they are read: half the memory, and pictures that differ a little; w8a8, also what denoisers multiply "
        "with them, which is faster on v5e and v5p and slower on v6e (default: each model's own, which is full unless "
        "models.toml says otherwise)",
    )
    parser.add_argument(
        "--kernels",
        type=parse_kernels,
        metavar="off|on|NAME,...|no-NAME,...",
        help=f"which of our own kernels to use, and plain XLA for the others: none, all, these, or all but these "
        f"({', '.join(INSTEAD)}; default: all that the doctor did not find bad on these chips)",
    )
    parser.add_argument(
        "--doctor",
        type=parse_doctor,
        metavar="|".join(DOCTOR),
        help="check chips, links and kernels before the first model: auto (default), on a TPU or GPU that was not "
        "checked with these versions; on, also a CPU; off, never",
    )
    parser.add_argument(
        "--prewarm",
        type=parse_prewarm,
        default=(),
        help="shapes to compile while nobody waits: 512x512,1024x1024 or all; 512x512*4 or all*4 is for four images at "
        "once, 512x512+1 with one input picture, for models that compile for them; 512x512~ with a step cache, "
        "512x512~taylor with TaylorSeer; demo-sdxl:256x256*4 is for that model only",
    )
    parser.add_argument(
        "--pack",
        type=parse_packs,
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
        type=parse_text_encoders,
        default={},
        help="let a server read the prompts of FLUX.2: http://host:port of an encoder-server, or MODEL=URL,MODEL=URL; "
        "its token is LUMESH_TEXT_ENCODER_TOKEN",
    )
    parser.add_argument(
        "--queue-quota",
        "--queue_quota",
        type=parse_quota,
        help=f"jobs that may wait at a time, for each owner (default {QUEUE_QUOTA})",
    )
    parser.add_argument(
        "--max-disk",
        "--max_disk",
        type=parse_bytes,
        metavar="SIZE",
        help="what outputs, uploads, presets and trainings may take, such as 50GB: the oldest of the trash is deleted "
        "first, then what ended trainings would go on from, then nothing new is queued (default: no limit)",
    )
    parser.add_argument(
        "--finish-timeout",
        "--finish_timeout",
        type=parse_seconds,
        metavar="SECONDS",
        help=f"when told to stop (SIGTERM), how long the running job may take to finish before it goes back in line "
        f"(default {FINISH_S})",
    )
    parser.add_argument(
        "--chip-price",
        "--chip_price",
        type=parse_price,
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
        "--allow-private-downloads",
        "--allow_private_downloads",
        action="store_true",
        help="let admins add models from addresses of this machine and its network",
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

"""Every setting of the studio, and the only place that reads the environment.

Flags win over `LUMESH_*` variables, those over the defaults; `GRADIO_SERVER_NAME` and `GRADIO_SERVER_PORT` are
honoured, and on Hugging Face Spaces (`SPACE_ID` is set) the page listens on 0.0.0.0:7860. The app and the worker read
the same flags, so the app starts the worker by handing its own settings on.
"""

import argparse
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

import platformdirs

from pipelines.catalog import Shape

EXAMPLES = """examples:
  python app.py                                  the studio on http://127.0.0.1:7860
  python app.py --host 0.0.0.0 --port 8080       reachable from other machines
  python app.py --data-dir ~/lumesh --mesh dp=2,tp=4
  python app.py --fake                           page, queue and files without any model
"""


@dataclass(frozen=True, kw_only=True)
class Settings:
    """What the studio was started with. `model` is the one loaded while idle; None means the catalogue's default.

    `prewarm` names shapes to compile while idle, or is ("all",).
    """

    host: str
    port: int
    data_dir: Path
    model: str | None = None
    mesh: str | None = None
    fake: bool = False
    prewarm: tuple[str, ...] = ()

    @property
    def database_file(self) -> Path:
        return self.data_dir / "jobs.db"

    @property
    def outputs_dir(self) -> Path:
        return self.data_dir / "outputs"

    @property
    def uploads_dir(self) -> Path:
        return self.data_dir / "uploads"

    @property
    def models_dir(self) -> Path:
        return self.data_dir / "models"

    @property
    def cache_dir(self) -> Path:
        return self.data_dir / "cache" / "jax"

    @property
    def worker_log(self) -> Path:
        return self.data_dir / "logs" / "worker.log"

    @property
    def app_lock(self) -> Path:
        return self.data_dir / "app.lock"

    @property
    def worker_lock(self) -> Path:
        return self.data_dir / "worker.lock"

    def worker_flags(self) -> list[str]:
        """The flags that give the worker process these settings."""
        flags = ["--data-dir", str(self.data_dir)]
        for name, value in (("--model", self.model), ("--mesh", self.mesh)):
            if value is not None:
                flags += [name, value]
        if self.prewarm:
            flags += ["--prewarm", ",".join(self.prewarm)]
        return [*flags, "--fake"] if self.fake else flags


def read_settings(arguments: Sequence[str], environment: Mapping[str, str]) -> Settings:
    """Exits with code 2 and one clear line when a value is wrong."""
    parser = _make_parser(_read_defaults(environment))
    found = parser.parse_args(arguments)
    return Settings(
        host=found.host,
        port=found.port,
        data_dir=found.data_dir.expanduser().absolute(),
        model=found.model,
        mesh=found.mesh,
        fake=found.fake,
        prewarm=found.prewarm,
    )


class _Parser(argparse.ArgumentParser):
    """argparse without the usage lines before an error."""

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"{self.prog}: {message}; --help shows examples\n")


def _read_defaults(environment: Mapping[str, str]) -> dict[str, str]:
    """Defaults as text, so that argparse checks a variable exactly as it checks a flag."""
    on_spaces = "SPACE_ID" in environment
    defaults = {
        "host": environment.get("GRADIO_SERVER_NAME", "0.0.0.0" if on_spaces else "127.0.0.1"),
        "port": environment.get("GRADIO_SERVER_PORT", "7860"),
        "data_dir": platformdirs.user_data_dir("lumesh", appauthor=False),
        "engine": "local",
    }
    for name in ("host", "port", "data_dir", "engine", "model", "mesh", "fake", "prewarm"):
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
    parser.add_argument("--engine", type=_parse_engine, help="where the worker runs: local (ray is planned)")
    parser.add_argument("--model", help="id of the model to load while idle (default: the catalogue's first)")
    parser.add_argument("--mesh", help="how to split the devices, such as dp=2,tp=4 (default: from their number)")
    parser.add_argument(
        "--prewarm",
        type=_parse_prewarm,
        default=(),
        help="shapes to compile while nobody waits: 512x512,1024x1024 or all",
    )
    parser.add_argument("--fake", action="store_true", help="serve every model by a numpy drawing, without jax")
    parser.set_defaults(**{**defaults, "fake": defaults.get("fake", "").lower() in ("1", "true", "yes", "on")})
    return parser


def _parse_port(text: str) -> int:
    if not text.isdecimal() or not 0 < int(text) < 65536:
        raise argparse.ArgumentTypeError(f"{text!r} is not a port; use a number from 1 to 65535")
    return int(text)


def _parse_prewarm(text: str) -> tuple[str, ...]:
    names = tuple(name.strip().lower() for name in text.split(",") if name.strip())
    try:
        return names if names == ("all",) else tuple(str(Shape.parse(name)) for name in names)
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"{error}, several with commas, or all") from error


def _parse_engine(text: str) -> str:
    if text == "ray":
        raise argparse.ArgumentTypeError("ray is not available yet; use local")
    if text != "local":
        raise argparse.ArgumentTypeError(f"{text!r} is not an engine; use local")
    return text

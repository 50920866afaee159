"""What a flag of the studio may say: each value is read, or refused in one line that says what is allowed.

Every function raises argparse.ArgumentTypeError.
"""

import argparse
import math
import os
import re
from pathlib import Path
from urllib.parse import urlsplit

from pipelines.errors import MeshError, RecipeError
from pipelines.families import list_traits
from pipelines.mesh_text import check_mesh
from pipelines.models.catalog import Shape
from pipelines.models.model import WEIGHTS
from pipelines.recipes.taylor import TAYLOR
from pipelines.runtime.kernels.switches import read_choice
from studio.ray_ports import Ports

ENGINES = ("local", "ray")
DOCTOR = ("auto", "on", "off")
MAX_WORKERS = 64  # of one machine
BYTES = {"": 1, "K": 10**3, "M": 10**6, "G": 10**9, "T": 10**12}


def parse_port(text: str) -> int:
    if not text.isdecimal() or not 0 < int(text) < 65536:
        raise argparse.ArgumentTypeError(f"{text!r} is not a port; use a number from 1 to 65535")
    return int(text)


def parse_ports(text: str) -> Ports:
    try:
        return Ports.parse(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from error


def parse_mesh(text: str) -> str | None:
    try:
        return check_mesh(text)
    except MeshError as error:
        raise argparse.ArgumentTypeError(f"{str(error).rstrip('.')}") from error


def parse_kernels(text: str) -> str:
    try:
        read_choice(text)
    except RecipeError as error:
        raise argparse.ArgumentTypeError(str(error.fields["kernels"])) from error
    return text


def parse_weights(text: str) -> str:
    if text not in WEIGHTS:
        raise argparse.ArgumentTypeError(f"{text!r} is not known; use {', '.join(WEIGHTS)}")
    return text


def parse_doctor(text: str) -> str:
    if text not in DOCTOR:
        raise argparse.ArgumentTypeError(f"{text!r} is not known; use {', '.join(DOCTOR)}")
    return text


def parse_quota(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of jobs; use 1 or more")
    return int(text)


def parse_workers(text: str) -> int:
    if not text.isdecimal() or not 0 <= int(text) <= MAX_WORKERS:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of workers; use 1 to {MAX_WORKERS}")
    return int(text)


def parse_bytes(text: str) -> int:
    found = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([KMGT]?)B?", text.strip().upper())
    if found is None or not float(found[1]):
        raise argparse.ArgumentTypeError(f"{text!r} is not a size; write 500MB, 50GB or 2TB")
    return round(float(found[1]) * BYTES[found[2]])


def parse_seconds(text: str) -> float:
    if not re.fullmatch(r"\d+(\.\d+)?", text):
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of seconds; use 0 or more")
    return float(text)


def parse_price(text: str) -> float:
    try:
        price = float(text)
    except ValueError:
        price = math.nan
    if not 0 <= price < math.inf:
        raise argparse.ArgumentTypeError(f"{text!r} is not a price; write dollars for a chip and an hour, as in 1.20")
    return price


def parse_prewarm(text: str) -> tuple[str, ...]:
    names = [name.strip() for name in text.split(",") if name.strip()]
    return tuple(_parse_prewarmed(name) for name in names)


def _parse_prewarmed(name: str) -> str:
    model, colon, sizes = name.rpartition(":")
    if colon and not model:
        raise argparse.ArgumentTypeError(f"{name!r}: before the : stands a model's id, as in demo-sdxl:256x256")
    sizes, tilde, kind = sizes.partition("~")
    if kind not in ("", TAYLOR):
        raise argparse.ArgumentTypeError(f"{name!r}: after the ~ stands nothing, or {TAYLOR}, as in 512x512~{TAYLOR}")
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
    return f"{model}{colon}{size}{plus}{int(pictures) if plus else ''}{star}{int(count) if star else ''}{tilde}{kind}"


def _is_count(text: str) -> bool:
    return text.isascii() and text.isdecimal() and len(text) < 4 and int(text) > 0


def parse_packs(text: str) -> tuple[Path, ...]:
    paths = tuple(Path(name.strip()).expanduser().absolute() for name in text.split(os.pathsep) if name.strip())
    for path in paths:
        if not path.exists():
            raise argparse.ArgumentTypeError(f"there is no pack or folder {path}")
    return paths


def parse_text_encoders(text: str) -> dict[str, str]:
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


def parse_engine(text: str) -> str:
    if text not in ENGINES:
        raise argparse.ArgumentTypeError(f"{text!r} is not an engine; use {' or '.join(ENGINES)}")
    return text

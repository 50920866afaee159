"""What a model's programs are made of: its configs, this code, and the packages that trace and compile it.

Importable without jax, so that a page can say whether what it kept is still so.
"""

import functools
import hashlib
from importlib import metadata
from pathlib import Path

from pipelines.catalog import PRESETS_DIR, Model
from pipelines.errors import ModelError

CONFIGS_DIR = PRESETS_DIR / "configs"

_PACKAGES = ("jax", "jaxlib", "libtpu", "torch", "torchax", "diffusers", "transformers")
_CODE = Path(__file__).parent
_CONFIGS = ("model_index.json", "*/*config.json")


def find_configs(model: Model) -> Path:
    """The folder to read configs from; raises ModelError when there is none."""
    folder = CONFIGS_DIR / model.id if model.path is None else model.path
    if not (folder / "model_index.json").exists():
        raise ModelError(
            f"There are no configs of {model.id} here.",
            advice="Copy the checkpoint's folder, weights left out, into the data directory's models/.",
        )
    return folder


def fingerprint_configs(model: Model) -> str:
    """Of the configs' bytes: a folder may get another checkpoint under the same name. Empty when there are none."""
    try:
        folder = find_configs(model)
    except ModelError:
        return ""
    digest = hashlib.sha256()
    for file in sorted(file for pattern in _CONFIGS for file in folder.glob(pattern)):
        digest.update(f"{file.relative_to(folder)}\n".encode() + file.read_bytes())
    return digest.hexdigest()[:20]


@functools.cache
def fingerprint_code() -> str:
    """Of all that may make another program, or another plan, of the same configs."""
    digest = hashlib.sha256()
    for package in _PACKAGES:
        try:
            digest.update(f"{package} {metadata.version(package)}\n".encode())
        except metadata.PackageNotFoundError:
            continue
    for file in (*sorted(_CODE.rglob("*.py")), PRESETS_DIR / "models.toml"):
        digest.update(file.read_bytes())
    return digest.hexdigest()[:20]

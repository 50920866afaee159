"""The scale that a LoRA's trainer meant, where its tensors do not say it.

An adapter counts alpha over rank times. Most files have an alpha tensor for each layer; those of diffusers, SimpleTuner
and others write alpha and rank once, into the header, each under names of its own. peft's own folders have them in a
file beside the weights. Importable without jax.
"""

import json
import math
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

MAX_TEXT_CHARS = 2**20  # of one JSON text in a header, and of peft's file
ADAPTER_MODEL = "adapter_model.safetensors"  # what peft's `save_pretrained` calls a folder's weights
ADAPTER_CONFIG = "adapter_config.json"  # and their description
# Names of an alpha that counts for the whole file, in order of trust.
_ALPHAS = ("lora_alpha", "alpha", "network_alpha")
# kohya's trainers also save an alpha tensor for each layer; where there is none, only a file that still has their
# names is meant: programs that rename its tensors multiply alpha in, and leave this text as it was.
_KOHYAS_ALPHA = "ss_network_alpha"


class Settings(NamedTuple):
    """A LoRA file's statements on its scale: `values` has peft's names, perhaps after a component and a dot.

    They come from the header, or from peft's file beside it (`is_beside`).
    """

    values: Mapping[str, Any]
    is_beside: bool = False

    @property
    def has_alpha(self) -> bool:
        """Whether any alpha is said that counts for the whole file."""
        return any(str(name).rpartition(".")[2] in _ALPHAS for name in self.values)

    def find_factor(self, component: str, module: str, *, rank: int, is_kohya: bool) -> float:
        """Returns alpha over rank of a module; 1 where the header does not say it."""
        alpha = _read_number(_look_up(self._get(component, "alpha_pattern"), module))
        if alpha is None:
            names = (*_ALPHAS, _KOHYAS_ALPHA) if is_kohya else _ALPHAS
            found = (_read_number(self._get(component, name)) for name in names)
            alpha = next((number for number in found if number is not None), None)
        if not rank and not is_kohya:  # a LoKr of two whole factors, which peft scales too
            found = (_read_number(self._get(component, name)) for name in ("r", "rank"))
            rank = next((int(number) for number in found if number is not None), 0)
        if alpha is None or not rank:
            return 1.0
        return alpha / (math.sqrt(rank) if _read_flag(self._get(component, "use_rslora")) else rank)

    def _get(self, component: str, name: str) -> Any:
        return self.values.get(f"{component}.{name}", self.values.get(name))


def read_settings(metadata: Mapping[str, Any], config: Path | None = None) -> Settings:
    """Reads a header's metadata, or where it has no alpha peft's file; what is not understood is no setting."""
    values = {name: value for name, value in metadata.items() if isinstance(value, str | int | float)}
    for found in _list_objects(metadata):
        values |= found
    settings = Settings(values)
    if settings.has_alpha or config is None:
        return settings
    beside = next(_list_objects({ADAPTER_CONFIG: _read_text(config)}), None)
    return settings if beside is None else Settings(values | beside, is_beside=True)


def find_adapter_config(file: Path) -> Path | None:
    """Returns the description that peft has put beside a file; None for a file that it is not of.

    It is of the file that peft names so, or of the only one there.
    """
    config = file.parent / ADAPTER_CONFIG
    if not config.is_file():
        return None
    if file.name != ADAPTER_MODEL and sum(one.suffix == file.suffix for one in file.parent.iterdir()) > 1:
        return None
    return config


def _read_text(file: Path) -> str:
    try:
        with file.open(encoding="utf-8") as stream:
            return stream.read(MAX_TEXT_CHARS + 1)
    except (OSError, ValueError):
        return ""


def _list_objects(metadata: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Yields the JSON objects among the values that are settings of an adapter."""
    for name, text in metadata.items():
        if not isinstance(text, str) or not text.lstrip().startswith("{") or len(text) > MAX_TEXT_CHARS:
            continue
        try:
            found = json.loads(text)
        except (ValueError, RecursionError):
            continue
        is_adapter = isinstance(found, dict) and any(str(key).split(".")[-1] == "lora_alpha" for key in found)
        if is_adapter:
            yield found
        elif name.rpartition(".")[2] in ("alpha_pattern", "rank_pattern") and isinstance(found, dict):
            yield {name: found}


def _look_up(patterns: Any, module: str) -> Any:
    """Returns the value for a module in peft's patterns, which match the end of its name, or all of it after a ^."""
    for pattern, value in patterns.items() if isinstance(patterns, dict) else ():
        whole = str(pattern).removeprefix("^")
        if module == whole or (not str(pattern).startswith("^") and module.endswith(f".{whole}")):
            return value
    return None


def _read_number(value: Any) -> float | None:
    """Reads an alpha, which is above zero, from a number or a text."""
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        return None
    try:
        number = float(value)
    except ValueError:
        return None
    return number if math.isfinite(number) and number > 0 else None


def _read_flag(value: Any) -> bool:
    return value is True or str(value).strip().lower() in ("true", "1")

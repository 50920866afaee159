"""The scale that a LoRA's trainer meant, where only the header of its file says it.

An adapter counts alpha over rank times. Most files have an alpha tensor for each layer; those of peft, diffusers,
SimpleTuner and others write alpha and rank once, into the header, each under names of its own. Importable without jax.
"""

import json
import math
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

MAX_TEXT_CHARS = 2**20  # of one JSON text in a header
# Names of an alpha that counts for the whole file, in order of trust.
_ALPHAS = ("lora_alpha", "alpha", "network_alpha")
# kohya's trainers also save an alpha tensor for each layer; where there is none, only a file that still has their
# names is meant: programs that rename its tensors multiply alpha in, and leave this text as it was.
_KOHYAS_ALPHA = "ss_network_alpha"


class Settings(NamedTuple):
    """What a header says of scales: `values` has peft's names, perhaps after a component and a dot."""

    values: Mapping[str, Any]

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


def read_settings(metadata: Mapping[str, Any]) -> Settings:
    """Reads a header's metadata; what is not understood is no setting."""
    values = {name: value for name, value in metadata.items() if isinstance(value, str | int | float)}
    for found in _list_objects(metadata):
        values |= found
    return Settings(values)


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

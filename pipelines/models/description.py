"""Describes a model of a data directory or the catalogue: where it is, what its weights are stored in, where it fits.

Importable without jax and torch. Fits are those of the plans that came with Lumesh (pipelines/plan/answers.jsonl).
"""

import functools
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pipelines.errors import ModelError
from pipelines.families import find_traits
from pipelines.files.sizes import count_bytes
from pipelines.messages import Message, say
from pipelines.models.catalog import find_folder
from pipelines.models.model import FULL, INT8, Model
from pipelines.models.own_models import INDEX, WEIGHTED
from pipelines.models.single_files import name_dtype, recognise_file
from pipelines.models.weight_files import find_weight_files, read_header
from pipelines.runtime.weights.hub_pins import choose_revision

PLANS = Path(__file__).parents[1] / "plan" / "answers.jsonl"
_FOLDER = say("diffusers folder")
_ON_HUB = say("diffusers folder on the hub")


@dataclass(frozen=True, kw_only=True)
class Description:
    """A model as it is known without being loaded. Sizes are in bytes; None is unknown.

    `origin` is its file, folder or repository, `source` where a file was downloaded from;
    `lacking` maps components that are not there to what happens instead.
    `fits` maps each topology for which a plan of its default size came with Lumesh to whether it fits in full, and
    `fits_in_int8` in int8 (runtime/weights/int8.py).
    """

    id: str
    title: str
    family: str
    layout: Message
    origin: str
    revision: str
    dtype: str
    size_bytes: int | None
    lacking: dict[str, Message]
    licence: str
    fits: dict[str, bool]
    fits_in_int8: dict[str, bool]
    description: str
    source: str = ""


def describe_model(model: Model) -> Description:
    """Describes a model of a catalogue from headers, configs and the plans that come with Lumesh."""
    layout, origin, files = _ON_HUB, model.repo, _find_cached(model)
    lacking: dict[str, Message] = {}
    if model.file is not None:
        single = recognise_file(model.file)
        layout, origin = single.likeness.layout, str(model.file)
        files = [one for one in (model.file, model.file_2) if one is not None]
        assert model.base is not None, "a single file has a base"
        configs = find_folder(model)
        names = (
            single.list_lacking(configs, WEIGHTED, has_second=model.file_2 is not None) if configs is not None else []
        )
        lacking = {name: say("from {base}", base=model.base.id) for name in names if not (name == "vae" and model.vae)}
    elif model.path is not None:
        layout, origin, files = _FOLDER, str(model.path), _list_weights(model.path)
    return Description(
        id=model.id,
        title=model.title,
        family=find_traits(model.family).title,
        layout=layout,
        origin=origin,
        revision=choose_revision(model) if model.repo else "",
        dtype=_find_dtype(files),
        size_bytes=count_bytes({*files, *model.own_files}) or None,
        lacking=lacking,
        licence=model.licence,
        fits=find_fitting(model, FULL),
        fits_in_int8=find_fitting(model, INT8),
        description=model.description,
        source=model.source,
    )


def find_fitting(model: Model, weights: str) -> dict[str, bool]:
    """Maps each topology for which a plan of the model's default size and these `weights` came to whether it fits.

    A single file has the plans of its base; for a folder of one's own none came.
    """
    shape = str(model.default_shape)
    return {
        topology: fits
        for (model_id, size, topology, kind), fits in _read_plans().items()
        if (model_id, size, kind) == (model.program_id, shape, weights) and not topology.startswith("cpu")
    }


def _list_weights(folder: Path) -> list[Path]:
    files: list[Path] = []
    for component in WEIGHTED:
        if (folder / component).is_dir():
            try:
                files += find_weight_files(folder / component)
            except ModelError:
                continue
    return [file for file in files if file.exists()]


def _find_cached(model: Model) -> list[Path]:
    """Lists the weights of a hub model that are on this machine."""
    if not model.repo:
        return []
    from huggingface_hub import try_to_load_from_cache

    index = try_to_load_from_cache(model.repo, INDEX, revision=choose_revision(model))
    return _list_weights(Path(index).parent) if isinstance(index, str) else []


def _find_dtype(files: list[Path]) -> str:
    """Returns what most bytes of the weights are stored in, "" without weights."""
    counts: dict[str, int] = {}
    for file in files:
        for name, entry in read_header(file)[0].items():
            if name != "__metadata__":
                start, end = entry["data_offsets"]
                counts[entry["dtype"]] = counts.get(entry["dtype"], 0) + end - start
    most = max(counts, key=lambda name: counts[name], default="")
    return name_dtype(most)


@functools.cache
def _read_plans() -> dict[tuple[str, ...], bool]:
    plans: dict[tuple[str, ...], bool] = {}
    for line in PLANS.read_text("utf-8").splitlines() if PLANS.exists() else ():
        plan: dict[str, Any] = json.loads(line)
        if plan["mode"] == "latency" and "step_cache" not in plan:
            asked = (plan["model"], plan["shape"], plan["topology"], plan.get("weights", FULL))
            plans[asked] = plan["placement"]["kind"] != "does_not_fit"
    return plans

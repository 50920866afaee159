"""How a checkpoint of one's own, a folder or one file, becomes a model: what it does not say is a shipped one's.

Not here: what lies in `models/` (own_models.py), entries of models.toml (catalog_entries.py).
"""

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any

from pipelines.families import find_traits
from pipelines.messages import join, say
from pipelines.models.model import Model, Shape
from pipelines.models.own_models import OwnModel, make_id
from pipelines.models.single_files import SingleFile
from pipelines.recipes.schedulers import read_shift, recognise

_OWN = "Your own checkpoint, from the data directory."


def adopt_folder(own: OwnModel, shipped: Sequence[Model]) -> Model:
    """Returns a user's folder as a catalogue entry: the shipped model that it resembles most, with what it says itself.

    Its own are its scheduler and flow shift, as in diffusers, and the sizes of a smaller one. One that was trained here
    has the sizes and settings of the shipped model that it was made from.
    """
    origin = next((model for model in shipped if (model.id, model.family) == (own.like, own.family)), None)
    template = origin or next(model for model in shipped if model.id == own.likeness.model_id)
    most_pixels = own.likeness.most_pixels or math.inf
    shapes = tuple(shape for shape in template.shapes if shape.width * shape.height <= most_pixels)
    if origin is not None:
        shapes = template.shapes
    elif own.likeness.size is not None:
        width, height = own.likeness.size
        shapes = (Shape(width=width, height=height),)
    said = f"Your own checkpoint, trained from {origin.title}." if origin is not None else _OWN
    fields = _read_scheduler(own.scheduler_config, template, [*map(str, shapes)], said=said)
    if own.text_length is not None:
        fields["text_length"] = own.text_length
    return replace(
        template,
        id=own.id,
        title=own.name,
        repo="",
        revision="",
        variant="",
        path=own.folder,
        licence=origin.licence if origin is not None else "",
        file_names="",
        examples=(),
        # Wan's authors give all their models one (sample_neg_prompt of their shared_config.py); elsewhere it is taste.
        negative_prompt=template.negative_prompt if template.is_video else "",
        shapes=shapes,
        default_shape=template.default_shape if template.default_shape in shapes else shapes[0],
        **fields,
    )


def adopt_file(single: SingleFile, name: str, base: Model, lacking: Sequence[str]) -> Model:
    """Returns a single-file checkpoint as an entry with the settings of its base; the description says what it is."""
    notes = [
        say("Your own checkpoint in one file: {family}, laid out as {layout}, in {dtype}.",
            family=find_traits(single.family).title, layout=single.likeness.layout, dtype=single.dtype),
        *([say("From {base}: {components}.", base=base.id,
               components=", ".join(one.replace("_", " ") for one in lacking))] if lacking else []),
        *single.likeness.notes,
    ]  # fmt: skip
    return replace(
        base,
        id=make_id(name),
        title=name,
        repo="",
        revision="",
        path=None,
        file=single.file,
        base=base.in_place,
        scheduler_changes={**base.scheduler_changes, **single.likeness.scheduler_changes},
        licence=single.licence,
        file_names="",
        learns_from="",
        description=str(join(notes)),
        knows="",
        examples=(),
        is_demo=False,
        negative_prompt=base.negative_prompt if base.is_video else "",
    )


def _read_scheduler(
    config: Mapping[str, Any], template: Model, shapes: Collection[str], *, said: str
) -> dict[str, Any]:
    """Returns the fields that a checkpoint's own scheduler decides.

    The description is what is `said`, and tells if the scheduler has no name here. A folder without a scheduler, which
    loading refuses, gets the template's.
    """
    name, description = recognise(config), said
    kept = {shape: shift for shape, shift in template.flow_shifts.items() if shape in shapes}
    fields: dict[str, Any] = {"flow_shifts": {} if config else kept}
    if name in template.schedulers:
        fields["scheduler"] = name
    elif config:
        description += (
            f" Its scheduler, {config.get('_class_name')}, is not among those here: {template.scheduler} runs."
        )
    if template.flow_shift is not None and (shift := read_shift(config)) is not None:
        fields["flow_shift"] = float(shift)
    return {"description": description, **fields}

"""How Wan is loaded, planned and run."""

from collections.abc import Mapping
from typing import Any

from diffusers.loaders.single_file_utils import convert_wan_transformer_to_diffusers

from pipelines.families.loading import CheckpointArchitecture
from pipelines.families.wan import programs
from pipelines.families.wan.family import WanFamily
from pipelines.families.wan.load import build_parts
from pipelines.families.wan.loras import spell
from pipelines.families.wan.parts import COMPONENTS, EXPERTS, FURTHER_COMPONENTS, STAGES_OF, Parts
from pipelines.families.wan.traits import TRAITS
from pipelines.models.catalog import Model, Shape
from pipelines.runtime.sampling.schedules import build_schedule
from pipelines.runtime.weights.single_file import strip_prefix


def _share_steps(model: Model, parts: Parts, shape: Shape) -> dict[str, int]:
    if EXPERTS[1] not in parts.modules:
        return {EXPERTS[0]: model.steps}
    flow_shift = model.choose_flow_shift(str(shape))
    schedule = build_schedule(model.scheduler, parts.scheduler_config, steps=model.steps, flow_shift=flow_shift)
    boundary = parts.find_boundary(schedule)
    return {EXPERTS[0]: boundary, EXPERTS[1]: model.steps - boundary}


_PLACES = "img_emb.emb_pos"  # of the tokens of a first and a last picture, which diffusers' table lacks
_PLACES_HERE = "condition_embedder.image_embedder.pos_embed"


def _convert_transformer(tensors: dict[str, Any], _config: Mapping[str, Any]) -> Mapping[str, Any]:
    converted = convert_wan_transformer_to_diffusers(strip_prefix(tensors))
    return {_PLACES_HERE if name == _PLACES else name: one for name, one in converted.items()}


ARCHITECTURE = CheckpointArchitecture(
    traits=TRAITS,
    components=COMPONENTS,
    further_components=FURTHER_COMPONENTS,
    stages_of=STAGES_OF,
    adaptable=EXPERTS,
    int8={**dict.fromkeys(EXPERTS), "text_encoder": None},
    programs=programs,
    loaded_class=WanFamily,
    build_parts=build_parts,
    spell=spell,
    converters={EXPERTS[0]: _convert_transformer},
    limit_text=lambda model, _length: model.text_length,
    share_steps=_share_steps,
)

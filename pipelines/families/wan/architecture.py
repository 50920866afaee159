"""How Wan is loaded, planned and run."""

from pipelines.catalog import Model, Shape
from pipelines.families.loading import CheckpointArchitecture
from pipelines.families.wan import programs
from pipelines.families.wan.family import WanFamily
from pipelines.families.wan.load import build_parts
from pipelines.families.wan.loras import spell
from pipelines.families.wan.parts import COMPONENTS, EXPERTS, FURTHER_COMPONENTS, STAGES_OF, Parts
from pipelines.families.wan.traits import TRAITS
from pipelines.runtime.sampling.schedules import build_schedule


def _share_steps(model: Model, parts: Parts, shape: Shape) -> dict[str, int]:
    if EXPERTS[1] not in parts.modules:
        return {EXPERTS[0]: model.steps}
    flow_shift = model.choose_flow_shift(str(shape))
    schedule = build_schedule(model.scheduler, parts.scheduler_config, steps=model.steps, flow_shift=flow_shift)
    boundary = parts.find_boundary(schedule)
    return {EXPERTS[0]: boundary, EXPERTS[1]: model.steps - boundary}


ARCHITECTURE = CheckpointArchitecture(
    traits=TRAITS,
    components=COMPONENTS,
    further_components=FURTHER_COMPONENTS,
    stages_of=STAGES_OF,
    adaptable=EXPERTS,
    programs=programs,
    loaded_class=WanFamily,
    build_parts=build_parts,
    spell=spell,
    limit_text=lambda model, _length: model.text_length,
    share_steps=_share_steps,
)

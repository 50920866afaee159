"""What every family promises: traits that are read without its code, and an architecture that plans all its models."""

import math
import subprocess
import sys
from itertools import pairwise

import pytest

from pipelines.families import FAMILIES, find_traits, name_families
from pipelines.loras.files import find_family
from pipelines.models.catalog import Model, load_catalog
from pipelines.registry import choose_sizes_for, describe_parts, find_architecture
from pipelines.runtime.devices.mesh import build_mesh
from pipelines.stages import STAGES

CATALOG = load_catalog()
SMALLEST = {model.family: model for model in reversed(CATALOG.models)}


def test_traits_are_read_without_jax_or_torch() -> None:
    code = (
        "import sys; sys.path.insert(0, '.');"
        "from pipelines.models.catalog import load_catalog; from pipelines.families import list_traits;"
        "import pipelines.families.protocol, pipelines.registry;"
        "assert load_catalog().models and len(dict(list_traits())) > 2;"
        "print({'jax', 'torch', 'diffusers', 'transformers'} & {*sys.modules})"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"


def test_people_are_told_of_all_families() -> None:
    assert name_families() == "SDXL, Stable Diffusion 1 and 2, FLUX.2, Z-Image or Wan"


def test_what_no_code_here_runs_has_nothing_special() -> None:
    traits = find_traits("unet3d")
    assert (traits.title, traits.pipeline_classes, traits.has_references) == ("unet3d", (), False)
    assert traits.loras.names.search("unet.down_blocks.0") is None


def test_every_family_has_a_model_and_only_models_of_families_are_shipped() -> None:
    assert {model.family for model in CATALOG.models} == {*FAMILIES}


def test_a_checkpoint_is_of_one_family() -> None:
    classes = [name for family in FAMILIES for name in find_traits(family).pipeline_classes]
    assert len(classes) == len({*classes}) > 0


@pytest.mark.parametrize("family", FAMILIES)
def test_the_example_of_its_loras_is_its_own(family: str) -> None:
    assert find_family([find_traits(family).loras.example]) == family


@pytest.mark.parametrize("model", CATALOG.models, ids=lambda model: model.id)
def test_devices_are_shared_out_and_never_more_than_there_are(model: Model) -> None:
    choose = choose_sizes_for(model)
    sizes = [math.prod(choose(count).values()) for count in range(1, 17)]
    assert all(0 < size <= count for count, size in enumerate(sizes, 1))
    assert all(one <= other for one, other in pairwise(sizes[count - 1] for count in (1, 2, 4, 8, 16)))


@pytest.mark.parametrize("family", FAMILIES)
def test_its_parts_programs_and_steps_go_together(family: str) -> None:
    model = SMALLEST[family]
    architecture, shape = find_architecture(model), model.default_shape
    parts = describe_parts(model, build_mesh("dp=1"))
    assert {*parts.weights} <= {*parts.modules}
    layouts = [
        architecture.programs.lay_out(parts, shape, batch_size=1, uses_cfg=uses_cfg) for uses_cfg in (False, True)
    ]
    keys = [program.key for program in architecture.programs.list_programs(parts, layouts[1])]
    assert {*STAGES, "preview"} <= {key[0] for key in keys}
    assert len(keys) == len({*keys})
    assert {layouts[1].denoise_key, layouts[1].decode_key, layouts[1].preview_key} <= {*keys}
    assert layouts[0].decode_key == layouts[1].decode_key  # decoding knows of no guidance
    assert sum(architecture.share_steps(model, parts, shape).values()) == model.steps

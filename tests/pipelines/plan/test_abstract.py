"""Models from their configs alone: of the published sizes, and laid out as the loader lays out the real ones."""

import subprocess
from collections.abc import Callable
from typing import Any

import jax
import pytest

from pipelines.models.catalog import Model, load_catalog
from pipelines.plan.abstract import count_parameters, list_stages
from pipelines.recipes.cache_kinds import MAGCACHE, TAYLOR
from pipelines.registry import describe_parts
from pipelines.runtime.devices.mesh import build_mesh
from tests.forked_python import find_forked_python
from tests.places import ROOT

# Billions, as published with the models; the text encoders of FLUX.2 and Z-Image end at the last layer read, the image
# encoder of Wan before its last one (0.631 with it).
PUBLISHED = {
    "sd15": {"text_encoder": 0.123, "unet": 0.860, "vae": 0.084},
    "sd2-base": {"text_encoder": 0.340, "unet": 0.866, "vae": 0.084},
    "sd21": {"text_encoder": 0.340, "unet": 0.866, "vae": 0.084},
    "sdxl-base": {"text_encoder": 0.123, "text_encoder_2": 0.695, "unet": 2.567, "vae": 0.084},
    "sdxl-turbo": {"text_encoder": 0.123, "text_encoder_2": 0.695, "unet": 2.567, "vae": 0.084},
    "flux2-klein-4b": {"text_encoder": 3.11, "transformer": 3.88, "vae": 0.084},
    "flux2-klein-9b": {"text_encoder": 5.83, "transformer": 9.08, "vae": 0.084},
    "flux2-klein-base-4b": {"text_encoder": 3.11, "transformer": 3.88, "vae": 0.084},
    "flux2-klein-base-9b": {"text_encoder": 5.83, "transformer": 9.08, "vae": 0.084},
    "flux2-dev": {"text_encoder": 17.34, "transformer": 32.2, "vae": 0.084},
    "wan2.1-1.3b": {"text_encoder": 5.68, "transformer": 1.42, "vae": 0.073},
    "wan2.1-14b": {"text_encoder": 5.68, "transformer": 14.29, "vae": 0.073},
    "wan2.1-i2v-14b": {"text_encoder": 5.68, "image_encoder": 0.611, "transformer": 16.4, "vae": 0.127},
    "wan2.1-i2v-14b-480p": {"text_encoder": 5.68, "image_encoder": 0.611, "transformer": 16.4, "vae": 0.127},
    "wan2.1-flf2v-14b": {"text_encoder": 5.68, "image_encoder": 0.611, "transformer": 16.4, "vae": 0.127},
    "wan2.2-a14b": {"text_encoder": 5.68, "transformer": 14.29, "transformer_2": 14.29, "vae": 0.073},
    "wan2.2-i2v-a14b": {"text_encoder": 5.68, "transformer": 14.29, "transformer_2": 14.29, "vae": 0.127},
    "wan2.2-ti2v-5b": {"text_encoder": 5.68, "transformer": 5.0, "vae": 0.705},
    "z-image": {"text_encoder": 3.92, "transformer": 6.15, "vae": 0.084},
    "z-image-turbo": {"text_encoder": 3.92, "transformer": 6.15, "vae": 0.084},
}
SHIPPED = [model for model in load_catalog().models if not model.is_demo]


@pytest.mark.parametrize("model", SHIPPED, ids=lambda model: model.id)
def test_every_model_of_the_catalogue_has_its_published_size(model: Model) -> None:
    parts = describe_parts(model, build_mesh("dp=1"))
    found = {name: count / 1e9 for name, count in count_parameters(parts).items()}
    assert found == pytest.approx(PUBLISHED[model.id], rel=0.01)


def test_the_demo_model_is_described_from_its_own_folder() -> None:
    model = load_catalog().get("demo-sdxl")
    stages = list_stages(model, describe_parts(model, build_mesh("dp=1")), model.default_shape, batch_size=1)
    assert [stage.name for stage in stages] == ["encode", "condition", "denoise", "preview", "decode"]


@pytest.mark.parametrize("mesh", ["dp=2,sp=4", "dp=2,sp=2,tp=2"])
def test_weights_are_described_as_the_loader_places_them(load_family: Callable[..., Any], mesh: str) -> None:
    family = load_family(mesh=mesh)
    described = describe_parts(family.model, build_mesh(mesh))

    def look(parts: Any) -> Any:
        return jax.tree.map(lambda one: (one.shape, one.dtype, one.sharding), parts.weights)

    assert look(described) == look(family.parts)
    assert (described.text_length, described.dtype) == (family.parts.text_length, family.parts.dtype)


def test_two_experts_share_the_steps_and_one_program() -> None:
    model = load_catalog().get("wan2.2-a14b")
    stages = {
        stage.name: stage
        for stage in list_stages(model, describe_parts(model, build_mesh("dp=1")), model.default_shape, batch_size=1)
    }
    assert stages["denoise"].program is stages["denoise_2"].program
    assert stages["denoise_2"].components == ("transformer_2",)
    assert 0 < stages["denoise"].runs < model.steps == stages["denoise"].runs + stages["denoise_2"].runs


def test_a_step_cache_has_a_program_of_its_own_whose_experts_reuse_their_own_steps() -> None:
    model = load_catalog().get("wan2.2-a14b")
    parts = describe_parts(model, build_mesh("dp=1"))
    last = model.steps - 1
    how: dict[str, Any] = {"batch_size": 1, "reused_steps": (3, last - 1, last)}
    plain, cached, foreseen = (
        {one.name: one for one in list_stages(model, parts, model.default_shape, cache_kind=kind, **how)}
        for kind in ("", MAGCACHE, TAYLOR)
    )
    assert cached.keys() == foreseen.keys() == plain.keys() | {"residual"}
    assert len({stages["denoise"].program.key for stages in (plain, cached, foreseen)}) == 3
    for stages in (cached, foreseen):
        assert [stages[name].reused for name in ("denoise", "denoise_2")] == [1, 2]


@pytest.mark.parametrize(
    ("model_id", "names"),
    [
        ("sdxl-base", ["encode", "condition", "denoise", "preview", "decode"]),
        ("flux2-dev", ["encode", "reference", "denoise", "preview", "decode"]),
        ("wan2.1-i2v-14b", ["encode", "image", "condition", "denoise", "preview", "decode"]),
        ("wan2.2-ti2v-5b", ["encode", "condition", "denoise", "preview", "decode"]),
    ],
)
def test_every_stage_is_listed_in_the_order_of_a_job(model_id: str, names: list[str]) -> None:
    model = load_catalog().get(model_id)
    parts = describe_parts(model, build_mesh("dp=1"))
    stages = list_stages(model, parts, model.default_shape, batch_size=1)
    assert [stage.name for stage in stages] == names
    assert {name for stage in stages for name in stage.components} == parts.weights.keys()
    once = {stage.name for stage in stages if stage.runs == 1}
    assert once == {"encode", "decode"} | ({"image", "condition"} if model.min_images else set())


def test_describing_the_largest_model_takes_no_memory_for_its_weights() -> None:
    code = (
        "import re, sys; from pathlib import Path; sys.path.insert(0, '.');"
        "from pipelines.runtime.devices.platform import prepare_compiler; prepare_compiler(cpu_devices=1);"
        "from pipelines.models.catalog import load_catalog; from pipelines.runtime.devices.mesh import build_mesh;"
        "from pipelines.registry import describe_parts;"
        "describe_parts(load_catalog().get('flux2-dev'), build_mesh('dp=1'));"
        # of this program and its imports alone: what getrusage says counts the test process too
        "print(re.search(r'VmHWM:\\s+(\\d+)', Path('/proc/self/status').read_text())[1])"
    )
    done = subprocess.run([find_forked_python(), "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert int(done.stdout.split()[-1]) < 4_000_000  # kilobytes; the weights alone have 100 GB

"""What would do nothing with a model is refused before anything is fetched."""

from dataclasses import replace
from pathlib import Path

from pipelines import registry
from pipelines.models.catalog import load_catalog
from pipelines.training.refusals import find_strange
from pipelines.training.settings import TrainingSettings


def test_a_single_file_has_no_variants() -> None:
    settings = TrainingSettings(model="demo-sdxl", data=("d",), lora=True, variant="fp16")
    model = load_catalog().get("demo-sdxl")
    learner = registry.find_learner(model)
    assert "variant" not in find_strange(settings, model, learner)
    single = replace(model, base=model, file=Path("corgi.safetensors"), path=None)
    assert "is of models with a file for each part" in find_strange(settings, single, learner)["variant"]

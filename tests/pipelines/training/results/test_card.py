"""The model card: what it says of base, licence, use and training is so, and the hub takes its fields."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from pipelines import registry
from pipelines.loras.files import LoraFile
from pipelines.models.catalog import Model, load_catalog, open_model
from pipelines.training.checks import check_training
from pipelines.training.results.card import write_card
from pipelines.training.settings import read_settings
from tests.pipelines.training.zorb import make


@pytest.fixture(name="data", scope="module")
def make_data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make(tmp_path_factory.mktemp("data") / "zorb", count=3, side=64)


def write(data: Path, model: Model, **asked: Any) -> tuple[dict[str, Any], str]:
    """Returns a card's fields and text."""
    settings = read_settings({"model": model.id, "data": (str(data),), "mesh": "dp=1", "global_batch_size": 2} | asked)
    checked = check_training(settings, model, registry.find_learner(model), name="zorb")
    _, fields, text = write_card(settings, checked, steps=7).split("---\n", 2)
    return yaml.safe_load(fields), text


def test_of_all_weights_the_base_is_the_repository_that_they_were_taken_from(data: Path) -> None:
    fields, text = write(
        data, load_catalog().get("flux2-klein-9b"), full=True, hub_model_id="me/zorb", push_to_hub=True
    )
    assert (fields["base_model"], fields["base_model_relation"]) == (
        "black-forest-labs/FLUX.2-klein-base-9B",
        "finetune",
    )
    assert (fields["license"], fields["license_name"]) == ("other", "flux-non-commercial-license")
    assert "A fine-tuned model of `black-forest-labs/FLUX.2-klein-base-9B`, trained" in text
    assert 'from_pretrained("me/zorb"' in text and "load_lora_weights" not in text


def test_of_a_lora_the_base_is_the_model_that_it_is_used_on(data: Path) -> None:
    klein = load_catalog().get("flux2-klein-4b")
    fields, text = write(data, klein, lora=True, trigger='a "zorb"', rank=8)
    assert (fields["base_model"], fields["base_model_relation"]) == (klein.repo, "adapter")
    assert (fields["license"], fields["instance_prompt"], fields["tags"]) == ("apache-2.0", 'a "zorb"', ["lora"])
    assert f'from_pretrained("{klein.repo}"' in text and 'weight_name="zorb.safetensors"' in text
    assert "A LoRA of FLUX.2 klein 4B that learnt from `black-forest-labs/FLUX.2-klein-base-4B`, trained" in text
    assert "| rank | 8, alpha 8 |" in text and "| steps | 7, of 2 each |" in text and "| pictures | 3: " in text


@pytest.mark.parametrize("kind", ["lora", "full"])
def test_a_model_that_no_repository_has_is_no_base_on_the_hub(data: Path, data_dir: Path, kind: str) -> None:
    fields, text = write(data, open_model(data_dir / "models" / "tiny"), **{kind: True})
    assert fields.keys().isdisjoint({"base_model", "base_model_relation", "license"})
    assert "of tiny, trained with Lumesh." in text
    assert ("from_pretrained" in text) is (kind == "full")


def test_the_licence_that_the_hub_names_and_the_lora_that_it_began_as_are_there(data: Path) -> None:
    model = replace(load_catalog().get("sdxl-base"), licence="openrail++")
    settings = read_settings({"model": model.id, "data": (str(data),), "mesh": "dp=1", "lora": True})
    checked = check_training(settings, model, registry.find_learner(model), name="zorb")
    first = LoraFile(ref="/home/me/zo|rb", title="", family="sdxl", path=data, size=1)
    _, fields, text = write_card(settings, replace(checked, first_lora=first), steps=7).split("---\n", 2)
    assert yaml.safe_load(fields)["license"] == "openrail++"
    assert "| learnt on from | `zo\\|rb` |" in text and "/home/me" not in text


def test_names_that_diffusers_does_not_read_are_not_shown_with_it(data: Path) -> None:
    sdxl = load_catalog().get("sdxl-base")
    assert "load_lora_weights" not in write(data, sdxl, lora=True, lora_format="kohya")[1]
    assert "load_lora_weights" in write(data, replace(sdxl, id="other"), lora=True)[1]

"""A name in a prompt finds the LoRA file that is meant."""

from pathlib import Path

import pytest

from pipelines.loras.files import LoraFile
from pipelines.models.catalog import load_catalog
from pipelines.prompts.lora_names import find_lora


@pytest.mark.parametrize(
    ("name", "ref"),
    [
        ("Ink Wash", "ink_wash"),
        ("wan/ink-wash.SafeTensors", "wan/ink-wash"),
        ("elsewhere\\ink-wash.safetensors", "wan/ink-wash"),
        ("v1.0", "sdxl/v1.0"),
        ("v10", None),
        ("", None),
    ],
)
def test_a_name_finds_its_file_in_any_folder(name: str, ref: str | None) -> None:
    refs = {"ink_wash": "wan", "wan/ink-wash": "wan", "wan/v1.0": "wan", "sdxl/v1.0": "sdxl"}
    files = [LoraFile(ref, ref, family, Path(), 0) for ref, family in refs.items()]
    found = find_lora(name, files, load_catalog().get("sdxl-base"))
    assert (None if found is None else found.ref) == ref

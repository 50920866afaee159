"""What people are told where a checkpoint is not whole."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pipelines.errors import ModelError
from pipelines.messages import say
from pipelines.models.catalog import load_catalog
from pipelines.runtime.weights import hub
from pipelines.runtime.weights.components import find_checkpoint
from pipelines.stages import ignore_progress


def test_a_file_whose_base_is_out_of_reach_may_have_another(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_arguments: Any, **_options: Any) -> Path:
        raise ModelError(say("The hub cannot be reached."), advice=say("Check the network."))

    monkeypatch.setattr(hub, "locate", fail)
    base = load_catalog().get("sdxl-base")
    model = replace(base, id="pony", title="Pony", repo="", file=tmp_path / "pony.safetensors", base=base)
    with pytest.raises(ModelError) as raised:
        find_checkpoint(
            model, components=("unet", "tokenizer"), stages_of={"unet": ("denoise",), "tokenizer": ("encode",)},
            stages=("encode", "denoise"), is_verified=False, on_progress=ignore_progress, in_files=("unet",),
        )  # fmt: skip
    assert str(raised.value.detail) == "Pony takes its tokenizer from sdxl-base. The hub cannot be reached."
    assert str(raised.value.advice).startswith("Check the network. A model of the same kind that is here can give them")
    assert "name it as configs of pony in models.toml" in str(raised.value.advice)

"""Single files of FLUX.2 and Wan hold the very transformers of the folders that they were made from."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import diffusers
import jax
import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from pipelines.models.catalog import PRESETS_DIR, read_data_dir
from pipelines.registry import find_architecture, find_learner
from pipelines.runtime.devices.mesh import build_mesh
from pipelines.runtime.weights.shard_load import load_weights
from pipelines.runtime.weights.single_file import StoredComponent, read_folder
from pipelines.stages import ignore_progress
from pipelines.training.engine.denoiser import Origin
from pipelines.training.results.own_parts import list_own_parts, write_own_parts
from tests.pipelines.single_files import read_component, write_flux2, write_wan

PREFIXES = {"its authors'": "", "ComfyUI's": "model.diffusion_model."}


def read(component: StoredComponent) -> dict[str, np.ndarray]:
    where = jax.sharding.SingleDeviceSharding(jax.devices()[0])
    loaded = load_weights(
        component.weights, dict.fromkeys(component.weights, where), dtype=np.float32, on_tensor=lambda *_: None
    )
    return {name: np.asarray(one) for name, one in loaded.items()}


@pytest.mark.parametrize("prefix", PREFIXES.values(), ids=PREFIXES.keys())
@pytest.mark.parametrize(("base", "write"), [("demo-flux2", write_flux2), ("demo-wan", write_wan)])
def test_a_file_that_is_dropped_holds_its_folders_transformer(
    tmp_path: Path, base: str, write: Callable[..., Path], prefix: str
) -> None:
    folder = PRESETS_DIR / "demo" / base
    write(folder, tmp_path / "models" / "mine.safetensors", prefix=prefix)
    catalog = read_data_dir(tmp_path)
    assert not catalog.unusable
    model = catalog.get("mine")
    assert model.base == catalog.get(base)
    assert f"From {base}: vae, text encoder." in model.description
    architecture: Any = find_architecture(model)
    components = architecture.read_files(model)
    assert components.keys() == {"transformer"}
    own, theirs = read(components["transformer"]), read(read_folder(folder / "transformer"))
    assert own.keys() == theirs.keys()
    assert not [name for name in theirs if not np.array_equal(own[name], theirs[name])]


@pytest.mark.parametrize(("base", "write"), [("demo-flux2", write_flux2), ("demo-wan", write_wan)])
def test_a_folder_of_all_its_weights_has_its_own_vae(tmp_path: Path, base: str, write: Callable[..., Path]) -> None:
    """The folder is as a training of them leaves it beside the transformer that learnt."""
    demo = PRESETS_DIR / "demo" / base
    write(demo, tmp_path / "models" / "mine.safetensors")
    stored = {name: one * 0.9 for name, one in read_component(demo / "vae").items()}
    save_file(stored, tmp_path / "vae.safetensors")
    entry = f'[[model]]\nid = "own"\nfile = "mine.safetensors"\nconfigs = "{base}"\nvae = "../vae.safetensors"\n'
    (tmp_path / "models.toml").write_text(entry, "utf-8")
    model = read_data_dir(tmp_path).get("own")
    architecture: Any = find_architecture(model)
    origin = Origin(
        model=model,
        learner=find_learner(model),
        folder=demo,
        mesh=build_mesh("dp=1"),
        on_progress=ignore_progress,
        files=architecture.read_files(model),
    )
    assert list_own_parts(origin, ["transformer"]) == ("vae",)
    write_own_parts(origin, tmp_path / "result", ["transformer"])
    vae = diffusers.AutoModel.from_pretrained(str(tmp_path / "result"), subfolder="vae")
    learnt = vae.state_dict()
    assert not [name for name, one in stored.items() if not torch.equal(learnt[name], one.float())]

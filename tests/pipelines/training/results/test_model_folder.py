"""The folder of a model whose weights all learnt: whole for diffusers, whatever its base's folder looked like."""

import json
import os
import shutil
import stat
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from diffusers import StableDiffusionPipeline
from safetensors.torch import load_file, save_file

from pipelines.errors import RecipeError
from pipelines.models.catalog import find_shipped, load_catalog, open_model, read_data_dir
from pipelines.models.own_models import INDEX
from pipelines.registry import find_learner
from pipelines.runtime.devices.mesh import build_mesh
from pipelines.stages import ignore_progress
from pipelines.training.engine.denoiser import Origin
from pipelines.training.engine.step import TrainState
from pipelines.training.place import Place
from pipelines.training.results.export import NotFiniteError
from pipelines.training.results.model_folder import UnwrittenError, list_absent, write_model
from pipelines.training.results.room import check_room, tell_room

ABSENT = {
    "safety_checker": ["stable_diffusion", "StableDiffusionSafetyChecker"],
    "feature_extractor": ["transformers", "CLIPImageProcessor"],
    "requires_safety_checker": True,
}


def write_halves(tiny: Path, folder: Path) -> Path:
    """Writes a folder as the hub's cache has one: of each component one variant, its text encoder in two files.

    Its index names what was not fetched, and it lies where another training has worked.
    """
    shutil.copytree(tiny, folder)
    for file in folder.rglob("*.safetensors"):
        halves = {name: value.half() if value.is_floating_point() else value for name, value in load_file(file).items()}
        file.unlink()
        stem = file.name.removesuffix(".safetensors")
        if file.parent.name != "text_encoder":
            save_file(halves, file.with_name(f"{stem}.fp16.safetensors"))
            continue
        names, weight_map = sorted(halves), {}
        for number in (0, 1):
            part = f"{stem}.fp16-{number + 1:05d}-of-00002.safetensors"
            save_file(
                {name: halves[name] for name in names[number::2]}, file.with_name(part), metadata={"format": "pt"}
            )
            weight_map |= dict.fromkeys(names[number::2], part)
        index = {"metadata": {}, "weight_map": weight_map}
        file.with_name(f"{stem}.safetensors.index.fp16.json").write_text(json.dumps(index), "utf-8")
    index = json.loads((folder / INDEX).read_text("utf-8"))
    (folder / INDEX).write_text(json.dumps(index | ABSENT), "utf-8")
    for name in ("state/7/leaf", "samples/1.png", "settings.json", "installed.json", "LICENSE.md"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text("the base's", "utf-8")
    return folder


def read_unet(folder: Path) -> dict[str, np.ndarray]:
    (file,) = (folder / "unet").glob("*.safetensors")
    return {name: value.float().numpy() for name, value in load_file(file).items()}


def write(folder: Path, base: Path, values: Mapping[str, np.ndarray], **asked: Any) -> Path:
    usual = {"component": "unet", "variant": "fp16", "precision": "bf16", "card": "# card\n", "written": {}}
    write_model(folder, values, base=base, **{**usual, **asked})
    return folder


@pytest.fixture(name="base", scope="module")
def write_base(data_dir: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_halves(data_dir / "models" / "sd-one", tmp_path_factory.mktemp("hub") / "base")


@pytest.mark.parametrize("is_linked", [False, True])
def test_diffusers_reads_it_whole_from_a_base_of_one_variant_without_what_was_not_fetched(
    base: Path, tmp_path: Path, *, is_linked: bool
) -> None:
    learnt = {name: value + 1 for name, value in read_unet(base).items()}
    assert list_absent(base) == ["feature_extractor", "safety_checker"]
    assert list_absent(base, {"safety_checker", "unet"}) == ["feature_extractor"], "a file of one's own may bring it"
    folder = write(tmp_path / "learnt", base, learnt, is_linked=is_linked)

    pipeline = StableDiffusionPipeline.from_pretrained(folder)
    assert pipeline.safety_checker is None
    for name, value in pipeline.unet.state_dict().items():
        torch.testing.assert_close(value, torch.from_numpy(learnt[name]).bfloat16().float(), rtol=0, atol=0)
    (vae,) = (base / "vae").glob("*.safetensors")
    stored = load_file(vae)
    for name, value in pipeline.vae.state_dict().items():
        assert torch.equal(value, stored[name].float())
    encoder = pipeline.text_encoder.state_dict()
    texts = [*(base / "text_encoder").glob("*.safetensors")]
    assert len(texts) == 2
    for file in texts:
        assert all(
            torch.equal(encoder[name].half(), value) for name, value in load_file(file).items() if name in encoder
        )
    assert [one.name for one in sorted(folder.iterdir()) if one.is_file()] == ["LICENSE.md", "README.md", INDEX]
    assert not (folder / "state").exists() and not (folder / "samples").exists()


def test_its_weights_can_be_read_by_whoever_reads_other_new_files(base: Path, tmp_path: Path) -> None:
    before = os.umask(0o022)
    try:
        folder = write(tmp_path / "learnt", base, read_unet(base))
    finally:
        os.umask(before)
    modes = {stat.S_IMODE(file.stat().st_mode) for file in folder.rglob("*") if file.is_file()}
    assert modes == {0o644}


def test_a_model_that_was_trained_here_keeps_the_settings_of_what_it_was_made_from(tmp_path: Path) -> None:
    demo = load_catalog().get("demo-sdxl")
    assert demo.path is not None and find_shipped(demo) == "demo-sdxl"
    first = write(tmp_path / "models" / "first", demo.path, read_unet(demo.path), variant="", like="demo-sdxl")
    model = open_model(first)
    settings = ("steps", "guidance_scale", "shapes", "scheduler", "is_demo", "licence")
    assert [getattr(model, name) for name in settings] == [getattr(demo, name) for name in settings]

    second = write(tmp_path / "models" / "second", first, read_unet(first), like=find_shipped(model))
    assert open_model(second).shapes == demo.shapes
    assert [one.id for one in read_data_dir(tmp_path).models if one.path == second] == ["second"]


def test_what_is_too_large_for_its_precision_is_not_written(base: Path, tmp_path: Path) -> None:
    values = {name: value * (1e6 if name == "conv_in.weight" else 1) for name, value in read_unet(base).items()}
    with pytest.raises(NotFiniteError, match=r"conv_in.weight is too large for fp16"):
        write(tmp_path / "learnt", base, values, precision="fp16")
    assert not (tmp_path / "learnt").exists()
    stored = read_unet(write(tmp_path / "learnt", base, values, precision="fp32"))
    assert all(np.array_equal(value, stored[name]) for name, value in values.items())


def test_what_a_disk_refuses_is_told_with_what_to_do(base: Path, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("", "utf-8")
    with pytest.raises(UnwrittenError, match="run the same command again"):
        write(tmp_path / "file" / "learnt", base, read_unet(base))


def test_a_disk_without_room_for_the_result_is_found_before_anything_is_learnt(base: Path, tmp_path: Path) -> None:
    origin = Origin(
        model=open_model(base),
        learner=find_learner(open_model(base)),
        folder=shutil.copytree(base, tmp_path / "base"),
        mesh=build_mesh("dp=1"),
        on_progress=ignore_progress,
    )
    place = Place(output=tmp_path / "learnt", cache=tmp_path, cache_dir=tmp_path)
    place.output.mkdir()
    learning = origin.learner.list_denoisers(origin.folder, {})
    check_room(origin, place, learning, "fp32")

    (vae,) = (origin.folder / "vae").glob("*.safetensors")
    os.truncate(vae, 2**43)  # a hole, of more bytes than any disk here has free
    with pytest.raises(RecipeError, match="make room, or choose another folder"):
        check_room(origin, place, learning, "fp32")
    earlier = fill(place.output / "vae", 2**43)
    check_room(origin, place, learning, "fp32")  # it is replaced
    os.link(earlier, tmp_path / "installed.safetensors")  # with which nothing is freed
    with pytest.raises(RecipeError, match="make room"):
        check_room(origin, place, learning, "fp32")

    parts = find_stored_components(SimpleNamespace(shape=(2**43,)))  # a VAE of its own, in place of the base's
    with pytest.raises(RecipeError, match="make room"):
        check_room(replace(origin, folder=base, files=parts), place, learning, "fp32")
    os.truncate(vae, 2**43)
    check_room(replace(origin, files=find_stored_components(SimpleNamespace(shape=(2,)))), place, learning, "fp32")


def test_a_denoiser_that_is_there_is_no_room_for_the_new_one(base: Path, tmp_path: Path) -> None:
    model = open_model(base)
    huge = find_stored_components(SimpleNamespace(shape=(2**42,)), "unet")
    origin = Origin(
        model=model, learner=find_learner(model), folder=base, mesh=build_mesh("dp=1"), on_progress=ignore_progress,
        files=huge,
    )  # fmt: skip
    place = Place(output=tmp_path / "learnt", cache=tmp_path, cache_dir=tmp_path)
    fill(place.output / "unet", 2**43)
    with pytest.raises(RecipeError, match="make room"):
        check_room(origin, place, origin.learner.list_denoisers(base, {}), "fp16")


def fill(component: Path, size: int) -> Path:
    """Writes a file of weights with so many bytes, all of them a hole."""
    file = component / "diffusion_pytorch_model.safetensors"
    component.mkdir(parents=True)
    file.touch()
    os.truncate(file, size)
    return file


def find_stored_components(weight: Any, component: str = "vae") -> dict[str, Any]:
    return {component: SimpleNamespace(weights={"w": weight})}


def test_a_state_that_the_disk_has_no_room_for_is_told(tmp_path: Path) -> None:
    weight = np.zeros(2, np.float32)
    assert tell_room(TrainState(np.zeros(()), {"a": weight}, (), {}), tmp_path) is None
    huge = np.broadcast_to(weight[:1], (2**42,))  # which takes four bytes here
    assert "a stop would lose what is learnt" in str(tell_room(TrainState(np.zeros(()), {"a": huge}, (), {}), tmp_path))

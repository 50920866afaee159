"""Installing a result: whole, again after a kill, and never over what is not of this training."""

import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pipelines.errors import LumeshError, RecipeError
from pipelines.training.results.installing import check_targets, install


class KilledError(BaseException):
    """As if the process had ended here."""


def write_model(output: Path, weight: bytes = b"learnt") -> Path:
    """Writes what a training of all weights has in its folder."""
    for name, content in {
        "model_index.json": b"{}", "unet/a.safetensors": weight * 20_000, "unet/b.safetensors": weight * 30_000,
        "state/6/leaf": b"big", "log.jsonl": b"{}", "settings.json": b"{}", "samples/1.png": b"png",
    }.items():  # fmt: skip
        file = output / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(content)
    return output


def write_lora(output: Path, content: bytes = b"learnt") -> Path:
    output.mkdir(parents=True, exist_ok=True)
    file = output / "corgi.safetensors"
    file.write_bytes(content)
    return file


def read(folder: Path) -> dict[str, bytes]:
    return {file.relative_to(folder).as_posix(): file.read_bytes() for file in folder.rglob("*") if file.is_file()}


def test_a_models_weights_lie_on_the_disk_once(tmp_path: Path) -> None:
    output = tmp_path / "training" / "corgi"
    target = install(write_model(output), output, tmp_path / "data", "corgi")
    assert (target / "unet" / "a.safetensors").samefile(output / "unet" / "a.safetensors")
    assert not (target / "model_index.json").samefile(output / "model_index.json")


@pytest.mark.parametrize("write", [write_lora, write_model])
def test_a_result_is_installed_again_by_the_same_training_and_by_no_other(
    tmp_path: Path, write: Callable[..., Path]
) -> None:
    output, data_dir = tmp_path / "training" / "corgi", tmp_path / "data"
    target = install(write(output), output, data_dir, "corgi")
    result = write(output, b"longer")  # more steps
    check_targets([result], output, data_dir, "corgi")
    install(result, output, data_dir, "corgi")
    assert b"longer" in (target if target.is_file() else target / "unet" / "a.safetensors").read_bytes()

    other = tmp_path / "other"
    with pytest.raises(RecipeError, match="choose another --name"):
        check_targets([write(other, b"others")], other, data_dir, "corgi")
    before = target.read_bytes() if target.is_file() else read(target)
    with pytest.raises(LumeshError, match="stays"):
        install(write(other, b"others"), other, data_dir, "corgi")
    assert before == (target.read_bytes() if target.is_file() else read(target))


def test_nothing_of_the_training_but_its_result_is_installed(tmp_path: Path) -> None:
    target = install(write_model(tmp_path / "out"), tmp_path / "out", tmp_path, "corgi")
    assert read(target).keys() == {"model_index.json", "unet/a.safetensors", "unet/b.safetensors"}
    assert [one.name for one in target.parent.iterdir()] == ["corgi"]


def test_a_kill_while_a_model_is_copied_leaves_none_and_the_same_command_installs_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    output = write_model(tmp_path / "out")
    link = os.link

    def die(source: Any, target: Any) -> None:
        if os.fspath(source).endswith("b.safetensors"):
            raise KilledError
        link(source, target)

    with monkeypatch.context() as patch, pytest.raises(KilledError):
        patch.setattr(os, "link", die)
        install(output, output, tmp_path, "corgi")
    assert not (tmp_path / "models" / "corgi").exists()

    check_targets([output], output, tmp_path, "corgi")
    target = install(output, output, tmp_path, "corgi")
    assert read(target).keys() == {"model_index.json", "unet/a.safetensors", "unet/b.safetensors"}
    assert [one.name for one in target.parent.iterdir()] == ["corgi"]


def test_half_a_model_is_known_and_replaced(tmp_path: Path) -> None:
    """As an earlier version left one, which copied straight to its place."""
    output = write_model(tmp_path / "out")
    half = tmp_path / "models" / "corgi"
    (half / "unet").mkdir(parents=True)
    (half / "unet" / "a.safetensors").write_bytes((output / "unet" / "a.safetensors").read_bytes()[:70_001])

    check_targets([output], output, tmp_path, "corgi")
    install(output, output, tmp_path, "corgi")

    assert read(half).keys() == {"model_index.json", "unet/a.safetensors", "unet/b.safetensors"}


def test_a_lora_that_somebody_has_put_there_is_refused_before_anything_is_learnt(tmp_path: Path) -> None:
    (tmp_path / "loras").mkdir()
    (tmp_path / "loras" / "corgi.safetensors").write_bytes(b"downloaded")
    with pytest.raises(RecipeError, match=r"corgi\.safetensors is there already"):
        check_targets([tmp_path / "out" / "corgi.safetensors"], tmp_path / "out", tmp_path, "corgi")
    (tmp_path / "models").mkdir()
    (tmp_path / "models" / "corgi").symlink_to(tmp_path / "gone")
    with pytest.raises(RecipeError, match="is there already"):
        check_targets([tmp_path / "out"], tmp_path / "out", tmp_path, "corgi")


@pytest.mark.parametrize("there", ["Corgi.safetensors", "corgi/adapter_model.safetensors"])
def test_a_loras_name_is_taken_in_other_letters_and_by_a_folder_of_pefts_too(tmp_path: Path, there: str) -> None:
    file = tmp_path / "data" / "loras" / there
    file.parent.mkdir(parents=True)
    file.write_bytes(b"somebody's")
    output = tmp_path / "out"
    with pytest.raises(RecipeError, match="choose another --name"):
        check_targets([write_lora(output)], output, tmp_path / "data", "corgi")
    with pytest.raises(LumeshError, match="stays"):
        install(write_lora(output), output, tmp_path / "data", "corgi")


def test_a_copy_that_the_disk_refuses_leaves_nothing_and_says_where_the_result_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    output = write_model(tmp_path / "training" / "corgi", b"learnt")

    def refuse(*_args: Any, **_options: Any) -> None:
        raise shutil.Error([("a", "b", "No space left on device")])

    monkeypatch.setattr(shutil, "copytree", refuse)
    with pytest.raises(LumeshError, match="What was learnt is at"):
        install(output, output, tmp_path / "data", "corgi")
    assert not [*(tmp_path / "data").rglob("*.part")]


def test_a_damaged_record_knows_of_nothing(tmp_path: Path) -> None:
    output = tmp_path / "training" / "corgi"
    install(write_lora(output), output, tmp_path / "data", "corgi")
    (output / "installed.json").write_text("")
    check_targets([write_lora(output)], output, tmp_path / "data", "corgi")  # the same bytes are its own all the same

"""A weight is found however a checkpoint spells it; what is missing or of another shape is said in one sentence."""

from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from pipelines.errors import ModelError
from pipelines.runtime.weights.resolve import resolve, split_layers
from pipelines.runtime.weights.stored import StoredTensor, read_headers

SHAPES = {"proj.weight": (8, 6), "proj.bias": (8,), "scale": ()}
STACK = {"blocks.every_layer.weight": (3, 2)}
LAYERS = {f"blocks.{index}.weight": (2,) for index in range(3)}


def store(folder: Path, shapes: dict[str, tuple[int, ...]]) -> dict[str, StoredTensor]:
    save_file({name: torch.zeros(shape) for name, shape in shapes.items()}, folder / "model.safetensors")
    return read_headers([folder / "model.safetensors"])


def drop(shapes: dict[str, tuple[int, ...]], name: str) -> dict[str, tuple[int, ...]]:
    return {other: shape for other, shape in shapes.items() if other != name}


def test_a_missing_weight_is_named(tmp_path: Path) -> None:
    stored = store(tmp_path, drop(SHAPES, "proj.bias"))
    with pytest.raises(ModelError, match=r"lacks 1 of 3 weights, proj\.bias first.*another architecture"):
        resolve(stored, SHAPES)


def test_a_weight_of_another_shape_is_named_with_both_shapes(tmp_path: Path) -> None:
    stored = store(tmp_path, SHAPES | {"proj.weight": (6, 8)})
    with pytest.raises(
        ModelError, match=r"proj\.weight has shape \(6, 8\) in the checkpoint; the model expects \(8, 6\)"
    ):
        resolve(stored, SHAPES)


def test_what_is_missing_is_said_before_what_is_of_another_shape(tmp_path: Path) -> None:
    stored = store(tmp_path, drop(SHAPES, "scale") | {"proj.weight": (6, 8)})
    with pytest.raises(ModelError, match="lacks 1 of 3"):
        resolve(stored, SHAPES)


def test_more_weights_than_needed_are_passed_over(tmp_path: Path) -> None:
    assert resolve(store(tmp_path, SHAPES | {"position_ids": (4,)}), SHAPES).keys() == SHAPES.keys()


@pytest.mark.parametrize("stored_prefix", ["", "text_model."])
@pytest.mark.parametrize("own_prefix", ["", "text_model."])
def test_a_prefix_may_stand_in_the_files_or_in_the_module(tmp_path: Path, stored_prefix: str, own_prefix: str) -> None:
    stored = store(tmp_path, {stored_prefix + name: shape for name, shape in SHAPES.items()})
    shapes = {own_prefix + name: shape for name, shape in SHAPES.items()}
    resolved = resolve(stored, shapes, ["text_model."])
    assert resolved == {name: stored[stored_prefix + name.removeprefix(own_prefix)] for name in shapes}


@pytest.mark.parametrize("spelling", ["", "model.", "language_model.model."])
def test_any_of_several_prefixes_may_be_the_checkpoints(tmp_path: Path, spelling: str) -> None:
    stored = store(tmp_path, {spelling + name: shape for name, shape in LAYERS.items()})
    resolved = resolve(stored, STACK, ["model.", "language_model.model."])
    assert resolved == {name: stored[spelling + name] for name in LAYERS}


def test_a_stack_is_resolved_layer_by_layer(tmp_path: Path) -> None:
    stored = store(tmp_path, LAYERS)
    assert resolve(stored, STACK) == stored
    assert split_layers("blocks.every_layer.weight", (3, 2)) == LAYERS
    assert split_layers("proj.weight", (8, 6)) == {"proj.weight": (8, 6)}


@pytest.mark.parametrize("missing", [0, 2])
def test_a_stack_that_lacks_a_layer_names_it(tmp_path: Path, missing: int) -> None:
    stored = store(tmp_path, drop(LAYERS, f"blocks.{missing}.weight"))
    with pytest.raises(ModelError, match=rf"lacks blocks\.{missing}\.weight"):
        resolve(stored, STACK)


def test_a_stack_of_which_nothing_is_stored_counts_as_one_missing_weight(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=r"lacks 1 of 4 weights, blocks\.every_layer\.weight first"):
        resolve(store(tmp_path, SHAPES), SHAPES | STACK)


@pytest.mark.parametrize("rows", [1, 3])
def test_every_layer_of_a_stack_must_have_the_models_shape(tmp_path: Path, rows: int) -> None:
    stored = store(tmp_path, LAYERS | {"blocks.2.weight": (rows,)})
    with pytest.raises(ModelError, match=rf"blocks\.2\.weight has shape \({rows},\).* expects \(2,\)"):
        resolve(stored, STACK)


@pytest.mark.parametrize("spelling", ["shared.weight", "encoder.embed_tokens.weight"])
def test_a_tied_table_may_have_either_of_its_names(tmp_path: Path, spelling: str) -> None:
    """Newer versions of transformers save only the second of UMT5's."""
    stored = store(tmp_path, {spelling: (4, 2)})
    assert resolve(stored, {"shared.weight": (4, 2)})["shared.weight"] is stored[spelling]

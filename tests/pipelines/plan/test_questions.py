"""What the page of plans is about: every model everywhere, every shape once, pictures for a crowd."""

from collections import Counter

from pipelines.models.catalog import load_catalog
from pipelines.plan.answers import SHIPPED
from pipelines.plan.lines import read_lines
from pipelines.plan.questions import LARGEST, is_alike, is_planned_when_asked, list_kinds, list_matrix
from pipelines.plan.topologies import TOPOLOGIES


def test_every_model_is_planned_on_every_topology_and_every_kind_of_shape_on_the_largest() -> None:
    models = [model for model in load_catalog().models if not is_planned_when_asked(model)]
    assert len(models) > 12
    asked = Counter((one.model.id, one.topology.name) for one in list_matrix(models) if one.mode == "latency")
    names = {name for name, one in TOPOLOGIES.items() if one.chip and name != "v7x-8"} | {"cpu-8"}
    assert {one for one in asked if one[1] != "v7x-8"} == {(model.id, name) for model in models for name in names}
    assert ("flux2-klein-4b", "v7x-8") in asked, "not all models are planned for it yet"
    for model in models:
        kinds = list_kinds(model)
        assert asked[model.id, LARGEST] == len(kinds)
        assert all(any(is_alike(shape, kind) for kind in kinds) for shape in model.shapes)
        assert asked[model.id, "v5e-1"] == 1


def test_pictures_are_planned_for_a_crowd_videos_are_not() -> None:
    crowds = {(one.model.id, one.topology.name) for one in list_matrix(load_catalog().models) if one.mode != "latency"}
    assert ("sdxl-base", "v6e-8") in crowds
    assert not any("wan" in model for model, _ in crowds)


def test_the_shipped_answers_are_the_whole_page() -> None:
    asked = {(one.model.id, str(one.shape), one.topology.name, one.mode) for one in list_matrix(load_catalog().models)}
    answered = {(line["model"], line["shape"], line["topology"], line["mode"]) for line in read_lines(SHIPPED)}
    assert asked <= answered
    known = {(model.id, str(shape)) for model in load_catalog().models for shape in model.shapes}
    assert {(model, shape) for model, shape, *_ in answered} <= known, "of a shape that there is no more"

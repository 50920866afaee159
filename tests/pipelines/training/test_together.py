"""Hosts that were told other things or have other data are found before anything is learnt; a folder each is enough."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from pipelines import registry
from pipelines.models.catalog import load_catalog
from pipelines.runtime.devices import hosts
from pipelines.runtime.devices.hosts import HostsError
from pipelines.training.checks import check_training
from pipelines.training.place import Place
from pipelines.training.settings import read_settings
from pipelines.training.together import compare_hosts, find_common_folder, find_configs_of_all
from tests.pipelines.training.zorb import make

ASKED: dict[str, Any] = {"model": "demo-sdxl", "lora": True, "steps": 4, "global_batch_size": 8}


class OtherHost:
    """A second host, of which it is known what it says of each topic."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.says: Callable[[str, Any], Any] = lambda _topic, value: value
        patch.setattr(hosts, "count", lambda: 2)
        patch.setattr(hosts, "collect", lambda topic, value: [value, self.says(topic, value)])


@pytest.fixture(name="other")
def meet_another(monkeypatch: pytest.MonkeyPatch) -> OtherHost:
    return OtherHost(monkeypatch)


@pytest.fixture(name="data", scope="module")
def make_data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make(tmp_path_factory.mktemp("together") / "zorb", count=4, side=64)


def compare(monkeypatch: pytest.MonkeyPatch, own: Mapping[str, Any], others: Mapping[str, Any]) -> str:
    """Returns what hosts with these settings are told; nothing where they fit together."""
    facts: list[Mapping[str, str]] = []
    model = load_catalog().get("demo-sdxl")
    monkeypatch.setattr(hosts, "count", lambda: 2)
    monkeypatch.setattr(hosts, "compare", facts.append)
    for asked in (own, others):
        settings = read_settings({**ASKED, **asked})
        compare_hosts(settings, check_training(settings, model, registry.find_learner(model), name="zorb"))
    monkeypatch.undo()
    with monkeypatch.context() as patch:
        OtherHost(patch).says = lambda _topic, _value: dict(facts[1])
        try:
            hosts.compare(facts[0])
        except HostsError as error:
            return str(error)
    return ""


@pytest.mark.parametrize(
    ("own", "others", "said"),
    [
        ({}, {}, ""),
        ({"rank": 8}, {}, "The hosts differ in --rank: host 0 has 8, host 1 has 16."),
        ({"validate_with": "0.5"}, {"validate_with": "0.3"}, "what is held back: host 0 has 2 pictures"),
        ({"prior_prompt": ("a boat",)}, {"prior_prompt": ("a cat",)}, "the prior prompts: host 0 has 1"),
    ],
)
def test_what_hosts_were_told_otherwise_is_named_by_its_flag(
    monkeypatch: pytest.MonkeyPatch, data: Path, own: dict[str, Any], others: dict[str, Any], said: str
) -> None:
    found = compare(monkeypatch, {"data": (str(data),), **own}, {"data": (str(data),), **others})
    assert said in found and bool(said) == bool(found)
    assert "lora" not in found


def test_prior_marks_that_one_host_has_are_found(monkeypatch: pytest.MonkeyPatch, data: Path, tmp_path: Path) -> None:
    prior = make(tmp_path / "prior", count=2, side=64)
    own, others = (str(data), str(prior)), (str(data), f"{prior},prior")
    assert "the pictures marked prior: host 0 has 0" in compare(monkeypatch, {"data": own}, {"data": others})


def test_the_same_data_may_lie_elsewhere_on_each_host(
    monkeypatch: pytest.MonkeyPatch, data: Path, tmp_path: Path
) -> None:
    copies = [make(tmp_path / name, count=2, side=64) for name in ("held", "copy")]
    own, others = ({"data": (str(data),), "validate_with": str(copy)} for copy in copies)
    assert compare(monkeypatch, own, others) == ""


def test_configs_that_one_host_lacks_are_looked_at_on_none(other: OtherHost) -> None:
    model = load_catalog().get("demo-sdxl")
    assert find_configs_of_all(model) == model.path
    other.says = lambda _topic, _value: False
    assert find_configs_of_all(model) is None, "else this host would ask the other one, which goes on without"


@pytest.mark.parametrize("is_seen", [True, False])
def test_a_folder_that_only_the_first_host_sees_is_told_and_enough(
    other: OtherHost, tmp_path: Path, *, is_seen: bool
) -> None:
    other.says = lambda topic, value: is_seen if topic == "the mark is seen" else value
    place, note = find_common_folder(Place(output=tmp_path, cache=tmp_path, cache_dir=tmp_path))
    assert place.is_common is is_seen
    assert (note is None) is is_seen
    assert note is None or "(host 1)" in str(note)
    assert [*tmp_path.iterdir()] == []

"""How hosts find each other: what is given, else what a pod says of itself."""

import errno
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest

from pipelines.errors import LumeshError, RecipeError
from pipelines.messages import english
from pipelines.runtime.devices import hosts, platform
from pipelines.runtime.devices.hosts import Address, HostsError

METADATA = {"worker-network-endpoints": "10.0.0.2,10.0.0.3", "agent-worker-number": "1"}


@pytest.fixture
def is_tpu(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "accel0").touch()
    monkeypatch.setattr(platform, "TPU_DEVICE_FILES", [str(tmp_path / "accel0")])


def test_what_is_given_counts() -> None:
    found = hosts.find_address("10.0.0.2:8476", 2, 1)
    assert found == Address(coordinator="10.0.0.2:8476", processes=2, process=1)


def test_one_process_is_a_single_host() -> None:
    assert hosts.find_address("10.0.0.2:8476", 1, 0) is None


@pytest.mark.parametrize(
    ("given", "wrong"),
    [
        (("10.0.0.2:8476", 2, None), {"process"}),
        ((None, 2, 0), {"coordinator"}),
        (("10.0.0.2", 2, 0), {"coordinator"}),
        ((":8476", 2, 0), {"coordinator"}),
        (("10.0.0.2:8476", 2, 2), {"process"}),
    ],
)
def test_what_is_wrong_or_missing_is_named(given: tuple[str | None, int | None, int | None], wrong: set[str]) -> None:
    with pytest.raises(RecipeError) as caught:
        hosts.find_address(*given)
    assert caught.value.fields.keys() == wrong


@pytest.mark.usefixtures("is_tpu")
@pytest.mark.parametrize(
    ("environment", "metadata", "expected"),
    [
        ({}, METADATA, Address(coordinator="10.0.0.2:8476", processes=2, process=1)),
        ({}, METADATA | {"worker-network-endpoints": "a:0:10.0.0.4,b:1:10.0.0.5"},
         Address(coordinator="10.0.0.4:8476", processes=2, process=1)),
        ({"TPU_WORKER_HOSTNAMES": "one,two", "TPU_WORKER_ID": "0"}, {},
         Address(coordinator="one:8476", processes=2, process=0)),
        ({}, METADATA | {"worker-network-endpoints": "10.0.0.2"}, None),
        ({}, {}, None),
        ({"TPU_VISIBLE_CHIPS": "0"}, METADATA, None),
        ({"JAX_PLATFORMS": "cpu"}, METADATA, None),
        ({"TPU_SKIP_MDS_QUERY": "1"}, METADATA, None),
    ],
)  # fmt: skip
def test_a_pod_says_which_host_this_is(
    environment: Mapping[str, str], metadata: Mapping[str, str], expected: Address | None
) -> None:
    assert hosts.find_pod(environment, metadata.get) == expected


def test_a_machine_without_tpu_asks_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(platform, "TPU_DEVICE_FILES", [])
    assert hosts.find_pod({}, lambda name: pytest.fail(f"asked for {name}")) is None


def test_a_single_host_agrees_with_itself() -> None:
    assert hosts.agree("topic", {"a": 1}) == {"a": 1}
    assert hosts.collect("topic", 3) == [3]
    hosts.compare({"weights": "abc"})
    assert hosts.is_leader()
    assert (hosts.fetch(np.arange(3)) == np.arange(3)).all()


def test_all_that_hosts_differ_in_is_told_at_once_and_those_that_agree_together(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(hosts, "collect", lambda _topic, own: [own, {"rank": "8", "steps": "4"}, own])
    with pytest.raises(HostsError) as caught:
        hosts.compare({"rank": "16", "steps": "4", "libtpu": "0.0.42"})
    assert "rank: hosts 0, 2 have 16, host 1 has 8; in libtpu: hosts 0, 2 have 0.0.42, host 1 has None." in str(
        caught.value
    )


@pytest.mark.parametrize(
    ("error", "told", "code"),
    [
        (RecipeError({"data": english("there is none")}), "data: there is none", 2),
        (
            LumeshError(english("The model is not here."), advice=english("Fetch it.")),
            "The model is not here. Fetch it.",
            1,
        ),
        (OSError(errno.ENOSPC, "No space left on device", "/x"), "No space left on device: /x", 1),
        (OSError(errno.ENOSPC, "No space left on device"), "No space left on device", 1),
        (KeyboardInterrupt(), "it was told to", hosts.LOST),
        (ZeroDivisionError("no text for people"), "ZeroDivisionError", hosts.LOST),
    ],
)
def test_the_others_end_with_lost_only_where_the_same_command_may_go_on(
    error: BaseException, told: str, code: int
) -> None:
    assert hosts._explain(error) == (told, code)

"""How hosts find each other: what is given, else what a pod says of itself."""

from collections.abc import Mapping
from pathlib import Path

import pytest

from pipelines.errors import RecipeError
from pipelines.runtime.devices import platform, pods
from pipelines.runtime.devices.pods import Address

METADATA = {"worker-network-endpoints": "10.0.0.2,10.0.0.3", "agent-worker-number": "1"}


@pytest.fixture
def is_tpu(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "accel0").touch()
    monkeypatch.setattr(platform, "TPU_DEVICE_FILES", [str(tmp_path / "accel0")])


def test_what_is_given_counts() -> None:
    found = pods.find_address("10.0.0.2:8476", 2, 1)
    assert found == Address(coordinator="10.0.0.2:8476", processes=2, process=1)


def test_one_process_is_a_single_host() -> None:
    assert pods.find_address("10.0.0.2:8476", 1, 0) is None


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
        pods.find_address(*given)
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
    assert pods.find_pod(environment, metadata.get) == expected


def test_a_machine_without_tpu_asks_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(platform, "TPU_DEVICE_FILES", [])
    assert pods.find_pod({}, lambda name: pytest.fail(f"asked for {name}")) is None

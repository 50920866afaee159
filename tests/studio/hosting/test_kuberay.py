"""The manifest for Kubernetes names what exists: the pinned Ray, flags that are taken, one secret for both sides."""

import shlex
from typing import Any

import pytest
import yaml

from studio.cluster import join
from studio.flags import read_settings
from tests.places import ROOT


@pytest.fixture(scope="module")
def cluster() -> dict[str, Any]:
    manifests = yaml.safe_load_all((ROOT / "studio/hosting/kuberay.yaml").read_text("utf-8"))
    return next(one for one in manifests if one["kind"] == "RayCluster")["spec"]


def read_container(group: dict[str, Any]) -> dict[str, Any]:
    (container,) = group["template"]["spec"]["containers"]
    return container


def read_command(container: dict[str, Any]) -> list[str]:
    """The words of the container's own command, after `exec python`."""
    words = shlex.split(container["args"][0].rpartition("exec ")[2])
    assert words[0] == "python"
    return words[1:]


def test_its_ray_is_the_pinned_one(cluster: dict[str, Any]) -> None:
    assert f"ray=={cluster['rayVersion']}" in (ROOT / "requirements-cluster.txt").read_text("utf-8")


def test_the_head_starts_the_studio_with_flags_that_it_takes(cluster: dict[str, Any]) -> None:
    script, *flags = read_command(read_container(cluster["headGroupSpec"]))
    assert script == "app.py"
    settings = read_settings([flag.replace("$POD_IP", "10.0.0.2") for flag in flags], {})
    assert (settings.engine, settings.workers, settings.ray_host) == ("ray", 0, "10.0.0.2")


def test_the_others_join_by_flags_that_exist(cluster: dict[str, Any], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        join.run(["--help"], {})
    known = capsys.readouterr().out
    for group in cluster["workerGroupSpecs"]:
        assert group["numOfHosts"] == 1, "slices of several hosts cannot join"
        words = read_command(read_container(group))
        assert words[:4] == ["-m", "studio.worker", "join", "$FQ_RAY_IP:6379"]
        assert all(word in known for word in words if word.startswith("--"))


def test_both_sides_have_the_same_secret(cluster: dict[str, Any]) -> None:
    secret = cluster["authOptions"]["secretName"]
    for group in cluster["workerGroupSpecs"]:
        variables = {one["name"]: one for one in read_container(group)["env"]}
        asked = variables[join.TOKEN_VARIABLE]["valueFrom"]["secretKeyRef"]
        assert asked == {"name": secret, "key": "auth_token"}

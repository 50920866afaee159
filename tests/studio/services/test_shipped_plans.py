"""Plans that come with Lumesh are told as the planner itself tells them, as far as they are still its own."""

import pytest
from fastapi.testclient import TestClient

from pipelines.plan.topologies import TPU_SOURCE
from studio.services.shipped_plans import SHIPPED, find_shipped


def find(topology: str = "v6e-8", *, mode: str = "latency", mesh: str | None = None, model: str = "sdxl-base"):
    return find_shipped(model=model, shape="1024x1024", topology=topology, mode=mode, mesh=mesh)


def test_they_are_the_planners_own() -> None:
    """Read as text: importing the planner would import jax."""
    assert f'with_name("{SHIPPED.name}")' in SHIPPED.with_name("answers.py").read_text("utf-8")


def test_one_adds_up_and_has_what_the_page_shows() -> None:
    plan = find()
    assert plan is not None
    assert (plan["source"], plan["chips"], plan["fits"]) == (TPU_SOURCE, 8, True)
    stages = {stage["stage"]: stage for stage in plan["stages"]}
    assert stages.keys() >= {"encode", "denoise", "decode"}
    runs_s = sum(stage["runs"] * (stage["estimated_ms"] or 0) for stage in plan["stages"]) / 1000
    assert plan["estimated_total_s"] == pytest.approx(runs_s, rel=0.1)
    for stage in plan["stages"]:
        sizes = stage["hbm_bytes"]
        assert sizes["total"] == sizes["weights"] + sizes["temp"] + sizes["code"] > 0
    assert stages["denoise"]["collectives"]


def test_another_mesh_mode_or_size_is_another_plan() -> None:
    plan = find()
    assert plan is not None
    assert find(mesh=plan["mesh"]) == plan
    assert find(mesh="tp=8") is None
    assert find(model="nobody") is None
    throughput = find(mode="throughput")
    assert throughput is None or throughput["batch_size"] > 1


def test_it_shows_before_anybody_plans_and_planning_is_still_offered(client: TestClient) -> None:
    wanted = {"model": "sdxl-base", "topology": "v6e-8"}
    found = client.get("/api/v1/system/plan", params=wanted).json()
    assert (found["state"], found["plan"]) == ("shipped", find())
    assert client.delete("/api/v1/system/plan").json() == {"plan": None}, "nothing was started for it"


def test_a_plan_of_weights_in_full_is_none_of_weights_in_int8() -> None:
    asked = {"model": "sdxl-base", "shape": "1024x1024", "topology": "v6e-8", "mode": "latency", "mesh": None}
    assert find_shipped(**asked, weights="full") == find()
    assert find_shipped(**asked, weights="int8") is None

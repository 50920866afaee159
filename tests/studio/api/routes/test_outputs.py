"""The gallery over REST: found, marked, thrown away, restored and purged, and only by who owns it."""

import io
import zipfile
from collections.abc import Callable
from typing import Any

import pytest
from fastapi.testclient import TestClient

from studio.database import Database
from studio.jobs.job import Job
from studio.worker.loop import Worker

URL = "/api/v1/outputs"


@pytest.fixture
def make(worker: Worker, submit: Callable[..., Job]) -> Callable[..., str]:
    """Makes an output and returns its id."""

    def make(prompt: str = "A red sailboat", **fields: Any) -> str:
        job = submit(prompt, **fields)
        worker.run_next()
        return f"{job.id}-0"

    return make


def find(client: TestClient, **params: Any) -> list[str]:
    answer = client.get(URL, params=params)
    assert answer.status_code == 200
    return [output["id"] for output in answer.json()["outputs"]]


def test_outputs_are_found_by_every_filter(client: TestClient, make: Callable[..., str]) -> None:
    film = make("A clip", model="clips")
    boat = make("A green cactus in the desert at noon with clouds", model="demo-sdxl", shape="320x192")
    client.patch(f"{URL}/{boat}", json={"favourite": True, "tags": ["Sea ", "#night"]})
    created_at = client.get(f"{URL}/{boat}").json()["created_at"]
    preset = next(one for one in client.get(f"{URL}/filters").json()["presets"] if one["count"])
    for params in (
        {"q": "cactus desert"},
        {"shape": "320x192"},
        {"favourite": True},
        {"tag": "night"},
        {"family": "sdxl"},
        {"after": created_at},
        {"preset": preset["id"]},
    ):
        assert find(client, **params) == [boat], params
    assert find(client, kind="video") == find(client, model="clips") == find(client, before=created_at) == [film]
    assert find(client, family="sdxl", model="clips") == find(client, state="trashed") == []
    assert find(client) == [boat, film]


def test_outputs_stay_with_their_preset_as_long_as_model_and_prompt_are_its_own(
    client: TestClient, worker: Worker, make: Callable[..., str]
) -> None:
    preset = client.get("/api/v1/presets").json()["presets"][0]
    recipe = {"model": preset["recipe"]["model"], "prompt": f" {preset['recipe']['prompt']}\n", "seed": 1, "steps": 2}
    make("Something else")

    def submit(changes: dict[str, Any], *, many: bool = False) -> str:
        url, body = ("/api/v1/jobs/many", {"recipe": recipe | changes}) if many else ("/api/v1/jobs", recipe | changes)
        made = client.post(url, json=body, params={"preset": preset["id"]}).json()
        return made["ids"][0] if many else made["id"]

    job, other = submit({}), submit({}, many=True)
    edited = submit({"steps": 3})
    client.patch(f"/api/v1/jobs/{edited}", json={"prompt": "A red boat"})
    client.patch(f"/api/v1/jobs/{job}", json={"steps": 3})  # which leaves it where it is
    strays = [
        submit({"prompt": "A red boat"}),
        submit({"model": "demo-sdxl" if recipe["model"] == "demo-flux2" else "demo-flux2"}),
        submit({"prompt": "A boat"}, many=True),
    ]
    for _ in range(6):
        worker.run_next()
    for stray in strays:
        note = client.get(f"/api/v1/jobs/{stray}").json()["notes"][0]
        assert note.startswith(f"Not filed under the preset {preset['title']!r}: the model or the prompt")
    assert client.get(f"/api/v1/jobs/{edited}").json()["notes"] == []
    assert find(client, preset=preset["id"]) == [f"{other}-0", f"{job}-0"]
    counts = {one["id"]: one["count"] for one in client.get(f"{URL}/filters").json()["presets"]}
    assert counts == {preset["id"]: 2}
    assert client.post("/api/v1/jobs", json=recipe, params={"preset": "none"}).status_code == 404


def test_pages_follow_each_other(client: TestClient, make: Callable[..., str]) -> None:
    ids = [make() for _ in range(3)][::-1]
    first = client.get(URL, params={"limit": 2}).json()
    assert first["total"] == 3
    assert find(client, cursor=first["next"]) == ids[2:]
    make()
    assert find(client, cursor=first["start"], offset=1) == ids[1:]


def test_filters_say_what_there_is(client: TestClient, make: Callable[..., str]) -> None:
    make("A clip", model="clips")
    thrown = make("Thrown")
    client.delete(f"{URL}/{thrown}")
    found = client.get(f"{URL}/filters").json()
    assert (found["kept"], found["trashed"], found["favourites"]) == (1, 1, 0)
    assert found["models"] == [{"id": "clips", "family": "fake", "count": 1}]
    assert found["shapes"] == {"96x64x9": 1}


def test_marks_and_tags_are_set_one_by_one(client: TestClient, make: Callable[..., str]) -> None:
    url = f"{URL}/{make()}"
    assert client.patch(url, json={"tags": ["Ä b", "ä  B", "#x", ""]}).json()["tags"] == ["ä b", "x"]
    changed = client.patch(url, json={"favourite": True}).json()
    assert (changed["favourite"], changed["tags"]) == (True, ["ä b", "x"])
    job = f"/api/v1/jobs/{changed['job_id']}"
    assert client.get(job).json()["outputs"][0]["favourite"] is True, "lists of jobs show it too"
    client.patch(url, json={"favourite": False})
    assert client.get(job).json()["outputs"][0]["favourite"] is False
    assert client.patch(url, json={"tags": []}).json()["tags"] == []
    assert client.patch(url, json={"file": "/etc/passwd"}).status_code == 422
    assert client.patch(url, json={"tags": ["x" * 25]}).status_code == 422


def test_through_the_trash_and_back(client: TestClient, make: Callable[..., str]) -> None:
    first, second = make(), make()
    assert client.delete(f"{URL}/{first}").json()["trashed_at"] is not None
    assert client.post(f"{URL}/trash", json={"ids": [first, second]}).json() == {"ids": [second]}
    assert (find(client), find(client, state="trashed")) == ([], [second, first])
    assert client.get(f"{URL}/{first}/file").status_code == 200
    assert client.post(f"{URL}/restore", json={"ids": [first]}).json() == {"ids": [first]}
    assert find(client) == [first]


def test_only_the_trash_is_purged(client: TestClient, make: Callable[..., str], worker: Worker) -> None:
    kept, thrown = make(), make()
    client.delete(f"{URL}/{thrown}")
    assert client.post(f"{URL}/purge", json={"ids": [kept]}).json() == {"ids": []}
    assert client.post(f"{URL}/purge", json={}).status_code == 422  # all of it only when that is said
    assert client.post(f"{URL}/purge", json={"ids": None}).json() == {"ids": [thrown]}
    assert client.get(f"{URL}/{thrown}/file").status_code == 404
    assert len(list(worker.settings.outputs_dir.rglob("*.png"))) == 1


def test_several_are_one_zip(client: TestClient, make: Callable[..., str]) -> None:
    ids = [make(seed=7), make("A red sailboat!", seed=7)]
    answer = client.post(f"{URL}/zip", data={"ids": [*ids, ids[0]]})
    assert answer.headers["content-disposition"] == 'attachment; filename="lumesh-outputs.zip"'
    with zipfile.ZipFile(io.BytesIO(answer.content)) as found:
        assert found.namelist() == ["a-red-sailboat-7.png", "a-red-sailboat-7-2.png"]
    assert client.post(f"{URL}/zip").status_code == 422


def test_an_output_made_again_is_identical(client: TestClient, make: Callable[..., str], worker: Worker) -> None:
    first, other = make(seed=5), make(seed=6)
    job = client.post("/api/v1/jobs", json=client.get(f"{URL}/{first}").json()["recipe"]).json()["id"]
    worker.run_next()
    assert client.get(f"{URL}/{first}/compare/{job}-0").json() == {
        "same_size": True,
        "identical": True,
        "psnr_db": None,
    }
    assert client.get(f"{URL}/{first}/compare/{other}").json()["psnr_db"] > 0
    for file in worker.settings.outputs_dir.rglob(f"{other}.png"):
        file.unlink()
    assert client.get(f"{URL}/{first}/compare/{other}").status_code == 404


def test_somebody_elses_outputs_do_not_exist(client: TestClient, make: Callable[..., str], database: Database) -> None:
    hers, mine = make(owner="her"), make()
    for method, path, body in (
        ("GET", f"/{hers}", {}),
        ("GET", f"/{mine}/compare/{hers}", {}),
        ("PATCH", f"/{hers}", {"json": {"favourite": True}}),
        ("DELETE", f"/{hers}", {}),
        ("POST", "/zip", {"data": {"ids": [hers]}}),
    ):
        assert client.request(method, URL + path, **body).status_code == 404
    for path in ("trash", "restore", "purge"):
        assert client.post(f"{URL}/{path}", json={"ids": [hers]}).json() == {"ids": []}
    row = database.read_one("SELECT is_favourite, trashed_at FROM outputs WHERE owner = 'her'")
    assert tuple(row) == (0, None)
    assert find(client) == [mine]


@pytest.mark.parametrize(
    "params",
    [{"cursor": 1e300}, {"offset": -1}, {"after": "nan"}, {"kind": "sound"}, {"state": "gone"}, {"limit": 201}],
)
def test_a_wrong_filter_is_refused(client: TestClient, params: dict[str, Any]) -> None:
    assert client.get(URL, params=params).status_code == 422


def test_an_unknown_preset_is_not_a_filter(client: TestClient) -> None:
    assert client.get(URL, params={"preset": "none"}).status_code == 404

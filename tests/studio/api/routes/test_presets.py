"""Presets over REST: save an output, share it, bring it back, and meet what others send."""

import io
import json
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient
from PIL import Image

from pipelines.messages import read_codes
from studio.database import Database
from studio.jobs.job import Job
from studio.library.presets import store
from studio.library.presets.files import MAX_PACK_BYTES
from studio.library.presets.preset import read_preset
from studio.library.presets.shipped import read_shipped
from studio.settings import Settings
from studio.worker.loop import Worker

URL = "/api/v1/presets"
SHIPPED = "sailboat-at-sunset"
DOCUMENT = {"schema": 1, "title": "Boat", "recipe": {"model": "demo-sdxl", "prompt": "A red sailboat"}}


@pytest.fixture
def output(submit: Callable[..., Job], worker: Worker, client: TestClient) -> dict[str, Any]:
    """A finished output."""
    job = submit("A green cactus", seed=41)
    worker.run_next()
    return client.get(f"/api/v1/jobs/{job.id}").json()["outputs"][0]


def post(client: TestClient, document: Any, **query: str) -> Any:
    content = document if isinstance(document, bytes) else json.dumps(document).encode()
    return client.post(f"{URL}/import", content=content, params=query)


def test_the_shipped_ones_are_listed_and_narrowed_down(client: TestClient) -> None:
    listed = client.get(URL).json()
    assert len(listed["presets"]) == len(read_shipped()) >= 24
    assert listed["models"]["demo-sdxl"] >= 10
    found = client.get(URL, params={"q": "red sunset", "model": "demo-sdxl", "tag": "sea"}).json()
    assert [preset["id"] for preset in found["presets"]] == [SHIPPED]
    assert found["tags"] == listed["tags"]
    assert found["presets"][0]["origin"] == {"kind": "shipped", "name": ""}
    thumb = client.get(found["presets"][0]["thumb_url"])
    assert (thumb.status_code, thumb.headers["content-type"]) == (200, "image/webp")
    assert (
        client.get(found["presets"][0]["thumb_url"], headers={"If-None-Match": thumb.headers["etag"]}).status_code
        == 304
    )


def test_a_preset_runs_as_a_job(client: TestClient) -> None:
    recipe = client.get(f"{URL}/{SHIPPED}").json()["recipe"]
    job = client.post("/api/v1/jobs", json={name: value for name, value in recipe.items() if value is not None})
    assert job.status_code == 201


def test_an_output_becomes_a_preset_with_its_picture_and_seed(client: TestClient, output: dict[str, Any]) -> None:
    fields = {"title": " My  cactus ", "author": "Ada", "tags": ["Desert"], "output": output["id"]}
    answer = client.post(URL, json=fields)
    assert answer.status_code == 201
    preset = answer.json()
    assert (preset["title"], preset["tags"], preset["origin"]["kind"]) == ("My cactus", ["desert"], "made")
    assert (preset["recipe"]["prompt"], preset["recipe"]["seed"]) == ("A green cactus", 41)
    assert client.get(preset["thumb_url"]).content == client.get(output["thumb_url"]).content
    assert client.get(URL).json()["presets"][0]["id"] == preset["id"]
    loose = client.post(URL, json={**fields, "keep_seed": False}).json()
    assert loose["recipe"]["seed"] is None


def test_loras_of_an_output_and_of_a_recipe_are_kept(
    client: TestClient, worker: Worker, add_lora: Callable[..., Path]
) -> None:
    add_lora("pixel")
    loras = [{"ref": "pixel", "scale": 0.5}]
    recipe = {"model": "demo-sdxl", "prompt": "A hut", "loras": loras}
    job = client.post("/api/v1/jobs", json={**recipe, "steps": 1}).json()["id"]
    worker.run_next()
    for source in ({"output": f"{job}-0"}, {"recipe": recipe}):
        preset = client.post(URL, json={"title": "Hut", **source}).json()
        assert preset["recipe"]["loras"] == loras
        assert client.get(f"{URL}/{preset['id']}/file").json()["recipe"]["loras"] == loras


def test_how_strongly_a_picture_is_changed_is_kept_without_the_picture(
    client: TestClient, worker: Worker, encode_picture: Callable[..., bytes]
) -> None:
    picture = client.post("/api/v1/uploads", content=encode_picture("red"), headers={"Content-Type": "image/png"})
    recipe = {"model": "demo-sdxl", "prompt": "A hut", "strength": 0.4, "fit": "pad"}
    based = {**recipe, "steps": 2, "images": [picture.json()["id"]]}
    job = client.post("/api/v1/jobs", json=based).json()["id"]
    worker.run_next()
    for source in ({"output": f"{job}-0"}, {"recipe": recipe}):
        preset = client.post(URL, json={"title": "Hut", **source}).json()
        shared = client.get(f"{URL}/{preset['id']}/file").json()["recipe"]
        assert (shared["strength"], shared["fit"]) == (0.4, "pad")
        assert "images" not in shared


@pytest.mark.parametrize(
    ("fields", "at_fault"),
    [
        ({"title": "x", "recipe": {**DOCUMENT["recipe"], "strength": 1.5}}, "recipe.strength"),
        ({"title": "x", "recipe": {"model": "demo-flux2", "prompt": "x", "strength": 0.5}}, "recipe.strength"),
        ({"title": "x"}, "output"),
        ({"title": "", "recipe": DOCUMENT["recipe"]}, "title"),
        ({"title": "x", "recipe": {**DOCUMENT["recipe"], "shape": "64x64"}}, "recipe.shape"),
        ({"title": "x", "recipe": {**DOCUMENT["recipe"], "images": ["a"]}}, "recipe.images"),
        ({"title": "x", "thumbnail": "data:", "recipe": DOCUMENT["recipe"]}, "thumbnail"),
    ],
)
def test_what_cannot_be_saved_is_refused_by_field(client: TestClient, fields: dict[str, Any], at_fault: str) -> None:
    answer = client.post(URL, json=fields)
    assert answer.status_code == 422
    assert list(answer.json()["error"]["fields"]) == [at_fault]


def test_a_preset_goes_out_and_comes_back_with_its_origin(
    client: TestClient, output: dict[str, Any], settings: Settings
) -> None:
    saved = client.post(URL, json={"title": "My cactus", "output": output["id"]}).json()
    file = client.get(f"{URL}/{saved['id']}/file")
    assert file.headers["content-disposition"] == 'attachment; filename="my-cactus.lumesh.json"'
    assert client.delete(f"{URL}/{saved['id']}").status_code == 204
    assert client.get(f"{URL}/{saved['id']}").status_code == 404
    assert list(settings.presets_dir.iterdir()) == []
    answer = post(client, file.content, name="../../My\u202e file.json")
    assert answer.status_code == 201
    (back,) = answer.json()["presets"]
    assert back["origin"] == {"kind": "file", "name": "../../My file.json"}
    assert back["recipe"] == saved["recipe"]
    with Image.open(io.BytesIO(client.get(back["thumb_url"]).content)) as thumb:
        assert thumb.format == "WEBP"
    assert post(client, DOCUMENT, origin="link").json()["presets"][0]["origin"]["kind"] == "link"


def test_a_pack_goes_out_and_comes_back(client: TestClient) -> None:
    pack = client.get("/api/v1/presets.zip", params={"id": [SHIPPED, "cactus-at-noon"]})
    assert pack.headers["content-type"] == "application/zip"
    answer = post(client, pack.content, name="pack.zip", known="copy").json()
    titles = [read_shipped()[SHIPPED].title, "Green cactus at noon"]
    assert [preset["title"] for preset in answer["presets"]] == [f"{title} (2)" for title in titles]
    assert answer["refused"] == []
    own = client.get("/api/v1/presets.zip")
    assert len(zipfile.ZipFile(io.BytesIO(own.content)).namelist()) == 2


def test_what_is_here_already_is_left_replaced_or_copied(client: TestClient, output: dict[str, Any]) -> None:
    saved = client.post(URL, json={"title": "Cactus", "output": output["id"]}).json()
    file = client.get(f"{URL}/{saved['id']}/file").content
    changed = {**json.loads(file), "description": "Changed elsewhere", "thumbnail": None}

    def titles() -> list[str]:
        return [preset["title"] for preset in client.get(URL, params={"q": "cactus"}).json()["presets"]][:3]

    before = titles()
    left = post(client, file).json()
    assert (left["presets"], [one["id"] for one in left["known"]]) == ([], [saved["id"]])
    assert titles() == before, "no second card of the same"
    replaced = post(client, changed, known="replace").json()["presets"]
    assert [(one["id"], one["description"]) for one in replaced] == [(saved["id"], "Changed elsewhere")]
    assert replaced[0]["thumb_url"] is None and titles() == before
    assert post(client, changed, known="copy").json()["presets"][0]["title"] == "Cactus (2)"
    assert titles()[:2] == ["Cactus (2)", "Cactus"]
    shipped = client.get(f"{URL}/{SHIPPED}/file").content
    assert post(client, shipped, known="replace").json()["known"][0]["id"] == SHIPPED, "what is shipped stays"
    pack = client.get("/api/v1/presets.zip", params={"id": [SHIPPED, "cactus-at-noon"]}).content
    chosen = post(client, pack, known="copy", title="Green cactus at noon").json()
    assert [one["title"] for one in chosen["presets"]] == ["Green cactus at noon (2)"] and chosen["known"] == []
    assert post(client, pack, title="Another").status_code == 422


def test_of_a_pack_the_good_ones_are_kept_and_the_others_named(client: TestClient) -> None:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr("good.json", json.dumps(DOCUMENT))
        archive.writestr("bad.json", json.dumps({**DOCUMENT, "title": 7}))
        impossible = {**DOCUMENT, "title": "No", "recipe": {**DOCUMENT["recipe"], "shape": "9x9"}}
        archive.writestr("impossible.json", json.dumps(impossible))
    answer = post(client, file.getvalue()).json()
    assert [preset["title"] for preset in answer["presets"]] == ["Boat"]
    assert [one["name"] for one in answer["refused"]] == ["bad.json", "No"]


@pytest.mark.parametrize(
    "document",
    [b"", b"PKnonsense", b"hello", {**DOCUMENT, "code": "import os"}, {**DOCUMENT, "recipe": {"prompt": "x"}}],
)
@pytest.mark.parametrize("route", ["import", "check"])
def test_what_is_no_preset_is_refused_in_the_one_shape(
    client: TestClient, document: Any, route: str, settings: Settings
) -> None:
    content = document if isinstance(document, bytes) else json.dumps(document).encode()
    answer = client.post(f"{URL}/{route}", content=content)
    assert answer.status_code == 422
    assert read_codes(answer.json()["error"]).keys() == {"title", "detail", "advice", "fields"}
    assert not settings.presets_dir.exists()


def test_a_body_that_is_too_long_is_refused(client: TestClient) -> None:
    assert "more than 16 MB" in post(client, bytes(MAX_PACK_BYTES + 1)).json()["error"]["detail"]


def test_checking_keeps_nothing(client: TestClient) -> None:
    answer = client.post(f"{URL}/check", content=json.dumps({**DOCUMENT, "recipe": {"model": "nope", "prompt": "x"}}))
    assert (answer.json()["title"], answer.json()["id"]) == ("Boat", "")
    assert answer.json()["missing"]["model"] == "nope"
    assert len(client.get(URL).json()["presets"]) == len(read_shipped())


def test_somebody_elses_preset_does_not_exist_and_shipped_ones_stay(
    client: TestClient, database: Database, settings: Settings
) -> None:
    hers = store.add(database, settings.presets_dir, read_preset(json.dumps(DOCUMENT)), owner="her", origin="made")
    for path in (hers.id, f"{hers.id}/thumb", f"{hers.id}/file", "nope", "..%2F..%2Fjobs.db"):
        assert client.get(f"{URL}/{path}").status_code == 404
    assert client.delete(f"{URL}/{hers.id}").status_code == 404
    assert client.get("/api/v1/presets.zip", params={"id": hers.id}).status_code == 404
    assert store.read_entry(database, settings.presets_dir, hers.id) is not None
    assert client.delete(f"{URL}/{SHIPPED}").status_code == 422
    assert client.get(f"{URL}/{SHIPPED}").status_code == 200


def test_another_sites_page_cannot_import(client: TestClient) -> None:
    answer = client.post(f"{URL}/import", content=json.dumps(DOCUMENT), headers={"Sec-Fetch-Site": "cross-site"})
    assert answer.status_code == 403


def test_format_and_styles_are_published(client: TestClient) -> None:
    assert client.get("/api/v1/preset.schema.json").json()["title"] == "Lumesh preset"
    styles = client.get("/api/v1/styles").json()["styles"]
    assert all("{prompt}" in style["prompt"] for style in styles)


def test_a_link_becomes_a_code_unless_it_is_too_long_or_no_link(client: TestClient) -> None:
    code = client.post("/api/v1/qr", json={"link": "http://localhost:7860/?preset=x"})
    assert (code.status_code, code.headers["content-type"]) == (200, "image/svg+xml")
    assert code.text.startswith("<svg")
    for link in ("http://x/#" + "a" * 3000, "javascript:alert(1)", "http://x/<script>\n"):
        assert client.post("/api/v1/qr", json={"link": link}).status_code == 422

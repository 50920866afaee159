"""Every route of the whole application, Gradio's included: nobody comes in without a name, nobody reaches another's.

The routes are read off the application, so a new one is asked as well; one that names things by ids nobody here knows
fails the test until it is added to `IDS`.
"""

import asyncio
import json
import re
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from fastapi import FastAPI
from fastapi.routing import iter_route_contexts
from fastapi.testclient import TestClient
from starlette.routing import BaseRoute, Mount

from pipelines.families.fake import FakeFamily
from pipelines.models.catalog import Catalog, load_catalog
from pipelines.recipes.recipe import Recipe
from pipelines.recipes.resolving import resolve
from studio.access import passwords
from studio.access.sessions import COOKIE
from studio.access.users import Users
from studio.access_settings import Mode
from studio.api.middleware.auth import PUBLIC
from studio.database import Database, open_database
from studio.jobs import queue, workers
from studio.jobs.job import Card
from studio.jobs.workers import LOCAL, WorkerState
from studio.library import trash, uploads
from studio.serving import create_app
from studio.settings import Settings
from studio.ui import manual
from studio.worker.local_desk import LocalDesk
from studio.worker.loop import Worker
from studio.worker.resident import Resident

IDS = {"job_id", "output_id", "other_id", "upload_id", "preset_id", "grid_id", "token_id"}
# A repository of the hub; any unknown path; files, LoRAs; examples of the catalogue.
OF_NOBODY = {
    "account",
    "name",
    "path",
    "_name",
    "ref",
    "model_id",
    "arrival_id",
    "place",
    "step",
    "number",
    "worker_id",
}
NUMBERS = {"step": "1", "number": "0"}
BODIES = {
    "/api/v1/jobs/{job_id}/move": {"before": None},
    ("PATCH", "/api/v1/jobs/{job_id}"): {"steps": 3},
    ("PATCH", "/api/v1/outputs/{output_id}"): {"favourite": True},
}
ADMIN, ADA, BOB = "admin", "ada", "bob"


@dataclass(frozen=True, kw_only=True)
class House:
    """A studio with a login in which Ada made something; clients of everybody, and of nobody."""

    app: Any
    settings: Settings
    clients: dict[str, TestClient]
    ids: dict[str, str]
    trashed: str


@pytest.fixture(scope="module")
def house(tmp_path_factory: pytest.TempPathFactory, encode_picture: Any) -> Iterator[House]:
    settings = Settings(host="127.0.0.1", port=7860, data_dir=tmp_path_factory.mktemp("house"), fake=True)
    settings = replace(settings, access=replace(settings.access, mode=Mode.PASSWORD))
    catalog = load_catalog()
    users = Users(settings.users_file)
    with closing(open_database(settings.database_file)) as database:
        app = build(settings, database, catalog)
        clients = {"": TestClient(app, follow_redirects=False, raise_server_exceptions=False)}
        for name in (ADMIN, ADA, BOB):
            users.add(name, password=None, is_admin=name == ADMIN)
            bearer = {"Authorization": f"Bearer {users.add_token(name)}"}
            clients[name] = TestClient(app, headers=bearer, follow_redirects=False, raise_server_exceptions=False)

        def submit(**fields: Any) -> str:
            recipe = Recipe(model=catalog.default.id, prompt="A red sailboat", steps=1, **fields)
            return queue.submit(database, resolve(recipe, catalog), owner=ADA).id

        made, thrown_away = submit(), submit()
        worker = make_worker(settings, database, catalog)
        worker.run_next()
        worker.run_next()
        trash.throw_away(database, [f"{thrown_away}-0"], owner=ADA)
        preset = clients[ADA].post("/api/v1/presets", json={"title": "Mine", "output": f"{made}-0"}).json()
        axes = {"x": {"field": "steps", "values": "1, 2"}, "recipe": {"model": catalog.default.id, "prompt": "Boats"}}
        grid = clients[ADA].post("/api/v1/grids", json=axes).json()
        upload = uploads.add(database, settings.uploads_dir, encode_picture(), owner=ADA)
        ids = {
            "job_id": submit(),
            "output_id": f"{made}-0",
            "other_id": f"{made}-0",
            "upload_id": upload.id,
            "preset_id": preset["id"],
            "grid_id": grid["id"],
            "token_id": users.read()[ADA].tokens[0].id,
        }
        yield House(app=app, settings=settings, clients=clients, ids=ids, trashed=f"{thrown_away}-0")


def make_worker(settings: Settings, database: Database, catalog: Catalog) -> Worker:
    return Worker(
        settings=settings,
        desk=LocalDesk(database, settings),
        catalog=catalog,
        resident=Resident(lambda model, _: FakeFamily(model, compile_s=0, step_s=0)),
        default_model=catalog.default,
    )


def build(settings: Settings, database: Database, catalog: Catalog) -> FastAPI:
    """Within a loop: without one Gradio makes loops of its own, which nobody closes."""

    async def create() -> FastAPI:
        return create_app(settings, database, catalog)

    return asyncio.run(create())


def list_routes(routes: Sequence[BaseRoute], prefix: str = "") -> Iterator[tuple[str, str]]:
    """Method and path of everything that answers, also within a mount; of mounted files one that could be there."""
    for route in iter_route_contexts(routes):
        path = f"{prefix}{route.path}"
        if isinstance(route.original_route, Mount):
            yield from (
                list_routes(route.original_route.routes, path)
                if route.original_route.routes
                else [("GET", f"{path}/x")]
            )
        else:
            yield from ((method, path) for method in sorted(route.methods or {"GET"}))


def fill(path: str, ids: dict[str, str]) -> str:
    return re.sub(r"\{(\w+)(?::\w+)?\}", lambda found: ids.get(found[1], NUMBERS.get(found[1], "x")), path) or "/"


def test_nobody_comes_in_without_a_name(house: House) -> None:
    client = house.clients[""]
    asked = 0
    for method, path in list_routes(house.app.routes):
        url = fill(path, house.ids)
        if (method, url) in PUBLIC[Mode.PASSWORD]:
            continue
        answer = client.request(method, url)
        assert answer.status_code == 401, (method, url, answer.status_code)
        assert "Ada" not in answer.text
        asked += 1
    assert asked > 120, "the routes of REST and of Gradio were found"
    for url in ("/nothing", "/api/v1/nothing", "//login", "/login/", "/LOGIN", "/gradio_api/queue/join", "/ui/x.css"):
        assert client.get(url).status_code == 401, url


def test_the_manual_is_for_those_who_may_see_the_page(house: House) -> None:
    for name in ("", *manual.PAGES, "theme.js", "pictures/demo-sdxl.webp"):
        assert house.clients[""].get(f"/help/{name}").status_code == 401, name
        assert house.clients[BOB].get(f"/help/{name}").status_code == 200, name
    assert house.clients[BOB].get("/help/..%2fREADME.md").status_code == 404


def test_a_browser_without_a_name_is_sent_to_the_login_page_and_back(house: House) -> None:
    client = house.clients[""]
    html = {"Accept": "text/html,*/*"}
    assert client.get("/", headers=html).headers["location"] == "login"
    sent = client.get("/api/docs?a=b%20c", headers=html)
    assert (sent.status_code, sent.headers["location"]) == (303, "../login?next=api%2Fdocs%3Fa%3Db%2520c")
    assert client.post("/", headers=html).status_code == 401
    page = client.get("/login", params={"next": '"><script>alert(1)</script>'})
    assert page.status_code == 200
    assert "<script>alert" not in page.text
    assert "frame-ancestors 'self'" in page.headers["content-security-policy"]
    font = client.get("/login/inter.woff2")
    assert (font.status_code, font.headers["content-type"]) == (200, "font/woff2")
    assert 'url("login/inter.woff2")' in page.text


@pytest.mark.parametrize("cookie", ["", "x", "e30.00", "."])
def test_a_cookie_that_was_not_made_here_is_nobodys(house: House, cookie: str) -> None:
    answer = house.clients[""].get("/api/v1/jobs", headers={"Cookie": f"{COOKIE}={cookie}"})
    assert answer.status_code == 401


def test_anothers_ids_do_not_exist(house: House) -> None:
    bob = house.clients[BOB]
    asked = 0
    for method, path in list_routes(house.app.routes):
        names = set(re.findall(r"\{(\w+)", path))
        if not path.startswith("/api/v1/") or not names:
            continue
        assert names <= IDS | OF_NOBODY, f"{path}: say in IDS what Ada has of this"
        if not names & IDS:
            continue
        body = BODIES.get((method, path), BODIES.get(path))
        answer = bob.request(method, fill(path, house.ids), json=body)
        assert answer.status_code == 404, (method, path, answer.status_code, answer.text)
        asked += 1
    assert asked >= 20


def test_ids_in_bodies_and_queries_reach_nothing_of_anothers(house: House) -> None:
    ada, bob, ids = house.clients[ADA], house.clients[BOB], house.ids
    for action in ("trash", "restore", "purge"):
        sent = {"ids": [ids["output_id"], house.trashed]}
        assert bob.post(f"/api/v1/outputs/{action}", json=sent).json() == {"ids": []}
    assert bob.post("/api/v1/outputs/zip", data={"ids": ids["output_id"]}).status_code == 404
    assert bob.post("/api/v1/presets", json={"title": "Yours", "output": ids["output_id"]}).status_code == 404
    assert bob.get("/api/v1/presets.zip", params={"id": ids["preset_id"]}).status_code == 404
    assert bob.get("/api/v1/outputs", params={"preset": ids["preset_id"]}).status_code == 404
    assert bob.post("/api/v1/hub/a/b/push", json={"ids": [ids["preset_id"]]}).status_code == 404
    for image in (ids["upload_id"], ids["output_id"]):
        recipe = {"model": "flux2-klein-4b", "shape": "512x512", "prompt": "A boat", "images": [image]}
        for path in ("jobs", "estimate"):
            answer = bob.post(f"/api/v1/{path}", json=recipe)
            assert path == "estimate" or answer.status_code == 422
            assert "60" not in answer.text.replace(image, ""), "the size of the picture"
        assert bob.post("/api/v1/jobs/many", json={"recipe": recipe}).status_code == 422
    mine = bob.post("/api/v1/jobs", json={"model": "demo-sdxl", "prompt": "Bob's"}).json()["id"]
    assert bob.post(f"/api/v1/jobs/{mine}/move", json={"before": ids["job_id"]}).status_code == 404
    bob.post("/api/v1/queue/pause")
    assert bob.post("/api/v1/jobs/cancel", json={"scope": "all"}).json() == {"cancelled": 1}
    bob.post("/api/v1/jobs/clear")
    bob.put("/api/v1/webhook", json={"url": "https://example.com/bob"})
    assert ada.get("/api/v1/queue").json()["is_paused"] is False
    assert ada.get("/api/v1/webhook").json() == {"webhook": None}
    assert ada.get(f"/api/v1/jobs/{ids['job_id']}").json()["state"] == "queued"
    assert ada.get(f"/api/v1/outputs/{ids['output_id']}").json()["trashed_at"] is None


def test_lists_hold_ones_own_and_admins_see_everybodys(house: House) -> None:
    ada, bob, admin = (house.clients[name] for name in (ADA, BOB, ADMIN))
    assert {job["owner"] for job in bob.get("/api/v1/jobs").json()["jobs"]} <= {BOB}
    assert bob.get("/api/v1/outputs").json()["total"] == 0
    assert bob.get("/api/v1/outputs/filters").json()["kept"] == 0
    assert not [one for one in bob.get("/api/v1/presets").json()["presets"] if one["origin"]["kind"] != "shipped"]
    assert ada.get("/api/v1/outputs").json()["total"] == 1
    for path in ("jobs", "outputs", "outputs/filters", "events"):
        assert bob.get(f"/api/v1/{path}", params={"everyone": True}).status_code == 403, path
    assert admin.get("/api/v1/outputs").json()["total"] == 0
    everyones = admin.get("/api/v1/outputs", params={"everyone": True}).json()["outputs"]
    assert [output["owner"] for output in everyones] == [ADA]
    jobs = admin.get("/api/v1/jobs", params={"everyone": True}).json()["jobs"]
    assert ADA in {job["owner"] for job in jobs}
    for path in (f"jobs/{house.ids['job_id']}", f"outputs/{house.ids['output_id']}/file"):
        assert admin.get(f"/api/v1/{path}").status_code == 200


def test_the_machine_is_for_those_who_look_after_it(house: House) -> None:
    bob, admin = house.clients[BOB], house.clients[ADMIN]
    asked = 0
    for method, path in list_routes(house.app.routes):
        if path.startswith(("/api/v1/system", "/api/v1/workers")) and method != "HEAD" and not path.endswith("/usage"):
            is_plan = path.endswith("/plan")
            query = {"model": "demo-sdxl"} if is_plan and method == "GET" else None
            body = {"model": "demo-sdxl", "topology": "v6e-8"} if method == "POST" and is_plan else {}
            assert bob.request(method, path, params=query, json=body).status_code == 403, (method, path)
            asked += 1
    assert asked >= 13
    assert bob.get("/api/v1/system/log").json()["error"]["advice"] == "Ask an admin of this studio."
    assert admin.get("/api/v1/system/log").status_code == 200
    assert {one["owner"] for one in bob.get("/api/v1/system/usage").json()["owners"]} <= {BOB}


def test_models_are_downloaded_and_deleted_by_those_who_look_after_the_machine(house: House) -> None:
    bob, admin, url = house.clients[BOB], house.clients[ADMIN], "/api/v1/models"
    asked = [("POST", "repositories", {"repo": "a/b"}), ("POST", "arrivals", {"place": "https://a.example/b"}),
             ("POST", "arrivals/x", None), ("DELETE", "arrivals/x", None),
             ("GET", "files", None), ("GET", "demo-sdxl/access", None), ("POST", "demo-sdxl/download", None),
             ("DELETE", "demo-sdxl/download", None), ("DELETE", "demo-sdxl/files", None), ("DELETE", "demo-sdxl", None),
             ("PUT", "default", {"model": "demo-wan"}), ("PUT", "token", {"token": "hf_12345678"}),
             ("DELETE", "token", None)]  # fmt: skip
    for method, path, body in asked:
        assert bob.request(method, f"{url}/{path}", json=body).status_code == 403, (method, path)
    assert bob.post(url, params={"name": "mine"}, content=b"a model").status_code == 403
    assert not house.settings.hub_token_file.exists()
    assert admin.get(f"{url}/files").status_code == 200


def test_loras_are_changed_by_those_who_look_after_the_machine(house: House, encode_lora: Any) -> None:
    bob, admin, url = house.clients[BOB], house.clients[ADMIN], "/api/v1/loras"
    sent = {"params": {"name": "boats"}, "content": encode_lora()}
    assert bob.post(url, **sent).status_code == 403
    assert admin.post(url, **sent).status_code == 201
    assert bob.delete(f"{url}/boats").status_code == 403
    assert (house.settings.loras_dir / "boats.safetensors").is_file()
    assert admin.delete(f"{url}/boats").status_code == 204


def test_the_worker_and_its_error_are_for_those_who_look_after_the_machine(house: House) -> None:
    """A card may speak of somebody's job, and of files of the server."""
    card = Card(title="The worker crashed", detail="Ada's job", advice="See /var/lib/lumesh/worker.log")
    with closing(open_database(house.settings.database_file)) as database, database.write() as tx:
        workers.describe(
            tx,
            LOCAL,
            WorkerState.RESTARTING,
            activity="restarting",
            error=card.to_json(),
            pid=4711,
            model="",
            shapes={},
        )
    house.app.state.studio.condition.note("worker", card)
    told = {name: house.clients[name].get("/api/v1/health").json() for name in (BOB, ADMIN)}
    house.app.state.studio.condition.clear("worker")
    assert told[ADMIN]["engine"]["pid"] == 4711
    assert "Ada's job" in str(told[ADMIN])
    assert told[BOB]["engine"]["pid"] is None
    assert told[BOB]["status"] == "failing"
    assert told[BOB]["engine"]["error"]["title"] == told[BOB]["problems"][0]["title"] == "The worker crashed"
    for secret in ("Ada's job", "/var/lib", "4711"):
        assert secret not in str(told[BOB])


@pytest.fixture
def browser(house: House, monkeypatch: pytest.MonkeyPatch) -> Iterator[TestClient]:
    """A browser in which Grace has just logged in."""
    monkeypatch.setattr(passwords, "LOG2_N", 4)  # a quick hash
    users = Users(house.settings.users_file)
    users.add("grace", password="hopper-1906", is_admin=False)
    client = TestClient(house.app, follow_redirects=False)
    assert client.post("/login", data={"name": "Grace", "password": "hopper-1906"}).status_code == 303
    yield client
    users.remove("grace")


def test_a_session_ends_by_logging_out_also_by_the_address_that_gradio_has(house: House, browser: TestClient) -> None:
    stolen = {"Cookie": f"{COOKIE}={browser.cookies[COOKIE]}"}
    assert browser.get("/api/v1/me").json()["name"] == "grace"
    link = browser.get("/logout", headers={"Sec-Fetch-Site": "cross-site"})
    assert (link.status_code, link.headers["location"]) == (303, "./")
    assert browser.get("/api/v1/me").status_code == 200, "a link of another site ends nothing"
    out = browser.get("/logout", headers={"Sec-Fetch-Site": "none"})
    assert (out.status_code, out.headers["location"]) == (303, "./login")
    assert COOKIE not in browser.cookies
    assert house.clients[""].get("/api/v1/me", headers=stolen).status_code == 401


def test_a_browser_that_logged_in_before_is_let_in_while_others_guess(house: House, browser: TestClient) -> None:
    browser.post("/logout")
    door = house.app.state.studio.door
    while not door._logins_of_account.take("grace"):  # guesses from everywhere
        pass
    form = {"name": "grace", "password": "hopper-1906"}
    stranger = TestClient(house.app, follow_redirects=False)
    refused = stranger.post("/login", data=form)
    assert refused.status_code == 429
    assert int(refused.headers["retry-after"]) > 0
    assert browser.post("/login", data=form).status_code == 303


def test_the_page_is_told_no_address_that_anybody_made_up(house: House) -> None:
    said = {"X-Forwarded-Host": "evil.example", "X-Gradio-Server": "http://evil.example", "X-Forwarded-Prefix": "/evil"}
    for path in ("/", "/config"):
        answer = house.clients[BOB].get(path, headers=said)
        assert answer.status_code == 200
        assert "evil" not in answer.text


def test_gradios_events_are_followed_and_cancelled_by_whoever_asked(house: House) -> None:
    ada, bob = house.clients[ADA], house.clients[BOB]
    event = ada.post("/gradio_api/call/status", json={"data": [house.ids["job_id"]]}).json()["event_id"]
    assert bob.get(f"/gradio_api/call/status/{event}").status_code == 404
    cancel = {"session_hash": event, "fn_index": 0, "event_id": event}
    assert bob.post("/gradio_api/cancel", json=cancel).status_code == 404
    assert ada.post("/gradio_api/cancel", json=cancel).status_code == 200


@pytest.mark.parametrize(
    "path", ["run/status", "run/cancel", "run/submit", "call/submit", "call/generate", "call/v2/submit", "run/nothing"]
)
@pytest.mark.parametrize(
    "data", [[{}], [[1]], ["\ud800"], [None], [], [1, 2, 3], [{"loras": [1]}], [{"prompt": "\ud800"}]], ids=str
)
def test_gradios_endpoints_take_anything_without_a_traceback(
    house: House, path: str, data: list[Any], caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    body = {"content": json.dumps({"data": data}), "headers": {"Content-Type": "application/json"}}
    answer = house.clients[BOB].post(f"/gradio_api/{path}", **body)
    assert answer.headers["content-type"].startswith("application/json"), answer.text
    printed = "".join(capfd.readouterr())
    assert "Traceback" not in printed + caplog.text
    assert "Error binding" not in answer.text


def test_me_is_who_the_token_says(house: House) -> None:
    me = {name: house.clients[name].get("/api/v1/me").json() for name in (ADMIN, BOB)}
    assert (me[BOB]["owner"], me[BOB]["is_admin"], me[BOB]["sees_everyone"]) == (BOB, False, False)
    assert (me[ADMIN]["is_admin"], me[ADMIN]["sees_everyone"], me[ADMIN]["is_known"]) == (True, True, True)


def test_gradios_own_uploads_and_files_are_closed_to_everybody(house: House) -> None:
    bob, database = house.clients[BOB], house.settings.database_file
    assert bob.post("/gradio_api/upload", files={"files": b"x"}).status_code == 404
    for path in (
        f"/gradio_api/file={database}",
        f"/gradio_api/file/{database}",
        "/gradio_api/proxy=https://a",
        "/login/",
    ):
        assert bob.get(path).status_code == 404, path
    assert bob.get("/config").status_code == 200


def test_gradios_endpoints_know_who_asks(house: House) -> None:
    ada, bob = house.clients[ADA], house.clients[BOB]

    def call(client: TestClient, name: str, *values: Any) -> tuple[int, str]:
        answer = client.post(f"/gradio_api/run/{name}", json={"data": values})
        return answer.status_code, answer.text

    status, text = call(bob, "submit", {"model": "demo-sdxl", "prompt": "Bob's own"})
    assert status == 200, text
    job_id = re.findall(r'"data":\["(\w+)"\]', text)[0]
    assert bob.get(f"/api/v1/jobs/{job_id}").json()["owner"] == BOB
    assert call(ada, "status", job_id)[0] == 500
    assert call(ada, "cancel", job_id)[0] == 500
    assert bob.get(f"/api/v1/jobs/{job_id}").json()["state"] == "queued"
    assert call(bob, "cancel", job_id)[0] == 200


def test_a_shared_gallery_shows_outputs_and_presets_but_changes_nothing(house: House, tmp_path: Path) -> None:
    access = replace(house.settings.access, shared_gallery=True)
    settings = replace(house.settings, access=access)
    bearer = house.clients[BOB].headers["authorization"]
    with closing(open_database(settings.database_file)) as database:
        app = build(settings, database, load_catalog())
        bob = TestClient(app, headers={"Authorization": bearer})
        output, preset = house.ids["output_id"], house.ids["preset_id"]
        assert bob.get("/api/v1/outputs", params={"everyone": True}).json()["total"] == 1
        assert bob.get("/api/v1/outputs").json()["total"] == 0
        for path in (f"outputs/{output}", f"outputs/{output}/file", f"outputs/{output}/thumb", f"presets/{preset}"):
            assert bob.get(f"/api/v1/{path}").status_code == 200, path
        assert bob.get(f"/api/v1/outputs/{house.trashed}").status_code == 404
        assert bob.patch(f"/api/v1/outputs/{output}", json={"favourite": True}).status_code == 404
        assert bob.delete(f"/api/v1/outputs/{output}").status_code == 404
        assert bob.delete(f"/api/v1/presets/{preset}").status_code == 404
        assert bob.get(f"/api/v1/jobs/{house.ids['job_id']}").status_code == 404
        assert bob.get("/api/v1/outputs", params={"everyone": True, "state": "trashed"}).status_code == 403
        assert bob.get("/api/v1/me").json()["sees_everyone"] is True

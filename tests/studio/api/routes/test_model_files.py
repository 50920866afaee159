"""Models' files over REST, with a hub of our own: downloads, gated ones, deleting, the default, the token."""

import json
import re
import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient
from huggingface_hub import constants

from pipelines.models.catalog import Catalog, read_data_dir
from pipelines.models.own_models import LIKE
from pipelines.runtime.weights import hub_token
from pipelines.runtime.weights.hub_files import POLL_S
from studio.api.application import create_api
from studio.database import Database
from studio.jobs import trainings
from studio.services import first_model
from studio.settings import Settings
from tests.conftest import wait_for
from tests.hub import COMMIT, FILES, REPO, WEIGHTS, Hub, run_hub
from tests.pipelines.models.test_model_arrivals import list_boats
from tests.pipelines.models.test_single_files import write_header

SLOW_S = 60.0  # a download of megabytes that are flushed, on a machine whose disk may be busy
TOKEN = "hf_of-somebody-who-accepted"
ENTRY = f"""
[[model]]
id = "own-sdxl"
like = "sdxl-base"
repo = "{REPO}"
revision = "{COMMIT}"
variant = "fp16"
"""


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Hub]:
    """What huggingface_hub reads of its environment when it is imported is this hub, and an empty cache."""
    with run_hub() as hub:
        monkeypatch.setattr(constants, "ENDPOINT", hub.url)
        monkeypatch.setattr(
            constants, "HUGGINGFACE_CO_URL_TEMPLATE", hub.url + "/{repo_id}/resolve/{revision}/{filename}"
        )
        monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
        monkeypatch.setattr(constants, "HF_HUB_DISABLE_XET", True)
        for name in ("HF_TOKEN", "HUGGING_FACE_HUB_TOKEN"):
            monkeypatch.delenv(name, raising=False)
        monkeypatch.setattr(constants, "HF_TOKEN_PATH", str(tmp_path / "no-login"))
        yield hub


@pytest.fixture
def keeper(hub: Hub, settings: Settings, database: Database) -> Iterator[TestClient]:
    (settings.data_dir / "models.toml").write_text(ENTRY)
    shutil.copytree("presets/demo/demo-sdxl", settings.models_dir / "me" / "mine")

    def read() -> Catalog:
        return read_data_dir(settings.data_dir)

    with TestClient(create_api(settings, database, read(), read_catalog=read)) as client:
        yield client
    hub_token.forget_token(settings.hub_token_file)


@pytest.fixture
def look(keeper: TestClient) -> Callable[[str], dict[str, Any]]:
    """Returns what REST tells of a model's files."""

    def look(model: str = "own-sdxl") -> dict[str, Any]:
        listed = keeper.get("/api/v1/models/files").raise_for_status().json()["models"]
        return next(one for one in listed if one["id"] == model)

    return look


def wait_for_state(look: Callable[[str], dict[str, Any]], *states: str) -> dict[str, Any]:
    return wait_for(
        f"the download to be {states}",
        lambda: found if ((found := look("own-sdxl"))["download"] or {}).get("state") in states else None,
        timeout_s=SLOW_S,
    )


def test_a_download_is_paused_goes_on_where_it_stopped_and_is_deleted(
    hub: Hub, keeper: TestClient, look: Callable[..., dict[str, Any]]
) -> None:
    hub.names_sha256, hub.stalls_after = True, 11 * 2**20
    assert (look()["is_here"], look()["disk_bytes"], look()["download"]) == (False, 0, None)
    assert keeper.post("/api/v1/models/own-sdxl/download").status_code == 202
    wait_for("10 MiB", lambda: (look()["download"] or {}).get("done_bytes", 0) > 10 * 2**20, timeout_s=SLOW_S)

    assert keeper.delete("/api/v1/models/own-sdxl/download").status_code == 204
    paused_s = time.monotonic()
    wait_for("the host to have looked", lambda: time.monotonic() > paused_s + 3 * POLL_S)
    hub.stalls_after = None
    hub.goes_on.set()
    paused = wait_for_state(look, "paused")
    wait_for("the connection to end", lambda: look()["partial_bytes"] > 10 * 2**20, timeout_s=SLOW_S)
    assert not paused["is_here"]

    keeper.post("/api/v1/models/own-sdxl/download")
    done = wait_for_state(look, "done")
    assert done["is_here"]
    assert done["disk_bytes"] > len(FILES[WEIGHTS])
    assert (first := hub.ranges())[0] is None
    assert re.fullmatch(r"bytes=\d+-", str(first[1]))

    assert keeper.delete("/api/v1/models/own-sdxl/files").json()["bytes"] == done["disk_bytes"]
    assert (look()["is_here"], look()["disk_bytes"], look()["is_own"]) == (False, 0, True)


def test_a_gated_model_says_so_and_comes_with_a_token_that_nobody_is_shown(
    hub: Hub, keeper: TestClient, look: Callable[..., dict[str, Any]], settings: Settings
) -> None:
    hub.accepted = TOKEN
    access = "/api/v1/models/own-sdxl/access"
    assert keeper.get(access).json() == {"is_gated": True, "is_granted": False}
    keeper.post("/api/v1/models/own-sdxl/download")
    failed = wait_for_state(look, "failed")["download"]
    assert "is gated" in failed["error"]
    assert "System > Models" in failed["error"]

    assert keeper.put("/api/v1/models/token", json={"token": f" {TOKEN}\n"}).json() == {"token": "studio"}
    assert settings.hub_token_file.stat().st_mode & 0o777 == 0o600
    assert keeper.get(access).json() == {"is_gated": True, "is_granted": True}
    keeper.post("/api/v1/models/own-sdxl/download")
    wait_for_state(look, "done")
    assert TOKEN not in keeper.get("/api/v1/models/files").text

    assert keeper.delete("/api/v1/models/token").json() == {"token": ""}
    assert keeper.get(access).json()["is_granted"] is False


@pytest.mark.parametrize("token", ["", "short", "two words here", "ключ-ключ-ключ"])
def test_what_is_no_token_is_refused(keeper: TestClient, settings: Settings, token: str) -> None:
    answer = keeper.put("/api/v1/models/token", json={"token": token})
    assert answer.status_code == 422
    assert "no token" in answer.json()["error"]["detail"]
    assert not settings.hub_token_file.exists()


@pytest.mark.parametrize("is_trained", [False, True])
def test_a_folder_is_deleted_where_it_is_the_studios(
    keeper: TestClient, look: Callable[..., dict[str, Any]], settings: Settings, *, is_trained: bool
) -> None:
    """One that a demo model was trained to, too: it is a demo by its settings, and did not come with Lumesh."""
    if is_trained:
        index = settings.models_dir / "me" / "mine" / "model_index.json"
        index.write_text(json.dumps(json.loads(index.read_text("utf-8")) | {LIKE: "demo-sdxl"}), "utf-8")
        wait_for("the folder to be read", lambda: look("me-mine")["licence"] == "Apache-2.0")
    assert (look("me-mine")["is_own"], look("me-mine")["origin"]) == (True, "folder")
    size = sum(file.stat().st_size for file in (settings.models_dir / "me").rglob("*") if file.is_file())
    assert keeper.delete("/api/v1/models/me-mine").json()["bytes"] == size
    assert not (settings.models_dir / "me").exists()
    assert settings.models_dir.is_dir()


def test_a_link_is_deleted_and_what_it_leads_to_stays(keeper: TestClient, settings: Settings, tmp_path: Path) -> None:
    (settings.models_dir / "me" / "mine").rename(tmp_path / "elsewhere")
    (settings.models_dir / "linked").symlink_to(tmp_path / "elsewhere")
    wait_for("the link to be read", lambda: "linked" in keeper.get("/api/v1/models/files").text)
    assert keeper.delete("/api/v1/models/linked").status_code == 200
    assert not (settings.models_dir / "linked").is_symlink()
    assert (tmp_path / "elsewhere" / "model_index.json").is_file()


def test_what_came_with_lumesh_stays(keeper: TestClient, look: Callable[..., dict[str, Any]]) -> None:
    assert look("demo-sdxl")["origin"] == "demo"
    assert keeper.delete("/api/v1/models/demo-sdxl/files").json() == {"bytes": 0}
    answer = keeper.delete("/api/v1/models/demo-sdxl")
    assert (answer.status_code, look("demo-sdxl")["is_here"]) == (422, True)
    assert "comes with Lumesh" in answer.json()["error"]["detail"]
    refused = keeper.post("/api/v1/models/demo-sdxl/download")
    assert refused.status_code == 409


def test_the_default_is_chosen_and_given_back_to_the_devices(
    keeper: TestClient, settings: Settings, catalog: Catalog
) -> None:
    def choose() -> str:
        return first_model.choose(settings, catalog, [{"kind": "cpu"}], chips=1).id

    assert choose() == "demo-flux2"
    assert keeper.put("/api/v1/models/default", json={"model": "demo-wan"}).json() == {"default": "demo-wan"}
    assert choose() == "demo-wan"
    assert first_model.choose_opening(settings, catalog, catalog.get("demo-wan"), resident="demo-sdxl") == "demo-wan"
    assert keeper.get("/api/v1/models/files").json()["default"] == "demo-wan"
    assert keeper.put("/api/v1/models/default", json={"model": "nope"}).status_code == 404
    settings.default_model_file.write_text("gone-since")
    assert choose() == "demo-flux2"
    assert keeper.put("/api/v1/models/default", json={"model": None}).json() == {"default": None}
    assert not settings.default_model_file.exists()


@pytest.mark.model  # its writer needs torch
def test_a_checkpoint_in_one_file_is_added_and_anything_else_refused_with_what_it_is(
    keeper: TestClient, settings: Settings, tmp_path: Path, encode_lora: Callable[..., bytes]
) -> None:
    def send(name: str, content: bytes) -> Any:
        return keeper.post("/api/v1/models", params={"name": name}, content=content)

    from tests.pipelines.single_files import write_ldm

    pony = write_ldm(Path("presets/demo/demo-sdxl"), tmp_path / "pony.safetensors").read_bytes()
    assert send("Pony V6 (XL).safetensors", pony).json() == {"id": "pony-v6-xl"}
    listed = wait_for("the catalogue", lambda: [one for one in _list(keeper) if one["id"] == "pony-v6-xl"])[0]
    assert (listed["origin"], listed["is_here"], listed["disk_bytes"], listed["is_own"]) == (
        "file", True, len(pony), True,
    )  # fmt: skip

    for name, content, reason in (
        ("Pony V6 (XL)", pony, "called pony-v6-xl already"),
        ("boats", encode_lora(), "It is a LoRA, not a model."),
        ("nothing", b"nothing", ""),
        ("...", pony, "cannot name a model"),
    ):
        answer = send(name, content)
        assert answer.status_code == 422, answer.text
        assert reason in answer.json()["error"]["detail"]
    assert {file.name for file in settings.models_dir.iterdir()} == {"me", "Pony V6 (XL).safetensors"}


def _list(keeper: TestClient) -> list[dict[str, Any]]:
    return keeper.get("/api/v1/models/files").json()["models"]


def test_a_repository_is_added_once_at_its_commit(keeper: TestClient, hub: Hub, settings: Settings) -> None:
    (settings.data_dir / "models.toml").unlink()
    hub.files = {
        file.relative_to("presets/demo/demo-sdxl").as_posix(): file.read_bytes()
        for file in Path("presets/demo/demo-sdxl").rglob("*.json")
    }
    added = keeper.post("/api/v1/models/repositories", json={"repo": f" {REPO} "})
    assert (added.status_code, added.json()) == (201, {"id": "some-sdxl"})
    assert COMMIT in (settings.data_dir / "models.toml").read_text("utf-8")
    wait_for("the catalogue", lambda: any(one["id"] == "some-sdxl" for one in _list(keeper)))
    for repo, reason in (
        (REPO, "some-sdxl"),
        ("someone/nothing", "knows no repository"),
        ("nonsense", "no repository"),
    ):
        answer = keeper.post("/api/v1/models/repositories", json={"repo": repo})
        assert answer.status_code == 422
        assert reason in answer.json()["error"]["detail"]
    assert keeper.delete("/api/v1/models/some-sdxl").status_code == 200
    assert "some-sdxl" not in (settings.data_dir / "models.toml").read_text("utf-8")


def test_an_unknown_model_is_not_found(keeper: TestClient) -> None:
    for method, path in (("POST", "download"), ("DELETE", "download"), ("DELETE", "files"), ("GET", "access")):
        assert keeper.request(method, f"/api/v1/models/nope/{path}").status_code == 404


def wait_for_arrival(keeper: TestClient, arrival_id: str, *states: str) -> dict[str, Any]:
    def look() -> dict[str, Any] | None:
        listed = keeper.get("/api/v1/models/files").json()["arrivals"]
        found = next(one for one in listed if one["id"] == arrival_id)
        return found if found["state"] in states else None

    return wait_for(f"{arrival_id} to be {states}", look)


def test_a_file_of_a_repository_is_downloaded_while_one_looks_on(
    hub: Hub, keeper: TestClient, settings: Settings, tmp_path: Path
) -> None:
    boats = write_header(tmp_path / "a.safetensors", list_boats()).read_bytes()
    hub.files = {"sub/boats.safetensors": boats, "page.safetensors": b"no weights, whatever its name says" * 99}
    asked = {"place": REPO, "file": "sub/boats.safetensors", "name": "My boats"}
    answer = keeper.post("/api/v1/models/arrivals", json=asked)
    assert (answer.status_code, answer.json()["title"]) == (202, f"{REPO}/sub/boats.safetensors")
    done = wait_for_arrival(keeper, answer.json()["id"], "done", "failed")
    assert (done["made"], done["done_bytes"], done["error"]) == ("my-boats", len(boats), "")
    listed = wait_for("the catalogue", lambda: [one for one in _list(keeper) if one["id"] == "my-boats"])[0]
    assert (listed["origin"], listed["url"]) == (
        "file", f"https://huggingface.co/{REPO}/blob/{COMMIT}/sub/boats.safetensors"
    )  # fmt: skip

    wrong = keeper.post("/api/v1/models/arrivals", json={"place": REPO, "file": "page.safetensors"}).json()
    failed = wait_for_arrival(keeper, wrong["id"], "failed")
    assert "neither a safetensors nor a GGUF file" in failed["error"]
    assert keeper.delete(f"/api/v1/models/arrivals/{wrong['id']}").status_code == 204
    assert [one["id"] for one in keeper.get("/api/v1/models/files").json()["arrivals"]] == [done["id"]]
    assert keeper.post(f"/api/v1/models/arrivals/{wrong['id']}").status_code == 404


def test_a_stopped_arrival_goes_on(hub: Hub, keeper: TestClient, tmp_path: Path) -> None:
    hub.files = {"boats.safetensors": write_header(tmp_path / "a.safetensors", list_boats()).read_bytes()}
    hub.stalls_after = 2**20 + 2**19
    place = "https://huggingface.co/someone/some-sdxl/blob/main/boats.safetensors"
    arrival = keeper.post("/api/v1/models/arrivals", json={"place": place}).json()["id"]
    wait_for("a part", lambda: wait_for_arrival(keeper, arrival, "running", "waiting")["done_bytes"] > 2**20)
    assert keeper.delete(f"/api/v1/models/arrivals/{arrival}").status_code == 204
    assert wait_for_arrival(keeper, arrival, "paused")["made"] is None
    hub.stalls_after = None
    hub.goes_on.set()
    assert keeper.post(f"/api/v1/models/arrivals/{arrival}").status_code == 202
    assert wait_for_arrival(keeper, arrival, "done", "failed")["made"] == "boats"


def test_no_address_of_this_network_is_asked_unless_the_operator_says_so(keeper: TestClient) -> None:
    for place, reason in (
        ("http://127.0.0.1:9/a.safetensors", "is not on the public internet"),
        ("http://printer.local/a.safetensors", "is not on the public internet"),
        ("file:///etc/passwd", "is not an address"),
        ("owner/name", "is no file of the web"),
    ):
        answer = keeper.post("/api/v1/models/arrivals", json={"place": place})
        assert answer.status_code == 422
        assert reason in answer.json()["error"]["detail"]
    assert keeper.get("/api/v1/models/files").json()["arrivals"] == []


@pytest.mark.model  # its writer needs torch
def test_the_loras_that_a_preset_needs_are_downloaded_where_it_says(
    hub: Hub, keeper: TestClient, settings: Settings, database: Database, encode_lora: Callable[..., bytes]
) -> None:
    boats = encode_lora()
    hub.files = {"sub/boats.safetensors": boats, "words.safetensors": b"no weights, whatever its name says" * 99}

    def save(file: str) -> str:
        source = {"ref": "far/boats", "repo": REPO, "file": file, "licence": "MIT"}
        recipe = {"model": "demo-sdxl", "prompt": "A boat", "loras": [{"ref": "far/boats"}]}
        document = {"title": file, "recipe": recipe, "loras": [source]}
        return keeper.post("/api/v1/presets/import", json=document).json()["presets"][0]["id"]

    wrong = keeper.post(f"/api/v1/presets/{save('words.safetensors')}/loras").json()["arrivals"][0]
    assert "cannot be used as a LoRA" in wait_for_arrival(keeper, wrong["id"], "failed")["error"]
    preset = save("sub/boats.safetensors")
    with database.write() as tx:  # a training's, whose file somebody took away by hand
        tx.execute("INSERT INTO lora_owners (ref, owner) VALUES ('far/boats', 'ada')")
    assert [lora["ref"] for lora in keeper.get(f"/api/v1/presets/{preset}").json()["lacks"]] == ["far/boats"]
    answer = keeper.post(f"/api/v1/presets/{preset}/loras")
    assert answer.status_code == 202
    arrival = wait_for_arrival(keeper, answer.json()["arrivals"][0]["id"], "done", "failed")
    assert (arrival["kind"], arrival["made"], arrival["error"]) == ("lora", "far/boats", "")
    assert (settings.loras_dir / "far" / "boats.safetensors").read_bytes() == boats
    assert keeper.get(f"/api/v1/presets/{preset}").json()["lacks"] == []
    assert trainings.list_loras_of(database, owner="ada") == set()

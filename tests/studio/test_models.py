"""The catalogue follows the data directory while the studio runs: in the app, over REST, and in the worker."""

import itertools
import shutil
from dataclasses import replace

import pytest
from fastapi.testclient import TestClient

from pipelines.errors import LumeshError, ModelError
from pipelines.models.catalog import PRESETS_DIR, Catalog, Shape, load_catalog
from pipelines.stages import ignore_progress
from studio.api.application import create_api
from studio.database import Database
from studio.models import REREAD_S, LiveCatalog, check_prewarm, read_catalog
from studio.settings import Settings
from studio.worker.loop import Worker


def test_it_is_read_again_when_it_is_old_and_not_before() -> None:
    clock, read = [0.0], list[float]()

    def read_again() -> Catalog:
        read.append(clock[0])
        return load_catalog()

    live = LiveCatalog(load_catalog(), read_again, clock=lambda: clock[0])
    for time_s in (0.0, REREAD_S / 2, REREAD_S, REREAD_S * 1.5, REREAD_S * 2):
        clock[0] = time_s
        assert live.now.default.id == "demo-flux2"
    assert read == [REREAD_S, REREAD_S * 2]


def test_rest_lists_what_arrives_and_why_it_cannot_be_used(settings: Settings, database: Database) -> None:
    api = create_api(settings, database, load_catalog())
    ticks = itertools.count(step=REREAD_S)
    live = LiveCatalog(load_catalog(), lambda: read_catalog(settings), clock=lambda: next(ticks))
    api.state.studio = replace(api.state.studio, live_catalog=live)
    folder = settings.models_dir / "author" / "mine"
    folder.mkdir(parents=True)
    shutil.copy(PRESETS_DIR / "demo" / "demo-sdxl" / "model_index.json", folder)  # what arrives first of a download
    with TestClient(api) as client:
        answer = client.get("/api/v1/models").raise_for_status().json()
        assert [(one["name"], "unet/config.json is not there" in one["reason"]) for one in answer["unusable"]] == [
            ("author/mine", True)
        ]
        assert client.get("/api/v1/system").json()["unusable"] == answer["unusable"]
        refused = client.post("/api/v1/jobs", json={"model": "author-mine", "prompt": "x"})
        assert "cannot be used: " in refused.text
        shutil.copytree(PRESETS_DIR / "demo" / "demo-sdxl", folder, dirs_exist_ok=True)
        answer = client.get("/api/v1/models").json()
        assert answer["models"][-1]["id"] == "author-mine"
        assert not answer["unusable"]
        client.post("/api/v1/jobs", json={"model": "author-mine", "prompt": "x"}).raise_for_status()


def test_a_start_with_nothing_to_prewarm_is_refused_and_says_why() -> None:
    check_prewarm(["all", "256x256*4", "demo-sdxl:320x192*8", "1024x1024+4*2"], load_catalog())
    for entry, problem in (
        ("640x640", "no model has this size"),
        ("demo-sdxl:512x512", "demo-sdxl has 256x256, 320x192, "),
        ("demo-sdxl:256x256*9", "at most 8 images at once"),
        ("demo-wan:all+1", "or not for so many images or pictures"),
        ("demo-sdxk:all", "no model 'demo-sdxk'"),
    ):
        with pytest.raises(LumeshError, match=problem):
            check_prewarm([entry], load_catalog())


def test_a_new_visitors_page_opens_with_the_operators_model_or_the_one_in_memory(
    settings: Settings, database: Database, worker: Worker
) -> None:
    chosen = replace(settings, model="demo-wan")
    with TestClient(create_api(chosen, database, load_catalog())) as client:
        assert client.get("/api/v1/models").json()["default"] == "demo-wan"
    with TestClient(create_api(settings, database, load_catalog())) as client:
        assert client.get("/api/v1/models").json()["default"] is None  # no device is known yet
        worker.default_model = load_catalog().get("demo-sdxl")
        worker.run_next()
        assert client.get("/api/v1/models").json()["default"] == "demo-sdxl"


def test_the_worker_reads_it_anew_for_each_job(worker: Worker, settings: Settings) -> None:
    worker.read_catalog = lambda: read_catalog(settings)
    with pytest.raises(ModelError, match="no model 'mine'"):
        worker.find_model("mine")
    shutil.copytree(PRESETS_DIR / "demo" / "demo-sdxl", settings.models_dir / "mine")
    assert worker.find_model("mine").path == settings.models_dir / "mine"


def test_a_text_encoder_may_lack_its_weights_where_another_machine_has_them(settings: Settings) -> None:
    folder = settings.models_dir / "mine"
    shutil.copytree(PRESETS_DIR / "demo" / "demo-flux2", folder)
    for file in (folder / "text_encoder").glob("*.safetensors"):
        file.unlink()
    assert [one.name for one in read_catalog(settings).unusable] == ["mine"]
    remote = replace(settings, text_encoder_urls={"flux2": "http://127.0.0.1:9"})
    assert read_catalog(remote).get("mine").path == folder


def test_a_model_whose_sizes_have_grown_stays_loaded_and_one_with_other_weights_does_not(worker: Worker) -> None:
    model = load_catalog().default
    family, swap = worker.resident.become(model, ignore_progress)
    assert swap is not None
    grown = replace(model, shapes=(*model.shapes, Shape(width=64, height=64)))
    assert worker.resident.become(grown, ignore_progress) == (family, None)
    assert "64x64" in worker.resident.describe_shapes()
    other, swap = worker.resident.become(replace(model, variant="fp16"), ignore_progress)
    assert swap is not None
    assert other is not family


def test_all_models_of_a_studio_have_their_weights_as_it_was_started(settings: Settings) -> None:
    shutil.copytree(PRESETS_DIR / "demo" / "demo-sdxl", settings.models_dir / "mine")
    models = read_catalog(replace(settings, weights="int8")).models
    assert "mine" in {model.id for model in models}
    assert {model.weights for model in models} == {"int8"}
    assert {model.weights for model in read_catalog(settings).models} == {"full"}
    (settings.data_dir / "models.toml").write_text('[[model]]\nid = "mine"\nweights = "int8"\n')
    own = {model.weights: model.id for model in read_catalog(settings).models}
    assert own.keys() == {"full", "int8"} and own["int8"] == "mine", "each has its own, unless the studio says one"
    assert {model.weights for model in read_catalog(replace(settings, weights="full")).models} == {"full"}


def test_a_model_that_is_loaded_in_full_does_not_serve_for_one_in_int8(settings: Settings) -> None:
    full = read_catalog(settings).get("demo-sdxl")
    assert not replace(full, weights="int8").is_loaded_like(full)

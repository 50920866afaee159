"""Downloads against a hub of our own (tests/hub.py).

huggingface_hub reads HF_ENDPOINT when it is imported, so each download runs in a process of its own.
"""

import hashlib
import json
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from pipelines.runtime.weights.hub import find_revision
from tests.conftest import wait_for
from tests.hub import COMMIT, FILES, GATED, REPO, WEIGHTS, Hub, make_environment, run_hub
from tests.places import ROOT

DOWNLOAD = """
import json, sys
from pipelines.models.catalog import Model, Shape
from pipelines.errors import LumeshError
from pipelines.runtime.weights import hub

seen = []
def watch(done, total):
    seen.append((done, total))
    if sys.argv[2] == "stop":
        raise KeyboardInterrupt

square = Shape(width=64, height=64)
model = Model(id="m", title="m", family="sdxl", shapes=(square,), default_shape=square, steps=1, guidance_scale=1.0,
              scheduler="euler", schedulers=("euler",), repo=sys.argv[1], revision=sys.argv[3], variant="fp16")
try:
    skipped = ("unet",) if sys.argv[2] == "settings" else ()
    was_here = hub.is_here(model)
    size = hub.measure_download(model, components=("unet", "tokenizer"))
    folder = hub.locate(model, components=("unet", "tokenizer"), on_bytes=watch, without_weights=skipped)
    print(json.dumps({"folder": str(folder), "seen": seen, "here": [was_here, hub.is_here(model)], "size": size,
                      "cache": str(hub.find_cache())}))
except LumeshError as error:
    print(json.dumps({"error": error.detail, "advice": error.advice, "kind": type(error).__name__}))
"""


@pytest.fixture
def hub() -> Iterator[Hub]:
    with run_hub() as hub:
        yield hub


@pytest.fixture
def download(hub: Hub, tmp_path: Path) -> Callable[..., dict[str, Any]]:
    """Locates the model in a new process, with the cache in this test's folder."""

    def run(repo: str = REPO, *, revision: str = COMMIT, does: str = "go on", **environment: str) -> dict[str, Any]:
        done = subprocess.run(
            [sys.executable, "-c", DOWNLOAD, repo, does, revision],
            cwd=ROOT,
            env=make_environment(hub, tmp_path) | environment,
            capture_output=True,
            text=True,
            timeout=60,
        )
        assert done.stdout, done.stderr[-2000:]
        return json.loads(done.stdout.splitlines()[-1]) | {"log": done.stderr}

    return run


def test_only_the_files_needed_are_fetched_once(hub: Hub, download: Callable[..., dict[str, Any]]) -> None:
    needed = {"model_index.json", "unet/config.json", WEIGHTS, "tokenizer/vocab.json", "tokenizer/merges.txt"}
    folder = Path(download()["folder"])
    assert {str(file.relative_to(folder)) for file in folder.rglob("*") if file.is_file()} == needed
    assert all((folder / name).read_bytes() == FILES[name] for name in needed)
    assert hub.fetched() == needed

    hub.asked.clear()
    assert download()["folder"] == str(folder)
    assert hub.fetched() == set()


def test_parts_that_have_no_weights_of_the_variant_come_with_those_that_they_have(
    hub: Hub, download: Callable[..., dict[str, Any]]
) -> None:
    hub.files = {name: content for name, content in FILES.items() if name != WEIGHTS}
    said = download()
    assert "unet/diffusion_pytorch_model.safetensors" in hub.fetched()
    assert said["size"] == sum(len(hub.files[name]) for name in hub.fetched())
    assert (Path(said["folder"]) / "unet" / "diffusion_pytorch_model.safetensors").exists()


def test_of_a_part_that_is_not_used_only_the_settings_come(hub: Hub, download: Callable[..., dict[str, Any]]) -> None:
    download(does="settings")
    assert hub.fetched() == {"model_index.json", "unet/config.json", "tokenizer/vocab.json", "tokenizer/merges.txt"}


def test_what_is_here_is_known_without_asking(download: Callable[..., dict[str, Any]]) -> None:
    assert download(does="settings")["here"] == [False, False]
    assert download()["here"] == [False, True]
    assert download()["here"] == [True, True]


def test_progress_ends_at_the_size_of_all_files(download: Callable[..., dict[str, Any]]) -> None:
    seen = download()["seen"]
    needed = ("model_index.json", "unet/config.json", WEIGHTS, "tokenizer/vocab.json", "tokenizer/merges.txt")
    total = sum(len(FILES[name]) for name in needed)
    assert max(done for done, _ in seen) == seen[-1][1] == total
    assert all(0 <= done <= of for done, of in seen)


def test_the_size_of_a_download_is_known_before_it(
    hub: Hub, download: Callable[..., dict[str, Any]], tmp_path: Path
) -> None:
    needed = ("model_index.json", "unet/config.json", WEIGHTS, "tokenizer/vocab.json", "tokenizer/merges.txt")
    answer = download()
    assert answer["size"] == sum(len(FILES[name]) for name in needed)
    assert tmp_path in Path(answer["cache"]).parents
    assert download()["size"] == 0
    assert download(HF_ENDPOINT="http://127.0.0.1:9")["size"] is None
    assert download(HF_HUB_OFFLINE="1")["size"] is None


def test_a_broken_connection_goes_on_where_it_stopped(hub: Hub, download: Callable[..., dict[str, Any]]) -> None:
    hub.breaks_after, hub.breaks_left = 12 * 2**20, 1
    folder = Path(download()["folder"])
    assert (folder / WEIGHTS).read_bytes() == FILES[WEIGHTS]
    assert hub.ranges() == [None, f"bytes={12 * 2**20}-"]


def list_parts(tmp_path: Path) -> dict[str, int]:
    """Bytes of each file that is not whole yet, less those that just became whole."""
    parts: dict[str, int] = {}
    for file in (tmp_path / "hf").rglob("*.incomplete"):
        with suppress(FileNotFoundError):
            parts[file.name] = file.stat().st_size
    return parts


def test_a_killed_download_goes_on_where_it_stopped(
    hub: Hub, download: Callable[..., dict[str, Any]], tmp_path: Path
) -> None:
    hub.names_sha256, hub.stalls_after = True, 11 * 2**20
    process = subprocess.Popen(
        [sys.executable, "-c", DOWNLOAD, REPO, "go on", COMMIT],
        cwd=ROOT,
        env=make_environment(hub, tmp_path),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    name = f"{hashlib.sha256(FILES[WEIGHTS]).hexdigest()}.incomplete"
    wait_for("10 MiB", lambda: list_parts(tmp_path).get(name, 0) > 10 * 2**20, timeout_s=30)
    process.kill()
    process.wait()
    kept = list_parts(tmp_path)[name]
    orphan = tmp_path / "hf" / "hub" / f"models--{REPO.replace('/', '--')}" / "blobs" / name.replace(".", ".0123abcd.")
    orphan.write_bytes(b"what huggingface_hub leaves behind of a try")
    hub.stalls_after = None
    hub.goes_on.set()
    folder = Path(download()["folder"])
    assert (folder / WEIGHTS).read_bytes() == FILES[WEIGHTS]
    assert hub.ranges() == [None, f"bytes={kept}-"]
    assert not list_parts(tmp_path)


def test_a_server_that_gives_only_whole_files_starts_over(hub: Hub, download: Callable[..., dict[str, Any]]) -> None:
    hub.names_sha256, hub.knows_ranges = True, False
    hub.breaks_after, hub.breaks_left = 2**21, 1
    assert (Path(download()["folder"]) / WEIGHTS).read_bytes() == FILES[WEIGHTS]


def test_bytes_that_are_not_the_hubs_are_thrown_away(
    hub: Hub, download: Callable[..., dict[str, Any]], tmp_path: Path
) -> None:
    hub.names_sha256, hub.spoils = True, True
    answer = download()
    assert answer["error"] == f"{WEIGHTS} of {REPO} arrived damaged."
    assert "start the download again" in answer["advice"]
    assert not list_parts(tmp_path)
    hub.spoils = False
    assert (Path(download()["folder"]) / WEIGHTS).read_bytes() == FILES[WEIGHTS]


def test_a_connection_that_breaks_again_and_again_ends_in_advice(
    hub: Hub, download: Callable[..., dict[str, Any]]
) -> None:
    hub.breaks_after, hub.breaks_left = 1000, 100
    answer = download()
    assert answer["error"] == f"{REPO} is not on this machine and the hub cannot be reached."
    assert "goes on where it stopped" in answer["advice"]
    kept = hub.fetched() - {WEIGHTS}

    hub.breaks_left = 0
    hub.asked.clear()
    folder = Path(download()["folder"])
    assert (folder / WEIGHTS).read_bytes() == FILES[WEIGHTS]
    assert not hub.fetched() & kept
    assert hub.ranges() == ["bytes=5000-"]  # five tries of 1000 bytes


def test_a_gated_model_tells_how_to_get_in(hub: Hub, download: Callable[..., dict[str, Any]]) -> None:
    hub.refusal = GATED
    answer = download()
    assert (answer["kind"], answer["error"]) == (
        "ModelError",
        f"{REPO} is gated: its owner asks you to accept a licence.",
    )
    assert f"huggingface.co/{REPO}" in answer["advice"]
    assert "HF_TOKEN" in answer["advice"]


def test_an_unknown_or_private_repository_is_named(download: Callable[..., dict[str, Any]]) -> None:
    answer = download("someone/nothing")
    assert "no repository someone/nothing, or it is private" in answer["error"]
    assert "HF_TOKEN" in answer["advice"]


def test_a_wrong_token_is_told_as_such(hub: Hub, download: Callable[..., dict[str, Any]]) -> None:
    hub.refusal = (401, {"X-Error-Message": "Invalid credentials in Authorization header"})
    answer = download(HF_TOKEN="hf_wrong")
    assert answer["error"] == f"The hub answered 401 for {REPO}."
    assert "HF_TOKEN" in answer["advice"]


def test_an_unknown_revision_is_named(download: Callable[..., dict[str, Any]]) -> None:
    answer = download(revision="f" * 40)
    assert answer["error"] == f"{REPO} has no revision {'f' * 40}."


def test_without_a_network_the_advice_is_to_check_it(download: Callable[..., dict[str, Any]]) -> None:
    answer = download(HF_HUB_OFFLINE="1")
    assert answer["error"] == f"{REPO} is not on this machine and the hub cannot be reached."
    assert "HF_HUB_OFFLINE" in answer["advice"]


def test_a_hub_that_does_not_answer_is_asked_once(download: Callable[..., dict[str, Any]]) -> None:
    """huggingface_hub alone would ask again and again, for 23 s."""
    answer = download(HF_ENDPOINT="http://127.0.0.1:9")
    assert answer["error"] == f"{REPO} is not on this machine and the hub cannot be reached."
    assert "Retry" not in answer["log"]


def test_what_is_downloaded_works_while_the_hub_does_not_answer(download: Callable[..., dict[str, Any]]) -> None:
    folder = download()["folder"]
    assert download(HF_ENDPOINT="http://127.0.0.1:9")["folder"] == folder


def test_the_revision_of_a_download_is_its_commit(download: Callable[..., dict[str, Any]]) -> None:
    assert find_revision(Path(download(revision="main")["folder"])) == COMMIT


def test_the_revision_of_a_folder_tells_its_weights_and_settings(tmp_path: Path) -> None:
    weights = tmp_path / "a" / "unet" / "model.safetensors"
    weights.parent.mkdir(parents=True)
    weights.write_bytes(bytes(2**23))
    (tmp_path / "a" / "model_index.json").write_text("{}")
    shutil.copytree(tmp_path / "a", tmp_path / "b")
    revision = find_revision(tmp_path / "a")
    assert revision == find_revision(tmp_path / "b")
    assert re.fullmatch(r"local-[0-9a-f]{16}", revision)
    (tmp_path / "a" / "notes.md").write_text("words")
    assert find_revision(tmp_path / "a") == revision
    (tmp_path / "a" / "model_index.json").write_text("{ }")
    (tmp_path / "b" / "unet" / "model.safetensors").write_bytes(bytes(2**22) + bytes([1]) * 2**22)
    assert len({revision, find_revision(tmp_path / "a"), find_revision(tmp_path / "b")}) == 3


def test_what_is_downloaded_works_offline(download: Callable[..., dict[str, Any]]) -> None:
    folder = download()["folder"]
    assert download(HF_HUB_OFFLINE="1")["folder"] == folder

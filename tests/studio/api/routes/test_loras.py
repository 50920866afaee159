"""LoRAs over REST: which there are, one more, one less, and none that is not one."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient

from studio.api.middleware.limits import LORAS_PATH
from studio.library.loras import MAX_BYTES
from studio.settings import Settings

AddLora = Callable[..., Path]
EncodeLora = Callable[..., bytes]


def send(client: TestClient, content: bytes, name: str = "pixel.safetensors", **options: Any) -> Any:
    return client.post("/api/v1/loras", params={"name": name}, content=content, **options)


def list_refs(client: TestClient, **query: str) -> list[str]:
    return [lora["ref"] for lora in client.get("/api/v1/loras", params=query).json()["loras"]]


def test_each_lora_says_which_models_it_fits(client: TestClient, add_lora: AddLora) -> None:
    assert client.get("/api/v1/loras").json() == {"loras": []}
    add_lora("pixel", "sdxl", title="Pixel art")
    add_lora("boats", "wan")
    (boats, pixel) = client.get("/api/v1/loras").json()["loras"]
    assert (pixel["ref"], pixel["title"], pixel["family"]) == ("pixel", "Pixel art", "sdxl")
    assert pixel["size"] > 100
    assert {"demo-sdxl", "sdxl-base"} <= set(pixel["models"])
    assert "demo-sdxl" not in boats["models"]
    assert list_refs(client, model="demo-sdxl") == ["pixel"]
    assert list_refs(client, model="demo-flux2") == []
    assert client.get("/api/v1/loras", params={"model": "nothing"}).status_code == 422


def test_one_that_was_added_can_be_used_at_once(client: TestClient, encode_lora: EncodeLora) -> None:
    recipe = {"model": "demo-sdxl", "prompt": "A boat", "loras": [{"ref": "pixel", "scale": 0.5}]}
    refused = client.post("/api/v1/jobs", json=recipe)
    assert refused.status_code == 422
    assert "pixel" in refused.json()["error"]["fields"]["loras"]
    added = send(client, encode_lora())
    assert (added.status_code, added.json()["ref"]) == (201, "pixel")
    job = client.post("/api/v1/jobs", json=recipe)
    assert job.status_code == 201
    assert client.get(f"/api/v1/jobs/{job.json()['id']}").json()["recipe"]["loras"] == recipe["loras"]
    assert client.delete("/api/v1/loras/pixel").status_code == 204
    assert list_refs(client) == []
    assert client.delete("/api/v1/loras/pixel").status_code == 404


def test_a_name_that_is_taken_stays_as_it_is(client: TestClient, add_lora: AddLora, encode_lora: EncodeLora) -> None:
    file = add_lora("pixel", "wan")
    before = file.read_bytes()
    answer = send(client, encode_lora("sdxl"))
    assert answer.status_code == 409
    assert "another name" in answer.json()["error"]["advice"]
    assert file.read_bytes() == before


@pytest.mark.parametrize(
    ("name", "ref"),
    [
        ("pixel", "pixel"),
        (" Pixel art v1.2 (final).safetensors ", "Pixel art v1.2 (final)"),
        ("水彩", "水彩"),
        ("a" * 120, "a" * 120),
    ],
)
def test_names_of_people_are_kept(client: TestClient, encode_lora: EncodeLora, name: str, ref: str) -> None:
    assert send(client, encode_lora(), name).json()["ref"] == ref
    assert client.delete(f"/api/v1/loras/{ref}").status_code == 204


@pytest.mark.parametrize(
    "name",
    ["../pixel", "/etc/pixel", "a/b", "a\\b", ".pixel", ".safetensors", "", "a\x00b", "a\nb", "-a", "a" * 121, "~"],
)
def test_a_name_that_could_be_a_path_is_refused(
    client: TestClient, settings: Settings, encode_lora: EncodeLora, name: str
) -> None:
    before = sorted(settings.data_dir.rglob("*"))
    answer = send(client, encode_lora(), name)
    assert answer.status_code == 422
    assert "letters" in answer.json()["error"]["advice"]
    assert sorted(settings.data_dir.rglob("*")) == before


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"PK\3\4",
        b"\xff" * 64,
        (2**63).to_bytes(8, "little") + b"{}",
        (9).to_bytes(8, "little") + b"[" * 9,
        (2).to_bytes(8, "little") + b"{}",
        (4).to_bytes(8, "little") + b"null",
    ],
)
def test_what_is_no_lora_leaves_nothing_behind(client: TestClient, settings: Settings, content: bytes) -> None:
    answer = send(client, content)
    assert (answer.status_code, answer.json()["error"]["title"]) == (422, "This LoRA cannot be used")
    assert list(settings.loras_dir.iterdir()) == []


def test_a_lora_of_another_kind_of_model_is_refused(client: TestClient, encode_lora: EncodeLora) -> None:
    answer = send(client, encode_lora("fake"))
    assert "SDXL, FLUX.2 or Wan" in answer.json()["error"]["advice"]


def test_a_form_is_told_how_to_send_the_file(client: TestClient, encode_lora: EncodeLora) -> None:
    answer = client.post("/api/v1/loras", params={"name": "a"}, files={"file": encode_lora()})
    assert answer.status_code == 422
    assert "the file itself" in answer.json()["error"]["advice"]


def test_a_file_that_says_it_is_too_long_is_not_read(client: TestClient) -> None:
    answer = send(client, b"x", headers={"Content-Length": str(MAX_BYTES + 1)})
    assert answer.status_code == 413
    assert client.app.url_path_for("add_lora") == LORAS_PATH  # type: ignore[attr-defined]


def test_what_a_killed_server_left_is_swept_with_the_next_one(
    client: TestClient, settings: Settings, encode_lora: EncodeLora
) -> None:
    settings.loras_dir.mkdir()
    torn, fresh = (settings.loras_dir / f".{name}.part" for name in ("torn", "fresh"))
    for part in (torn, fresh):
        part.write_bytes(b"x")
    os.utime(torn, (0, 0))
    assert send(client, encode_lora()).status_code == 201
    assert sorted(file.name for file in settings.loras_dir.iterdir()) == [fresh.name, "pixel.safetensors"]

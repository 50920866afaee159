"""LoRAs over REST: which there are, one more, one less, and none that is not one."""

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from fastapi.testclient import TestClient

from pipelines.families import name_families
from studio.api.middleware import limits
from studio.library.loras import MAX_BYTES
from studio.settings import Settings

AddLora = Callable[..., Path]
EncodeLora = Callable[..., bytes]


def send(client: TestClient, content: bytes, name: str = "pixel.safetensors", **options: Any) -> Any:
    return client.post("/api/v1/loras", params={"name": name}, content=content, **options)


def make_header(**entry: Any) -> bytes:
    tensor = {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]} | entry
    text = json.dumps({"unet.mid_block.x.lora_A.weight": tensor}).encode()
    return len(text).to_bytes(8, "little") + text + bytes(4)


def list_refs(client: TestClient, **query: str) -> list[str]:
    return [lora["ref"] for lora in client.get("/api/v1/loras", params=query).json()["loras"]]


def test_each_lora_says_which_models_it_fits(client: TestClient, add_lora: AddLora) -> None:
    assert client.get("/api/v1/loras").json() == {"loras": [], "unusable": []}
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


def test_what_was_made_with_a_deleted_one_is_not_queued_again_to_fail(
    client: TestClient, encode_lora: EncodeLora
) -> None:
    send(client, encode_lora())
    recipe = {"model": "demo-sdxl", "prompt": "A boat", "loras": [{"ref": "pixel", "scale": 0.5}]}
    job = client.post("/api/v1/jobs", json=recipe).json()["id"]
    grid = client.post("/api/v1/grids", json={"recipe": recipe, "x": {"field": "steps", "values": "1, 2"}}).json()["id"]
    client.post("/api/v1/jobs/cancel", json={"scope": "all"})
    client.delete("/api/v1/loras/pixel")
    for path in (f"jobs/{job}", f"grids/{grid}"):
        refused = client.post(f"/api/v1/{path}/retry")
        assert refused.status_code == 409, path
        assert refused.json()["error"]["detail"] == "The LoRA 'pixel' is not here any more."
    assert client.get("/api/v1/jobs?state=queued").json()["jobs"] == []
    send(client, encode_lora())
    assert client.post(f"/api/v1/jobs/{job}/retry").status_code == 200


def test_a_folder_of_peft_s_is_listed_used_and_deleted_by_its_name(
    client: TestClient, settings: Settings, encode_lora: EncodeLora
) -> None:
    folder = settings.loras_dir / "ink"
    folder.mkdir(parents=True)
    (folder / "adapter_model.safetensors").write_bytes(encode_lora())
    (folder / "adapter_config.json").write_text('{"r": 2, "lora_alpha": 8}')
    assert list_refs(client) == ["ink"]
    assert send(client, encode_lora(), name="ink.safetensors").status_code == 409
    recipe = {"model": "demo-sdxl", "prompt": "A boat", "loras": [{"ref": "ink", "scale": 0.5}]}
    assert client.post("/api/v1/jobs", json=recipe).status_code == 201
    named = client.head("/api/v1/loras/ink/file").headers["content-disposition"]
    assert named == 'attachment; filename="ink.safetensors"'
    assert client.delete("/api/v1/loras/ink").status_code == 204
    assert list_refs(client) == [*folder.iterdir()] == []


def test_a_name_that_is_taken_stays_as_it_is(client: TestClient, add_lora: AddLora, encode_lora: EncodeLora) -> None:
    file = add_lora("pixel", "wan")
    before = file.read_bytes()
    for name in ("pixel.safetensors", "PIXEL.safetensors"):
        answer = send(client, encode_lora("sdxl"), name)
        assert answer.status_code == 409
        assert answer.json()["error"]["detail"] == "'pixel' is in the loras folder."
        assert "another name" in answer.json()["error"]["advice"]
    assert file.read_bytes() == before


@pytest.mark.parametrize(
    ("name", "ref"),
    [
        ("pixel", "pixel"),
        (" Pixel art v1.2 (final).safetensors ", "Pixel art v1.2 (final)"),
        ("水彩", "水彩"),
        ("a" * 120, "a" * 120),
        ("a" * 121, "a" * 120),
        ("[Pony] ink", "[Pony] ink"),
        ("!ink#1=strong@home🖋", "!ink#1=strong@home🖋"),
        ("INK.SAFETENSORS", "INK"),
        ("-ink", "ink"),
        ("ink:v2?", "ink_v2_"),
        ("../pixel", "pixel"),
        ("/etc/pixel", "etc_pixel"),
        ("a/../b", "a_.._b"),
        ("a\\b", "a_b"),
        (".pixel", "pixel"),
        ("a\x00b\nc", "a b c"),
    ],
)
def test_names_of_people_are_kept_and_never_paths(
    client: TestClient, settings: Settings, encode_lora: EncodeLora, name: str, ref: str
) -> None:
    assert send(client, encode_lora(), name).json()["ref"] == ref
    assert [file.name for file in settings.loras_dir.iterdir()] == [f"{ref}.safetensors"]
    assert client.delete(f"/api/v1/loras/{quote(ref, safe='')}").status_code == 204


@pytest.mark.parametrize("name", ["..", "/", ".safetensors", "", "\x00", "~", "- ."])
def test_a_name_of_which_nothing_is_left_is_refused(
    client: TestClient, settings: Settings, encode_lora: EncodeLora, name: str
) -> None:
    before = sorted(settings.data_dir.rglob("*"))
    answer = send(client, encode_lora(), name)
    assert answer.status_code == 422
    assert "a letter or a digit" in answer.json()["error"]["advice"]
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
        make_header(shape=[10**9, 10**9]),
        make_header(data_offsets=[-5, 0]),
        make_header(data_offsets=[0, 400]),
    ],
)
def test_what_is_no_lora_leaves_nothing_behind(client: TestClient, settings: Settings, content: bytes) -> None:
    answer = send(client, content)
    assert (answer.status_code, answer.json()["error"]["title"]) == (422, "This LoRA cannot be used")
    assert list(settings.loras_dir.iterdir()) == []


def test_a_lora_of_another_kind_of_model_is_refused(client: TestClient, encode_lora: EncodeLora) -> None:
    answer = send(client, encode_lora("fake"))
    assert name_families() in answer.json()["error"]["advice"]


def test_a_form_is_told_how_to_send_the_file(client: TestClient, encode_lora: EncodeLora) -> None:
    answer = client.post("/api/v1/loras", params={"name": "a"}, files={"file": encode_lora()})
    assert answer.status_code == 422
    assert "the file itself" in answer.json()["error"]["advice"]


def test_a_file_that_says_it_is_too_long_is_not_read(client: TestClient) -> None:
    answer = send(client, b"x", headers={"Content-Length": str(MAX_BYTES + 1)})
    assert answer.status_code == 413
    assert limits.find_body(client.app.url_path_for("add_lora")).limit == MAX_BYTES


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


def test_files_that_cannot_be_used_are_listed_with_the_reason(
    client: TestClient, settings: Settings, add_lora: AddLora
) -> None:
    add_lora("pixel", "sdxl")
    (settings.loras_dir / "torn.safetensors").write_bytes(b"\xff" * 64)
    os.mkfifo(settings.loras_dir / "pipe.safetensors")
    found = client.get("/api/v1/loras").json()
    assert [lora["ref"] for lora in found["loras"]] == ["pixel"]
    assert [(one["ref"], one["reason"], one["reason_said"]["code"] == one["reason"]) for one in found["unusable"]] == [
        ("pipe", "it is no regular file", True),
        ("torn", "it is no safetensors file, or its download was cut off", True),
    ]
    for_flux = client.get("/api/v1/loras", params={"model": "demo-flux2"}).json()["unusable"]
    assert ("pixel", "it is for sdxl models, not for demo-flux2") in [(one["ref"], one["reason"]) for one in for_flux]
    recipe = {"model": "demo-sdxl", "prompt": "A boat", "loras": [{"ref": "torn"}]}
    refused = client.post("/api/v1/jobs", json=recipe).json()["error"]["fields"]["loras"]
    assert refused.startswith("torn cannot be used: it is no safetensors file")
    assert client.delete("/api/v1/loras/torn").status_code == 204


def test_a_lora_for_another_size_of_model_is_not_offered(
    client: TestClient, settings: Settings, encode_lora: EncodeLora
) -> None:
    """Stable Diffusion 1.5 has layers of the same names as 2 and SDXL, but narrower texts."""
    settings.loras_dir.mkdir()
    name, shape = "unet.down_blocks.1.attentions.0.transformer_blocks.0.attn2.to_k.lora_A.weight", [1, 768]
    text = json.dumps({name: {"dtype": "F32", "shape": shape, "data_offsets": [0, 3072]}}).encode()
    content = len(text).to_bytes(8, "little") + text + bytes(3072)
    (settings.loras_dir / "sd15.safetensors").write_bytes(content)
    assert client.get("/api/v1/loras").json()["loras"][0]["models"] == ["sd15"]
    for model, reason in (
        ("sd21", "it is for a model with a width of texts of 768, and that of sd21 is 1024"),
        ("sdxl-base", "it is for sd models, not for sdxl-base"),
    ):
        (unusable,) = client.get("/api/v1/loras", params={"model": model}).json()["unusable"]
        assert unusable["reason"] == reason


def test_one_in_a_folder_is_named_with_it_and_goes_to_an_expert(client: TestClient, settings: Settings) -> None:
    (settings.loras_dir / "wan").mkdir(parents=True)
    (settings.loras_dir / "wan" / "ink_HIGH.SAFETENSORS").write_bytes(encode_wan())
    (lora,) = client.get("/api/v1/loras").json()["loras"]
    assert (lora["ref"], lora["expert"], lora["kind"]) == ("wan/ink_HIGH", "high", "LoRA")
    loras = [{"ref": lora["ref"], "scale": 3.0, "expert": "high"}, {"ref": lora["ref"], "scale": 1.0, "expert": "low"}]
    recipe = {"model": "wan2.2-a14b", "prompt": "A boat", "loras": loras}
    job = client.post("/api/v1/jobs", json=recipe)
    assert job.status_code == 201, job.json()
    assert client.get(f"/api/v1/jobs/{job.json()['id']}").json()["recipe"]["loras"] == loras
    twice = client.post("/api/v1/jobs", json=recipe | {"loras": [loras[0], {"ref": lora["ref"]}]})
    assert "given twice" in twice.json()["error"]["fields"]["loras"]
    other = client.post("/api/v1/jobs", json=recipe | {"model": "wan2.1-14b"})
    assert "has only one" in other.json()["error"]["fields"]["loras"]
    assert client.delete("/api/v1/loras/wan/ink_HIGH").status_code == 204


def encode_wan() -> bytes:
    entry = {"dtype": "F32", "shape": [1, 5120], "data_offsets": [0, 20480]}
    text = json.dumps({"diffusion_model.blocks.0.self_attn.q.lora_down.weight": entry}).encode()
    return len(text).to_bytes(8, "little") + text + bytes(20480)


def test_one_comes_as_the_file_that_it_is_under_its_name(client: TestClient, add_lora: AddLora) -> None:
    file = add_lora("水彩", title="Watercolour")
    (file.parent / "folder").mkdir()
    file = file.rename(file.parent / "folder" / file.name)
    url = f"/api/v1/loras/{quote('folder/水彩', safe='')}/file"
    whole = client.get(url)
    assert (whole.content, whole.headers["content-type"]) == (file.read_bytes(), "application/octet-stream")
    assert whole.headers["content-disposition"] == f"attachment; filename*=utf-8''{quote('水彩.safetensors')}"
    head = client.head(url)
    assert (head.status_code, head.content) == (200, b"")
    assert int(head.headers["content-length"]) == file.stat().st_size
    part = client.get(url, headers={"Range": "bytes=8-15"})
    assert (part.status_code, part.content) == (206, file.read_bytes()[8:16])
    assert client.get(url, headers={"If-None-Match": whole.headers["etag"]}).status_code == 304
    file.unlink()
    assert client.get(url).status_code == 404


def test_what_is_no_lora_is_not_served(client: TestClient, settings: Settings) -> None:
    settings.loras_dir.mkdir(parents=True, exist_ok=True)
    (settings.loras_dir / "secret.safetensors").write_bytes(b"no header")
    (settings.loras_dir.parent / "jobs.safetensors").write_bytes(b"not in the folder")
    for ref in ("secret", "../jobs", "%2E%2E%2Fjobs", "nothing", str(settings.loras_dir / "secret")):
        assert client.get(f"/api/v1/loras/{ref}/file").status_code == 404, ref

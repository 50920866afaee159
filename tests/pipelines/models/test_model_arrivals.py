"""Checkpoints come from URLs and single files of the hub; a wrong one is refused before it has come."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from pipelines.errors import ModelError
from pipelines.loras.files import find_lora_file, find_loras
from pipelines.loras.settings import find_adapter_config
from pipelines.models.catalog import read_data_dir
from pipelines.models.description import describe_model
from pipelines.models.model_arrivals import Source, bring_model, read_source
from pipelines.models.model_manager import remove_model
from pipelines.web.web_files import Web
from tests.hub import COMMIT, REPO, make_environment, run_hub
from tests.pipelines.models.test_gguf_files import write_header as write_gguf_header
from tests.pipelines.models.test_single_files import VAE, write_header
from tests.places import ROOT
from tests.web import WebStub, run_web

NEARBY = Web(allows_private=True)


def list_boats(*, layers: int = 5) -> dict[str, tuple[int, ...]]:
    """The tensors by which the embedded Wan is told, and 3 MB that nobody looks at."""
    return {
        "head.modulation": (1, 2, 192),
        "head.head.weight": (32, 192),
        "patch_embedding.weight": (192, 8, 1, 2, 2),
        "text_embedding.0.weight": (192, 96),
        "blocks.0.ffn.0.weight": (768, 192),
        **{f"blocks.{number}.norm3.weight": (192,) for number in range(layers)},
        "blocks.0.further": (3 * 2**19,),
    }


@pytest.fixture
def boats(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    content = bytearray(write_header(tmp_path_factory.mktemp("boats") / "a.safetensors", list_boats()).read_bytes())
    for place in range(10_000, len(content), 1000):
        content[place] = place % 251
    return bytes(content)


@pytest.fixture
def web(boats: bytes) -> Iterator[WebStub]:
    with run_web(files={"/files/Boats%20V6.safetensors": boats}) as web:
        yield web


def bring(home: Path, url: str, *, how: Web = NEARBY, name: str = "", seen: list[tuple[int, int]] | None = None) -> str:
    notes = [] if seen is None else seen
    source = read_source(url, allows_private=how.allows_private)
    return bring_model(home, source, name=name, web=how, on_bytes=lambda *done: notes.append(done))


def test_a_url_becomes_a_model_under_its_files_name(tmp_path: Path, web: WebStub, boats: bytes) -> None:
    seen: list[tuple[int, int]] = []
    assert bring(tmp_path, f"{web.url}/files/Boats%20V6.safetensors?token=secret", seen=seen) == "boats-v6"
    assert seen[-1] == (len(boats), len(boats))
    model = read_data_dir(tmp_path).get("boats-v6")
    assert model.file is not None
    assert model.file.read_bytes() == boats
    assert describe_model(model).source == f"{web.url}/files/Boats%20V6.safetensors"
    remove_model(tmp_path, "boats-v6")
    assert not [*(tmp_path / "models").iterdir()]
    assert "boats-v6" not in (tmp_path / "models.toml").read_text("utf-8")


def test_a_download_that_broke_off_goes_on_where_it_stopped(tmp_path: Path, web: WebStub, boats: bytes) -> None:
    def stop(done: int, _total: int) -> None:
        if done > len(boats) // 4:
            raise KeyboardInterrupt

    url = f"{web.url}/files/Boats%20V6.safetensors"
    with pytest.raises(KeyboardInterrupt):
        bring_model(tmp_path, Source(url=url), web=NEARBY, on_bytes=stop)
    (part,) = (tmp_path / "models").glob(".*.download")
    have = part.stat().st_size
    web.breaks_after = 2**20  # of what is asked for next, once more
    web.asked.clear()
    assert bring(tmp_path, url) == "boats-v6"
    assert read_data_dir(tmp_path).get("boats-v6").file.read_bytes() == boats
    assert [wanted for _, wanted, _ in web.asked] == ["bytes=0-1048575", f"bytes={have}-", f"bytes={have + 2**20}-"]


@pytest.mark.parametrize("change", ["it has another version", "it knows no ranges"])
def test_what_cannot_go_on_begins_anew(tmp_path: Path, web: WebStub, boats: bytes, change: str) -> None:
    def stop(done: int, _total: int) -> None:
        if done > len(boats) // 4:
            raise KeyboardInterrupt

    url = f"{web.url}/files/Boats%20V6.safetensors"
    with pytest.raises(KeyboardInterrupt):
        bring_model(tmp_path, Source(url=url), web=NEARBY, on_bytes=stop)
    if change == "it has another version":
        web.version = '"two"'
        other = bytearray(boats)
        other[-1] ^= 1
        web.files["/files/Boats%20V6.safetensors"] = boats = bytes(other)
    else:
        web.knows_ranges = False
    bring(tmp_path, url)
    assert read_data_dir(tmp_path).get("boats-v6").file.read_bytes() == boats


def test_what_is_none_of_ours_is_refused_by_its_header(tmp_path: Path, web: WebStub) -> None:
    make = write_header(tmp_path / "a.safetensors", VAE | {"decoder.far": (6, 2**20)})
    web.files |= {"/vae.safetensors": make.read_bytes(), "/page": b"<html>", "/words": b"nothing at all" * 1000}
    web.kinds["/page"] = "text/html; charset=utf-8"
    flux = write_gguf_header(tmp_path / "a.gguf", {"double_blocks.0.img_mod.lin.weight": (256, 256)})
    web.files["/flux.gguf"] = flux.read_bytes()
    pruned = write_header(tmp_path / "b.safetensors", list_boats(layers=4))
    web.files["/pruned.safetensors"] = pruned.read_bytes()
    home = tmp_path / "data"
    for path, reason in (
        ("/vae.safetensors", "It is an autoencoder"),
        ("/page", "is a web page, not a file"),
        ("/words", "neither a safetensors nor a GGUF file"),
        ("/flux.gguf", "It is a FLUX.1"),
        ("/pruned.safetensors", "those of no Wan here"),
        ("/nowhere.safetensors", "it answered 404"),
    ):
        with pytest.raises(ModelError, match=reason):
            bring(home, web.url + path)
    assert web.sent < 2**23
    assert not [*(home / "models").iterdir()]


def test_a_gguf_file_comes_too(tmp_path: Path, web: WebStub) -> None:
    web.files["/wan.gguf"] = write_gguf_header(tmp_path / "wan.gguf", list_boats(), kind="Q8_0").read_bytes()
    assert bring(tmp_path / "data", f"{web.url}/wan.gguf", name="mine") == "mine"
    assert read_data_dir(tmp_path / "data").get("mine").program_id == "demo-wan"


def test_redirects_are_followed_and_a_token_stays_with_its_host(tmp_path: Path, web: WebStub) -> None:
    with run_web(token="of-ours") as site:
        site.redirects["/api/download/1"] = f"{web.url}/files/Boats%20V6.safetensors".replace("127.0.0.1", "localhost")
        web.names["/files/Boats%20V6.safetensors"] = "../evil/boatsXL.safetensors"
        how = Web(allows_private=True, tokens={"127.0.0.1": "of-ours"})
        assert bring(tmp_path, f"{site.url}/api/download/1", how=how) == "boatsxl"
    assert {login for _, _, login in site.asked} == {"Bearer of-ours"}
    assert {login for _, _, login in web.asked} == {None}
    assert "of-ours" not in repr(how)


def test_only_public_addresses_are_asked(tmp_path: Path, web: WebStub) -> None:
    strict = Web()
    for url in (f"{web.url}/a.safetensors", "http://localhost/a", "http://10.0.0.1/a", "http://[::1]/a"):
        with pytest.raises(ModelError, match="is not on the public internet"):
            read_source(url, allows_private=False)
        with pytest.raises(ModelError, match="is not on the public internet"):
            strict.read_start(url, 100)
    for url in ("ftp://example.com/a", "file:///etc/passwd", "https://me:word@example.com/a"):
        with pytest.raises(ModelError, match="is not an address|has a user"):
            read_source(url)
    assert not web.asked


def test_without_room_nothing_is_asked_for(tmp_path: Path, web: WebStub, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pipelines.web.web_files.KEPT_FREE_BYTES", 10**18)
    with pytest.raises(ModelError, match="and the disk has"):
        bring(tmp_path, f"{web.url}/files/Boats%20V6.safetensors")
    assert not [*(tmp_path / "models").iterdir()]


@pytest.mark.parametrize(
    ("text", "source"),
    [
        ("https://huggingface.co/a/b/resolve/main/x/y.safetensors?download=true", ("a/b", "main", "x/y.safetensors")),
        ("https://hf.co/a/b/blob/v1/y%20z.gguf", ("a/b", "v1", "y z.gguf")),
    ],
)
def test_addresses_of_the_hub_are_files_of_its_repositories(text: str, source: tuple[str, str, str]) -> None:
    found = read_source(text)
    assert (found.repo, found.revision, found.file) == source


def test_a_page_of_civitai_is_its_version(tmp_path: Path) -> None:
    assert read_source("https://civitai.com/models/257749/pony?modelVersionId=290640") == Source(
        url="https://civitai.com/api/download/models/290640"
    )
    with pytest.raises(ModelError, match="several versions"):
        read_source("https://civitai.com/models/257749/pony")
    with pytest.raises(ModelError, match="is no file of the hub"):
        read_source("https://huggingface.co/a/b")


@pytest.mark.process
def test_a_single_file_of_a_repository_is_added_at_its_commit(tmp_path: Path, boats: bytes) -> None:
    files = {"README.md": b"# x", "sub/boatsXL.safetensors": boats, "lora.safetensors": b"\x02\0\0\0\0\0\0\0{}"}
    home = tmp_path / "data"

    def run(*words: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "pipelines", "models", *words, "--data-dir", str(home)]
        environment = make_environment(hub, tmp_path)
        return subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=120)

    with run_hub(files) as hub:
        refused = run("add", REPO, "lora.safetensors")
        assert "no checkpoint that is known here" in refused.stderr
        absent = run("add", REPO, "nothing.safetensors")
        assert f"{REPO} has no file nothing.safetensors" in absent.stderr
        done = run("add", REPO, "sub/boatsXL.safetensors")
        assert done.returncode == 0, done.stderr
    model = read_data_dir(home).get("boatsxl")
    assert model.file == home / "models" / "boatsXL.safetensors"
    assert (home / "models" / "boatsXL.safetensors").read_bytes() == boats
    assert model.source == f"https://huggingface.co/{REPO}/blob/{COMMIT}/sub/boatsXL.safetensors"
    assert not [one for one in (tmp_path / "hf").rglob("*") if one.is_file() and one.stat().st_size > 2**20]


@pytest.mark.process
def test_a_lora_of_peft_s_comes_with_its_scale(tmp_path: Path) -> None:
    name = "base_model.model.blocks.0.attn1.to_q.lora_A.weight"
    lora = write_header(tmp_path / "lora.safetensors", {name: (2, 4)}).read_bytes()
    config = b'{"peft_type": "LORA", "r": 2, "lora_alpha": 8}'
    home = tmp_path / "data"
    with run_hub({"ink/adapter_model.safetensors": lora, "ink/adapter_config.json": config}) as hub:
        command = [sys.executable, "-m", "pipelines", "loras", "add", REPO, "ink/adapter_model.safetensors"]
        done = subprocess.run(
            [*command, "--data-dir", str(home)], cwd=ROOT, env=make_environment(hub, tmp_path), capture_output=True,
            text=True, timeout=120,
        )  # fmt: skip
    assert done.stdout.strip() == "added ink", done.stderr
    assert [one.ref for one in find_loras(home / "loras")] == ["ink"]
    file = find_lora_file("ink", home / "loras")
    assert file is not None
    beside = find_adapter_config(file)
    assert beside is not None
    assert beside.read_bytes() == config

"""What the README names exists: flags, settings, routes, files of the walk, models and sizes."""

import re
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
import yaml

from pipelines.catalog import load_catalog
from pipelines.commands import compile, encoder_server, generate, plan, stages
from studio.api.application import create_api
from studio.database import open_database
from studio.settings import read_settings

ROOT = Path(__file__).resolve().parent.parent
README = (ROOT / "README.md").read_text("utf-8")


def test_every_file_of_the_walk_exists() -> None:
    walk = README[README.index("## The source") :]
    files = re.findall(r"`((?:studio|pipelines|presets)/[\w/.]+\.\w+)`", walk)
    assert len(files) > 15
    assert not [file for file in files if not (ROOT / file).exists()]


def test_every_picture_exists() -> None:
    pictures = re.findall(r"!\[[^\]]+\]\(([^)]+)\)", README)
    assert pictures
    assert not [picture for picture in pictures if not (ROOT / picture).exists()]


def test_every_flag_of_the_settings_table_is_taken(tmp_path: Path) -> None:
    table = README[README.index("## Settings") : README.index("## Command line")]
    values = {
        "--port": "7000",
        "--data-dir": str(tmp_path),
        "--host": "127.0.0.1",
        "--mesh": "dp=1",
        "--model": "x",
        "--prewarm": "all",
        "--queue-quota": "10",
        "--max-disk": "50GB",
        "--finish-timeout": "30",
        "--chip-price": "1.2",
        "--pack": str(tmp_path),
        "--profile": str(tmp_path / "traces"),
        "--text-encoder-url": "http://127.0.0.1:8888",
        "--access": "open",
        "--trusted-proxies": "127.0.0.1",
        "--user-header": "X-Remote-User",
        "--admins": "ada",
        "--submits-per-minute": "10",
        "--prompt-hook": "filters:check",
        "--image-hook": "filters:check",
    }
    flags = re.findall(r"^\| `(--[\w-]+)`", table, re.MULTILINE)
    assert flags
    for flag in flags:
        read_settings([flag, *([values[flag]] if flag in values else [])], {})


def test_every_variable_of_the_settings_table_is_read(tmp_path: Path) -> None:
    settings = read_settings(
        [],
        {
            "LUMESH_HOST": "127.0.0.2",
            "LUMESH_PORT": "7001",
            "LUMESH_DATA_DIR": str(tmp_path),
            "LUMESH_MODEL": "m",
            "LUMESH_MESH": "dp=2",
            "LUMESH_FAKE": "1",
            "LUMESH_VERIFY_WEIGHTS": "1",
            "LUMESH_PREWARM": "512x512, 1024x1024",
            "LUMESH_PACKS": str(tmp_path),
            "LUMESH_PROFILE": str(tmp_path / "traces"),
            "LUMESH_TEXT_ENCODER_URL": "http://127.0.0.1:8888",
            "LUMESH_TEXT_ENCODER_TOKEN": "secret",
            "LUMESH_QUEUE_QUOTA": "10",
            "LUMESH_MAX_DISK": "1.5 GB",
            "LUMESH_FINISH_TIMEOUT": "30",
            "LUMESH_CHIP_PRICE": "1.2",
            "LUMESH_ALLOW_PRIVATE_WEBHOOKS": "1",
            "LUMESH_ACCESS": "proxy",
            "LUMESH_OPEN": "1",
            "LUMESH_TRUSTED_PROXIES": "127.0.0.1",
            "LUMESH_USER_HEADER": "X-Remote-User",
            "LUMESH_ADMINS": "Ada, bob",
            "LUMESH_SHARED_GALLERY": "1",
            "LUMESH_SUBMITS_PER_MINUTE": "10",
            "LUMESH_PROMPT_HOOK": "filters:check",
            "LUMESH_IMAGE_HOOK": "filters:look",
        },
    )
    assert (settings.host, settings.port, settings.data_dir) == ("127.0.0.2", 7001, tmp_path)
    assert (settings.model, settings.mesh, settings.fake) == ("m", "dp=2", True)
    assert settings.prewarm == ("512x512", "1024x1024")
    assert (settings.packs, settings.profile) == ((tmp_path,), tmp_path / "traces")
    assert settings.text_encoder_urls == {"flux2": "http://127.0.0.1:8888"}
    assert settings.text_encoder_token == "secret"
    assert (settings.max_disk_bytes, settings.finish_s) == (1_500_000_000, 30.0)
    assert (settings.queue_quota, settings.chip_price) == (10, 1.2)
    assert settings.allow_private_webhooks


def test_every_flag_of_the_commands_exists() -> None:
    known = {
        name.replace("_", "-")
        for command in (
            generate.make,
            stages.encode,
            stages.denoise,
            stages.decode,
            encoder_server.serve,
            plan.plan,
            compile.compile_programs,
        )
        for name in command.__annotations__
    } | {"json", "vs", "all"}
    section = README[README.index("## Command line") : README.index("## REST")]
    flags = {flag.replace("_", "-") for flag in re.findall(r"--([\w-]+)", section)}
    assert flags <= known


def test_every_route_exists(tmp_path: Path) -> None:
    settings = read_settings(["--data-dir", str(tmp_path)], {})
    with closing(open_database(tmp_path / "jobs.db")) as database:
        paths = set(create_api(settings, database, load_catalog()).openapi()["paths"])
    for route in re.findall(r"localhost:7860(/(?:api|v1)/[\w/]*)", README):
        assert any(re.fullmatch(re.sub(r"\{\w+\}", r"\\w+", path), route) for path in paths), route


@pytest.mark.parametrize("model", load_catalog().models, ids=lambda model: model.id)
def test_the_table_of_models_is_the_catalogue(model) -> None:
    row = next(line for line in README.splitlines() if line.startswith(f"| `{model.id}`"))
    assert model.shape_list() in row


def read_front_matter() -> dict[str, Any]:
    _, header, _ = README.split("---\n", 2)
    return yaml.safe_load(header)


def test_the_header_is_what_a_gradio_space_needs() -> None:
    """Fields, values and lengths as https://huggingface.co/docs/hub/spaces-config-reference has them."""
    header = read_front_matter()
    assert header["title"] == "Lumesh"
    assert header["sdk"] == "gradio"
    assert (ROOT / header["app_file"]).is_file()
    pinned = re.search(r"^gradio==(\S+)", (ROOT / "requirements.txt").read_text("utf-8"), re.MULTILINE)
    assert pinned is not None
    assert header["sdk_version"] == pinned[1]
    assert isinstance(header["python_version"], str), "3.10 without quotes would be 3.1"
    assert header["hf_oauth"] is True
    colours = {"red", "yellow", "green", "blue", "indigo", "purple", "pink", "gray"}
    assert {header["colorFrom"], header["colorTo"]} <= colours
    assert header["header"] in ("mini", "default")
    assert header["fullWidth"] is True
    assert len(header["short_description"]) <= 60
    assert re.fullmatch(r"\d+[mh]", header["startup_duration_timeout"])
    assert header["license"] == "apache-2.0"
    assert header["tags"]
    assert header.get("thumbnail", "https://").startswith("https://")


def test_the_header_names_the_models_of_the_hub_that_can_run() -> None:
    named = read_front_matter()["models"]
    assert sorted(named) == sorted({model.repo for model in load_catalog().models if model.repo})

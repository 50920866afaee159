"""What the README names exists: flags, settings, routes, files of the walk, models and sizes."""

import re
from contextlib import closing
from pathlib import Path

import pytest

from pipelines.catalog import load_catalog
from pipelines.commands import encoder_server, generate, stages
from studio.api import create_api
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
    }
    flags = re.findall(r"^\| `(--[\w-]+)`", table, re.MULTILINE)
    assert len(flags) == 7
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
            "LUMESH_PREWARM": "512x512, 1024x1024",
        },
    )
    assert (settings.host, settings.port, settings.data_dir) == ("127.0.0.2", 7001, tmp_path)
    assert (settings.model, settings.mesh, settings.fake) == ("m", "dp=2", True)
    assert settings.prewarm == ("512x512", "1024x1024")


def test_every_flag_of_the_commands_exists() -> None:
    known = {
        name.replace("_", "-")
        for command in (generate.make, stages.encode, stages.denoise, stages.decode, encoder_server.serve)
        for name in command.__annotations__
    } | {"json", "vs"}
    section = README[README.index("## Command line") : README.index("## REST")]
    flags = {flag.replace("_", "-") for flag in re.findall(r"--([\w-]+)", section)}
    assert flags <= known


def test_every_route_exists(tmp_path: Path) -> None:
    settings = read_settings(["--data-dir", str(tmp_path)], {})
    with closing(open_database(tmp_path / "jobs.db")) as database:
        paths = set(create_api(settings, database, load_catalog()).openapi()["paths"])
    for route in re.findall(r"localhost:7860(/api[\w/]*)", README):
        assert any(re.fullmatch(re.sub(r"\{\w+\}", r"\\w+", path), route) for path in paths), route


@pytest.mark.parametrize("model", load_catalog().models, ids=lambda model: model.id)
def test_the_table_of_models_is_the_catalogue(model) -> None:
    row = next(line for line in README.splitlines() if line.startswith(f"| `{model.id}`"))
    assert model.shape_list() in row

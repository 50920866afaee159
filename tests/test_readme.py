"""What the README and the manual name exists: flags, settings, routes, models and sizes, links, commands."""

import re
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
import yaml

from pipelines.commands import (
    compile,
    doctor,
    encoder_server,
    generate,
    old_flags,
    old_training_flags,
    plan,
    stages,
    train,
)
from pipelines.commands.bench import compare
from pipelines.models.catalog import load_catalog
from studio.api.application import create_api
from studio.cluster import join
from studio.database import open_database
from studio.flags import read_settings
from studio.ui.manual import slug
from tests.places import ROOT

README = (ROOT / "README.md").read_text("utf-8")
PAGES = {
    file.relative_to(ROOT).as_posix(): file.read_text("utf-8")
    for folder in ("studio/docs", "pipelines/docs")
    for file in sorted((ROOT / folder).glob("*.md"))
}
TEXTS = {"README.md": README, **PAGES}
MEASURED = "pipelines/docs/measured.md"
MAX_README_LINES = 250
FIGURE = re.compile(r"(?<![\w.])\d[\d.]* ?(?:ms|s|dB|[KMG]B|%)(?!\w)")
DATE = re.compile(r"\b20\d\d-\d\d-\d\d\b")
# Figures that are chosen, not measured: limits, examples of settings, sizes of files that come with Lumesh.
BY_DESIGN = {
    *("20 MB", "300 MB", "2 GB", "10 GB", "50GB", "5 MB", "14.4 MB", "14.3 MB", "12.3 MB"),
    *("5 s", "15 s", "150 s", "40 %"),
}


def find_links(text: str) -> list[str]:
    """Where links and pictures lead within the repository."""
    prose = re.sub(r"^```.*?^```", "", text, flags=re.MULTILINE | re.DOTALL)
    return [link for link in re.findall(r"\]\(([^)\s]+)\)", prose) if not re.match(r"https?:", link)]


def follow(file: str, link: str) -> Path:
    path = link.partition("#")[0]
    return (ROOT / file).parent / path if path else ROOT / file


def list_sections(text: str) -> list[str]:
    return re.split(r"^(?=## )", text, flags=re.MULTILINE)


def test_the_readme_is_read_in_one_sitting() -> None:
    assert len(README.splitlines()) <= MAX_README_LINES


def test_there_are_pages() -> None:
    assert len(PAGES) > 10
    assert all(text.startswith("# ") for text in PAGES.values())


@pytest.mark.parametrize("file", TEXTS)
def test_every_link_and_picture_leads_to_a_file_and_every_anchor_to_a_heading(file: str) -> None:
    links = find_links(TEXTS[file])
    for link in links:
        target = follow(file, link)
        assert target.is_file(), link
        if "#" in link:
            assert link.partition("#")[2] in map(
                slug, re.findall(r"^#+ (.+)$", target.read_text("utf-8"), re.MULTILINE)
            )


@pytest.mark.parametrize("page", PAGES)
def test_every_page_is_linked(page: str) -> None:
    assert any(
        follow(file, link).resolve() == ROOT / page
        for file, text in TEXTS.items()
        if file != page
        for link in find_links(text)
    )


@pytest.mark.parametrize("page", [page for page in PAGES if page.startswith("studio/docs/")])
def test_the_readme_leads_to_every_page_on_the_studio(page: str) -> None:
    assert page in [link.partition("#")[0] for link in find_links(README)]


def test_the_readme_shows_the_page_and_three_outputs() -> None:
    assert len(re.findall(r"!\[[^\]]+\]\(([^)]+)\)", README)) >= 4


@pytest.mark.parametrize("file", TEXTS)
def test_a_figure_stands_beside_its_date(file: str) -> None:
    for section in list_sections(TEXTS[file]):
        figures = set(FIGURE.findall(section)) - BY_DESIGN
        assert not figures or DATE.search(section), (section.splitlines()[0], figures)


def test_every_measurement_names_its_date_and_its_command() -> None:
    opening, *sections = list_sections(PAGES[MEASURED])
    assert "TPU" in opening
    assert len(sections) > 8
    for section in sections:
        assert DATE.search(section), section.splitlines()[0]
        assert re.search(r"`[^`]*\b(?:python|docker|du) ", section), section.splitlines()[0]


def test_every_module_and_script_that_a_command_runs_exists() -> None:
    text = "\n".join(TEXTS.values())
    modules = set(re.findall(r"python -m ([\w.]+)", text))
    scripts = set(re.findall(r"python ((?:\w+/)*\w+\.py)", text)) | set(re.findall(r"\bbash ([\w/]+)", text))
    assert {"pipelines", "tests.load", "studio.library.bench"} <= modules
    assert {"app.py", "tests/run"} <= scripts
    for module in modules:
        path = ROOT / module.replace(".", "/")
        assert path.with_suffix(".py").is_file() or (path / "__main__.py").is_file(), module
    assert not [script for script in scripts if not (ROOT / script).is_file()]


def test_the_first_command_installs_the_pinned_torch_and_starts_the_studio() -> None:
    first, second = re.findall(r"^```bash\n(.*?)^```", README, re.MULTILINE | re.DOTALL)[:2]
    [command] = first.splitlines()
    pinned = re.search(r"^torch==\S+", (ROOT / "requirements.txt").read_text("utf-8"), re.MULTILINE)
    assert pinned is not None
    steps = command.split(" && ")
    assert steps[1:] == [
        f"(.venv/bin/pip install {pinned[0]} --index-url https://download.pytorch.org/whl/cpu || true)",
        ".venv/bin/pip install -r requirements.txt",
        ".venv/bin/python app.py",
    ]
    assert second == "bash tests/run\n"
    for text in TEXTS.values():
        assert set(re.findall(r"\btorch==\S+", text)) <= {pinned[0]}


def test_every_flag_of_the_settings_table_is_taken(tmp_path: Path) -> None:
    table = PAGES["studio/docs/settings.md"]
    values = {
        "--port": "7000",
        "--data-dir": str(tmp_path),
        "--host": "127.0.0.1",
        "--mesh": "dp=1",
        "--model": "x",
        "--prewarm": "all",
        "--workers": "2",
        "--engine": "ray",
        "--ray-address": "10.0.0.2:6379",
        "--ray-host": "10.0.0.2",
        "--ray-port": "6380",
        "--ray-ports": "20000-20199",
        "--queue-quota": "10",
        "--allow-origins": "https://app.example",
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
        "--who-may-train": "ada,bob",
        "--submits-per-minute": "10",
        "--prompt-hook": "filters:check",
        "--image-hook": "filters:check",
        "--kernels": "no-flash",
        "--weights": "int8",
        "--doctor": "off",
    }
    flags = re.findall(r"^\| `(--[\w-]+)`", table, re.MULTILINE)
    assert len(flags) > 20
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
            "LUMESH_ALLOW_PRIVATE_DOWNLOADS": "1",
            "CIVITAI_TOKEN": "of-ours",
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
    assert settings.allow_private_downloads
    assert settings.civitai_token == "of-ours"
    assert "of-ours" not in repr(settings)


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
            doctor.examine_machine,
            compare.run,
            train.build_command(),
        )
        for name in command.__annotations__
    } | {"json", "all", "help", "validate", "doctor"}
    known |= {flag.replace("_", "-") for flag in (*old_flags.FLAGS, *old_training_flags.FLAGS)}
    known |= {f"no-{flag}" for flag in known}
    flags = {
        flag.replace("_", "-")
        for page in ("command-line", "planning", "packs", "doctor", "gpu")
        for flag in re.findall(r"(?<!-)--(\w[\w-]*)", PAGES[f"pipelines/docs/{page}.md"])
    }
    assert len(flags) > 20
    assert flags <= known


def test_every_flag_of_joining_exists(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        join.run(["--help"], {})
    known = set(re.findall(r"--[\w-]+", capsys.readouterr().out))
    rows = re.findall(r"^\| (`--.*?) \|", PAGES["studio/docs/workers.md"], re.MULTILINE)
    flags = {flag for row in rows for flag in re.findall(r"--[\w-]+", row)}
    assert {"--workers", "--pin", "--spot"} <= flags <= known


def test_every_route_exists(tmp_path: Path) -> None:
    settings = read_settings(["--data-dir", str(tmp_path)], {})
    with closing(open_database(tmp_path / "jobs.db")) as database:
        paths = set(create_api(settings, database, load_catalog()).openapi()["paths"])
    routes = re.findall(r"localhost:7860(/(?:api|v1)/[\w/]*)", PAGES["studio/docs/rest.md"])
    assert len(routes) > 15
    for route in routes:
        assert any(re.fullmatch(re.sub(r"\{\w+\}", r"\\w+", path), route) for path in paths), route


@pytest.mark.parametrize("model", load_catalog().models, ids=lambda model: model.id)
def test_the_table_of_models_is_the_catalogue(model) -> None:
    table = PAGES["pipelines/docs/models.md"]
    row = next(line for line in table.splitlines() if line.startswith(f"| `{model.id}`"))
    assert model.shape_list() in row
    assert f"`{model.id}`" in README[README.index("## Models") : README.index("## Hosting")]


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

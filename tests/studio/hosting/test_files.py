"""The files for systemd, nginx and Docker are what those programs take, and name what is here."""

import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from studio.api.middleware.limits import BODIES, MAX_FILE_BYTES
from studio.flags import read_settings
from tests.places import ROOT

HOSTING = ROOT / "studio" / "hosting"
NGINX = shutil.which("nginx") or shutil.which("nginx", path="/usr/sbin")


def read_unit() -> dict[str, list[str]]:
    """Settings of the unit's service, each with its values."""
    found: dict[str, list[str]] = {}
    for line in (HOSTING / "lumesh.service").read_text("utf-8").splitlines():
        name, separator, value = line.partition("=")
        if separator and not line.startswith("#"):
            found.setdefault(name, []).append(value)
    return found


def test_the_unit_starts_the_app_with_flags_and_variables_that_it_takes() -> None:
    unit = read_unit()
    _python, script, *flags = shlex.split(unit["ExecStart"][0])
    assert (ROOT / script).is_file()
    environment = dict(entry.split("=", 1) for entry in unit["Environment"])
    settings = read_settings(flags, environment)
    assert settings.host == "127.0.0.1"
    assert str(settings.data_dir) == "/var/lib/lumesh"
    assert unit["KillMode"] == ["mixed"], "the worker is ended by the app"
    assert settings.finish_s < int(unit["TimeoutStopSec"][0])


@pytest.mark.skipif(not shutil.which("systemd-analyze"), reason="needs systemd-analyze")
@pytest.mark.process
def test_systemd_accepts_the_unit(tmp_path: Path) -> None:
    text = (HOSTING / "lumesh.service").read_text("utf-8")
    text = text.replace("/opt/lumesh/.venv/bin/python", sys.executable).replace("/opt/lumesh", str(ROOT))
    unit = tmp_path / "lumesh.service"
    unit.write_text(text.replace("User=lumesh\n", ""), "utf-8")  # an account that a test cannot make
    ran = subprocess.run(["systemd-analyze", "verify", str(unit)], capture_output=True, text=True, check=False)
    complaints = [line for line in ran.stderr.splitlines() if "lumesh" in line]
    assert not complaints


def read_dockerfile() -> list[tuple[str, str]]:
    """Instructions with their arguments, lines joined."""
    text = (HOSTING / "Dockerfile").read_text("utf-8")
    lines = [line for line in text.splitlines() if line.strip() and not line.startswith("#")]
    joined = "\n".join(lines).replace("\\\n", " ")
    return [(line.split(None, 1)[0], line.split(None, 1)[1].strip()) for line in joined.splitlines()]


def test_the_dockerfile_copies_what_is_here_and_starts_the_app() -> None:
    steps = read_dockerfile()
    known = r"FROM|ARG|RUN|WORKDIR|COPY|ENV|VOLUME|EXPOSE|USER|STOPSIGNAL|HEALTHCHECK|ENTRYPOINT"
    assert all(re.fullmatch(known, name) for name, _ in steps)
    assert steps[0][0] == "FROM"
    assert re.fullmatch(r"\S+:\d[\w.-]+", steps[0][1]), "a version, not the latest"
    for name, value in steps:
        if name == "COPY":
            *sources, _target = value.split()
            assert all((ROOT / source).exists() for source in sources), value
        if name == "RUN" and "apt-get install" in value:
            assert "--no-install-recommends" in value and "rm -rf /var/lib/apt/lists" in value
        if name == "RUN" and "pip install" in value:
            assert value.count("--no-cache-dir") == value.count("pip install")
    by_name = dict(steps)
    assert by_name["ENTRYPOINT"] == '["python", "app.py"]', "no shell between the signal and the app"
    assert by_name["USER"].isdecimal(), "not root, and known by number outside"
    environment = dict(entry.split("=", 1) for entry in by_name["ENV"].split())
    settings = read_settings([], environment)
    assert (settings.host, str(settings.port)) == ("0.0.0.0", by_name["EXPOSE"])
    assert str(settings.data_dir) in by_name["VOLUME"]
    assert settings.finish_s < 10, "docker kills after ten seconds"


@pytest.mark.parametrize("target", ["cpu", "tpu", "gpu"])
@pytest.mark.process
def test_the_dockerfile_chooses_requirements(tmp_path: Path, target: str) -> None:
    """Its own shell line, with a `pip` that only says what it would install."""
    run = next(value for name, value in read_dockerfile() if name == "RUN" and "TARGET" in value)
    shutil.copy(ROOT / "requirements.txt", tmp_path)
    pip = tmp_path / "pip"
    pip.write_text('#!/bin/sh\necho "$@" >> installed\n', "utf-8")
    pip.chmod(0o755)
    environment = {"PATH": f"{tmp_path}:/usr/bin:/bin", "TARGET": target}
    ran = subprocess.run(["sh", "-c", run], cwd=tmp_path, env=environment, capture_output=True, check=False)
    if target == "gpu":
        assert ran.returncode == 2
        return
    assert ran.returncode == 0
    torch, _rest = (tmp_path / "installed").read_text("utf-8").splitlines()
    assert re.search(r"whl/cpu torch==[\d.]+$", torch)
    requirements = (tmp_path / "requirements.txt").read_text("utf-8")
    assert ("libtpu==" in requirements, "jax[tpu]==" in requirements) == ((target == "tpu"),) * 2
    assert re.search(r"^jax(\[tpu\])?==", requirements, re.MULTILINE)


def test_nginx_lets_through_what_the_studio_takes_and_waits_as_long() -> None:
    text = (HOSTING / "nginx.conf").read_text("utf-8")
    units = {"m": 2**20, "g": 2**30}
    server, *_ = re.split(r"^    location ", text[text.index("listen 443") :], flags=re.MULTILINE)
    assert "proxy_read_timeout 1h;" in server and "proxy_send_timeout 1h;" in server
    assert len(re.findall(r"proxy_read_timeout", text)) == 1, "no location has less"

    def find_most(place: str, default: int) -> int:
        found = re.search(r"client_max_body_size (\d+)([mg]);", place)
        return int(found[1]) * units[found[2]] if found else default

    most = find_most(server, 0)
    streamed: dict[str, int] = {}
    for kind, path, place in re.findall(r"^    location (=|~) (\S+) \{(.*?)^    \}", text, re.MULTILINE | re.DOTALL):
        for known in BODIES:
            if "proxy_request_buffering off;" in place and (known == path if kind == "=" else re.search(path, known)):
                streamed[known] = find_most(place, most)
    for path, body in BODIES.items():
        assert body.limit <= streamed.get(path, most), path
        assert path in streamed or body.limit <= MAX_FILE_BYTES, f"{path} would lie on the proxy's disk first"


@contextmanager
def run_nginx(folder: Path, *, upstream: int, port: int) -> Iterator[None]:
    """The example with a free port in place of the certificate's, before a studio."""
    example = (HOSTING / "nginx.conf").read_text("utf-8")
    example = example.replace("127.0.0.1:7860", f"127.0.0.1:{upstream}").replace("listen 80;", f"listen {port + 1};")
    example = re.sub(r"listen 443 ssl http2;", f"listen 127.0.0.1:{port};", example)
    example = re.sub(r"^\s*ssl_.*$", "", example, flags=re.MULTILINE)
    temp = "".join(
        f"{name}_temp_path {folder}/{name};" for name in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    )
    config = folder / "nginx.conf"
    config.write_text(
        f"daemon off; pid {folder}/nginx.pid; error_log {folder}/error.log; events {{}}\n"
        f"http {{ access_log off; {temp}\n{example}\n}}\n",
        "utf-8",
    )
    assert NGINX is not None
    command = [NGINX, "-p", str(folder), "-c", str(config), "-e", str(folder / "error.log")]
    tested = subprocess.run([*command, "-t"], capture_output=True, text=True, check=False)
    assert tested.returncode == 0, tested.stderr
    assert "warn" not in tested.stderr
    process = subprocess.Popen(command)
    try:
        yield
    finally:
        process.terminate()
        process.wait(10)


@pytest.mark.skipif(NGINX is None, reason="needs nginx")
def test_events_pass_nginx_one_by_one_and_large_files_pass_too(
    start_studio: Callable[..., Any],
    wait_for: Callable[..., Any],
    tmp_path: Path,
    encode_picture: Callable[..., bytes],
    encode_lora: Callable[..., bytes],
) -> None:
    studio = start_studio()
    upstream = studio.client.base_url.port
    port = upstream + 1 if upstream < 60000 else upstream - 7
    with (
        run_nginx(tmp_path, upstream=upstream, port=port),
        httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=20, trust_env=False) as client,
    ):

        def answers() -> bool:
            try:
                return client.get("/api/v1/health").is_success
            except httpx.TransportError:
                return False

        wait_for("nginx to answer", answers)
        after = client.get("/api/v1/health").json()["last_event_id"]
        with client.stream("GET", "/api/v1/events", params={"after": after}) as stream:
            lines = stream.iter_lines()
            assert next(lines) == "retry: 1000"
            job_id = studio.submit(steps=40)
            kinds = (line for line in lines if line.startswith("event: "))
            assert next(kind for kind in kinds if kind == "event: job.step")
            # The stream is still open and the job runs: nothing waited for its end.
            assert studio.read(f"jobs/{job_id}")["state"] == "running"
        studio.client.delete(f"/api/v1/jobs/{job_id}")
        picture = encode_picture(size=(1500, 1000), kind="PNG", compress_level=0)
        assert len(picture) > 4_000_000
        assert client.post("/api/v1/uploads", files={"file": picture}).status_code == 201
        lora = encode_lora("sdxl", rows=70_000_000 // 4)
        assert client.post("/api/v1/loras", params={"name": "large.safetensors"}, content=lora).status_code == 201
        assert client.get("/").is_success

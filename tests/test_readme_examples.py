"""What the page on REST shows is run as it stands, by real curl and real clients, against a studio that runs."""

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.places import ROOT

PAGE = (ROOT / "studio" / "docs" / "rest.md").read_text("utf-8")
SERVER = "localhost:7860"
TIMEOUT_S = 300.0

Studio = Any  # conftest.RunningStudio


def find_blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)


COMMANDS = [line for block in find_blocks("bash") for line in block.replace("\\\n", " ").splitlines()]


@pytest.fixture(scope="module")
def studio(shared_studio: Studio) -> Studio:
    return shared_studio


@pytest.fixture(scope="module")
def folder(studio: Studio, tmp_path_factory: pytest.TempPathFactory, encode_picture: Callable[..., bytes]) -> Path:
    """The files that the commands send, and a curl that fails where the server refuses."""
    folder = tmp_path_factory.mktemp("script")
    (folder / ".curlrc").write_text("fail-with-body\nshow-error\n")
    (folder / "cat.jpg").write_bytes(encode_picture(kind="JPEG"))
    done = studio.wait_for_state(studio.submit(steps=1, batch_size=2), "done")
    (folder / "boat.png").write_bytes(studio.client.get(done["outputs"][0]["url"]).content)
    preset = studio.client.post("/api/v1/presets", json={"title": "My cactus", "output": done["outputs"][0]["id"]})
    exported = studio.client.get(f"/api/v1/presets/{preset.json()['id']}/file")
    (folder / "my-cactus.lumesh.json").write_bytes(exported.content)
    return folder


def run(command: list[str], *, folder: Path, until: str | None = None) -> str:
    """What the command prints, up to the first line that contains `until`."""
    environment = {**os.environ, "CURL_HOME": str(folder), "HF_HUB_DISABLE_TELEMETRY": "1"}
    with subprocess.Popen(
        command, cwd=folder, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as process:
        assert process.stdout is not None
        if until is None:
            printed, _ = process.communicate(timeout=TIMEOUT_S)
            assert process.returncode == 0, printed
            return printed
        printed = next(line for line in process.stdout if until in line)
        process.kill()
        return printed


def test_there_are_commands() -> None:
    assert len(COMMANDS) > 15
    assert all(command.startswith("curl -s") for command in COMMANDS)


@pytest.mark.parametrize("command", COMMANDS, ids=range(len(COMMANDS)))
def test_a_curl_command_works(studio: Studio, folder: Path, command: str) -> None:
    output = studio.read("outputs")["outputs"][0]
    studio.client.post("/api/v1/queue/pause").raise_for_status()  # so that a job that is edited or moved still waits
    command = command.replace(SERVER, f"127.0.0.1:{studio.client.base_url.port}").replace("JOB_ID", studio.submit())
    command = command.replace("OUTPUT_ID", output["id"]).replace("ANOTHER_ID", output["id"])
    if "/v1/images" in command:
        studio.client.post("/api/v1/queue/resume").raise_for_status()
    printed = run(["bash", "-c", command], folder=folder, until="data: " if "/events" in command else None)
    if file := re.search(r" -o (\S+)", command):
        assert (folder / file[1]).stat().st_size > 0
    else:
        assert json.loads(printed.removeprefix("data: "))
    studio.client.post("/api/v1/jobs/cancel", json={"scope": "all"}).raise_for_status()
    studio.client.delete("/api/v1/webhook").raise_for_status()
    studio.client.post("/api/v1/queue/resume").raise_for_status()


@pytest.mark.parametrize("program", find_blocks("python"), ids=["openai", "gradio_client"])
def test_a_program_works(studio: Studio, folder: Path, program: str) -> None:
    before = studio.read("outputs")["total"]
    run([sys.executable, "-c", program.replace(SERVER, f"127.0.0.1:{studio.client.base_url.port}")], folder=folder)
    assert studio.read("outputs")["total"] == before + 1


def test_the_address_for_language_models_is_there(studio: Studio) -> None:
    [block] = find_blocks("json")
    url = json.loads(block)["mcpServers"]["lumesh"]["url"].replace(SERVER, f"127.0.0.1:{studio.client.base_url.port}")
    message = {"jsonrpc": "2.0", "id": 1, "method": "tools/list"}
    answer = studio.client.post(url, json=message, headers={"Accept": "application/json, text/event-stream"})
    assert answer.json()["result"]["tools"]

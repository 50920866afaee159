"""Who may use it, as people run it: real processes, real logins, nobody in by accident."""

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import httpx

from studio.access.users import Users
from studio.database import open_database
from tests.places import ROOT
from tests.studio_processes import run_app

PASSWORD = "lovelace-1815"
Start = Callable[..., Any]


def test_with_users_people_log_in_and_out(start_studio: Start, tmp_path: Path) -> None:
    data_dir = tmp_path / "data"
    folder = ("--data-dir", str(data_dir))
    command = [sys.executable, "app.py", "users", "add", "ada", "--admin", "--password-stdin", *folder]
    added = subprocess.run(command, cwd=ROOT, input=f"{PASSWORD}\n", capture_output=True, text=True, check=False)
    assert added.stdout == "ada can log in\n"
    code, said = run_app(["users", "token", "ada", *folder], tmp_path / "token.log")
    assert code == 0
    token = said.strip()
    studio = start_studio(data_dir)
    client = studio.client

    page = client.get("/", headers={"Accept": "text/html"})
    assert (page.status_code, page.headers["location"]) == (303, "login")
    for path in ("/", "/api/v1/health", "/api/v1/events", "/config"):
        assert client.get(path).status_code == 401, path
    wrong = client.post("/login", data={"name": "ada", "password": "lovelace-1816"})
    assert wrong.status_code == 401
    assert "Wrong name or password" in wrong.text
    assert not wrong.cookies
    strange = client.post(
        "/login", data={"name": "ada", "password": PASSWORD}, headers={"Sec-Fetch-Site": "cross-site"}
    )
    assert strange.status_code == 403
    right = client.post("/login", data={"name": "ada", "password": PASSWORD, "next": "//evil.example"})
    assert (right.status_code, right.headers["location"]) == (303, ".///evil.example")
    flags = right.headers["set-cookie"].lower()
    assert "httponly" in flags
    assert "samesite=lax" in flags

    assert client.get("/").status_code == 200
    job = studio.wait_for_state(studio.submit(steps=1), "done")
    assert job["owner"] == "ada"
    assert client.get(job["outputs"][0]["url"]).is_success
    cookie = client.cookies["lumesh-session"]
    assert client.post("/logout").headers["location"] == "./login"
    stolen = {"Cookie": f"lumesh-session={cookie}"}
    assert client.get("/api/v1/me", headers=stolen).status_code == 401, "a copy of the cookie is void too"

    bearer = {"Authorization": f"Bearer {token}"}
    assert client.get("/api/v1/me", headers=bearer).json()["name"] == "ada"
    with client.stream("GET", "/api/v1/events?after=0", headers=bearer) as stream:
        lines = stream.iter_lines()
        assert next(lines) == "retry: 1000"
        assert run_app(["users", "remove", "ada", *folder], tmp_path / "remove.log")[0] == 0
        assert client.get("/api/v1/me", headers=bearer).status_code == 401
    printed = studio.stop()
    logs = "".join(file.read_text("utf-8") for file in (data_dir / "logs").iterdir())
    for secret in (PASSWORD, "lovelace-1816", token, cookie):
        assert secret not in printed + logs
    notes = [json.loads(line)["what"] for line in (data_dir / "logs" / "audit.jsonl").read_text().splitlines()]
    assert notes == ["users.add", "users.token", "login.failed", "login", "logout", "users.remove"]


KINDS_OF_OWNERS = {
    *("job.queued", "job.phase", "job.step", "job.preview", "job.done", "job.failed", "job.cancelled"),
    *("queue.changed", "grid.done", "outputs.changed"),
}


@contextmanager
def follow(client: httpx.Client, path: str, **headers: str) -> Iterator[Iterator[str]]:
    """The lines of a stream that is open once this is entered."""
    with client.stream("GET", f"/api/v1/events{path}", headers=headers) as answer:
        lines = answer.iter_lines()
        assert next(lines) == "retry: 1000"
        yield lines


def read_until_done(lines: Iterator[str], job_id: str) -> list[str]:
    """Everything that came, up to the end of this job."""
    read: list[str] = []
    for line in lines:
        read.append(line)
        if line.startswith('data: {"id"') and '"kind":"job.done"' in line and job_id in line:
            return read
    raise AssertionError("the stream ended")


def test_no_stream_carries_anything_of_another_owner(
    start_studio: Start, wait_for: Callable[..., Any], tmp_path: Path
) -> None:
    users = Users(tmp_path / "users.json")
    tokens = {}
    for name in ("ada", "bob", "root"):
        users.add(name, password=None, is_admin=name == "root")
        tokens[name] = {"Authorization": f"Bearer {users.add_token(name)}"}
    studio = start_studio(tmp_path)
    clients = {
        name: httpx.Client(base_url=studio.client.base_url, headers=bearer, timeout=60, trust_env=False)
        for name, bearer in tokens.items()
    }
    ada, bob = clients["ada"], clients["bob"]

    def submit(client: httpx.Client, prompt: str, **fields: Any) -> str:
        recipe = {"model": "demo-sdxl", "shape": "128x128", "prompt": prompt, "steps": 1, **fields}
        return client.post("/api/v1/jobs", json=recipe).raise_for_status().json()["id"]

    def wait_for_state(client: httpx.Client, job_id: str, state: str) -> None:
        wait_for(f"{job_id} to be {state}", lambda: client.get(f"/api/v1/jobs/{job_id}").json()["state"] == state)

    def keep_busy() -> list[str]:
        """Everything of hers that is told in events."""
        ids = [submit(ada, "Aubergines"), submit(ada, "Aubergines, fail please"), submit(ada, "Aubergines", steps=100)]
        wait_for("a preview", lambda: ada.get(f"/api/v1/jobs/{ids[2]}/preview.jpg").is_success)
        ada.delete(f"/api/v1/jobs/{ids[2]}")
        ada.post("/api/v1/queue/pause")
        ada.post("/api/v1/queue/resume")
        axes = {"x": {"field": "steps", "values": "1, 2"}}
        recipe = {"model": "demo-sdxl", "shape": "128x128", "prompt": "Aubergines"}
        grid = ada.post("/api/v1/grids", json={**axes, "recipe": recipe}).raise_for_status().json()
        wait_for("the sheet", lambda: ada.get(f"/api/v1/grids/{grid['id']}").json()["output_id"])
        ada.post("/api/v1/outputs/trash", json={"ids": [f"{ids[0]}-0"]}).raise_for_status()
        return [*ids, *grid["ids"], grid["id"]]

    hers = keep_busy()
    with follow(bob, "") as live:
        hers += keep_busy()
        mine = submit(bob, "Bananas")
        wait_for_state(bob, mine, "done")
        streams = {"live": read_until_done(live, mine)}
    for path, headers in (("?after=0", {}), ("", {"Last-Event-ID": "0"}), ("?after=9999", {"Last-Event-ID": "3"})):
        with follow(bob, path, **headers) as lines:
            streams[f"{path} {headers}"] = read_until_done(lines, mine)
    for name, lines in streams.items():
        text = "\n".join(lines)
        assert "Bananas" in text, name
        assert [word for word in ("Aubergines", '"ada"', *hers) if word in text] == [], name

    with closing(open_database(tmp_path / "jobs.db")) as database:
        told = database.read("SELECT DISTINCT kind FROM events WHERE owner = 'ada'")
        assert {row["kind"] for row in told} == KINDS_OF_OWNERS, "each kind had its chance to leak"
    assert bob.get("/api/v1/events?everyone=true").status_code == 403
    with follow(clients["root"], "?after=0&everyone=true") as lines:
        everything = "\n".join(read_until_done(lines, mine))
    assert all(job_id in everything for job_id in hers)
    for client in clients.values():
        client.close()
    studio.stop()


def test_behind_a_proxy_its_header_says_who_asks(start_studio: Start) -> None:
    flags = ("--access", "proxy", "--trusted-proxies", "127.0.0.1", "--user-header", "X-Remote-User")
    studio = start_studio(None, *flags, "--admins", "ada", "--submits-per-minute", "2")
    client = studio.client
    assert client.get("/api/v1/me").status_code == 401
    assert client.get("/api/v1/me", headers={"X-Forwarded-User": "ada"}).status_code == 401
    assert "proxy" in client.get("/login").text
    bob = {"X-Remote-User": "bob"}
    me = client.get("/api/v1/me", headers=bob).json()
    assert (me["owner"], me["is_admin"], me["can_log_out"]) == ("bob", False, False)
    assert client.get("/api/v1/me", headers={"X-Remote-User": "Ada"}).json()["is_admin"] is True
    recipe = {"model": "demo-sdxl", "prompt": "A boat", "steps": 1}
    answers = [client.post("/api/v1/jobs", json=recipe, headers=bob) for _ in range(3)]
    assert [answer.status_code for answer in answers] == [201, 201, 429]
    assert int(answers[2].headers["retry-after"]) <= 30
    job_id = answers[0].json()["id"]
    assert client.get(f"/api/v1/jobs/{job_id}", headers={"X-Remote-User": "eve"}).status_code == 404
    assert client.get(f"/api/v1/jobs/{job_id}", headers=bob).status_code == 200
    assert client.get("/", headers=bob).status_code == 200


def test_nobody_opens_a_studio_to_others_by_accident(tmp_path: Path) -> None:
    code, said = run_app(["--fake", "--host", "0.0.0.0", "--data-dir", str(tmp_path / "data")], tmp_path / "log")
    assert code == 2
    assert "other machines reach the studio" in said
    assert "--open" in said
    assert not (tmp_path / "data" / "logs").exists(), "no worker was started"


def test_open_on_purpose_says_so_loudly_and_takes_any_name(start_studio: Start) -> None:
    studio = start_studio(None, "--host", "0.0.0.0", "--open")
    assert studio.client.get("/api/v1/me", headers={"Host": "studio.example"}).json()["owner"] == "local"
    assert "ANYBODY WHO REACHES THIS ADDRESS" in studio.stop()


def test_alone_it_takes_no_other_name(shared_studio: Any) -> None:
    client = shared_studio.client
    assert client.get("/api/v1/health", headers={"Host": "evil.example"}).status_code == 421
    assert client.get("/api/v1/me").json()["is_known"] is False

"""Accounts over REST: one's own password and tokens, with the current password; everybody's, by admins."""

import base64
import hashlib
import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest
from fastapi.testclient import TestClient

from pipelines.models.catalog import Catalog
from studio.access.sessions import COOKIE
from studio.access_settings import Mode
from studio.api.application import create_api
from studio.database import Database
from studio.jobs.job import Job
from studio.settings import Settings
from studio.worker.loop import Worker

PASSWORD, BETTER = "lovelace-1815", "analytical-engine"
ADMIN, ADA = "root-of-it", "ada"


def hash_cheaply(password: str) -> str:
    """A hash of the least cost, which stands in it: the real one takes a third of a second."""
    salt = b"salt"
    digest = hashlib.scrypt(password.encode(), salt=salt, n=2, r=1, p=1)
    return "$".join(("scrypt", "1", "1", "1", *(base64.b64encode(part).decode() for part in (salt, digest))))


@pytest.fixture
def api(settings: Settings, database: Database, catalog: Catalog) -> Any:
    settings = replace(settings, access=replace(settings.access, mode=Mode.PASSWORD))
    users = {name: {"password": hash_cheaply(PASSWORD), "is_admin": name == ADMIN} for name in (ADMIN, ADA)}
    settings.users_file.write_text(json.dumps({"users": users}))
    return create_api(settings, database, catalog)


@pytest.fixture
def enter(api: Any) -> Iterator[Callable[[str], TestClient]]:
    """`enter(name)` is a client with a session of this user."""
    clients: list[TestClient] = []

    def enter(name: str) -> TestClient:
        door = api.state.studio.door
        session = door.sessions.open(owner=name, name=name, stamp=door.users.read()[name].stamp)
        clients.append(TestClient(api, cookies={COOKIE: session}, raise_server_exceptions=False))
        return clients[-1]

    yield enter
    for client in clients:
        client.close()


def with_token(api: Any, token: str) -> int:
    with TestClient(api, headers={"Authorization": f"Bearer {token}"}) as client:
        return client.get("/api/v1/me").status_code


def read_audit(settings: Settings) -> str:
    return settings.audit_log.read_text()


def test_a_new_password_needs_the_current_one_and_ends_all_but_this_session(
    api: Any, enter: Callable[[str], TestClient], settings: Settings
) -> None:
    ada, elsewhere = enter(ADA), enter(ADA)
    token = ada.post("/api/v1/account/tokens", json={"name": "notebook", "current": PASSWORD}).json()["token"]
    url = "/api/v1/account/password"

    def change(current: str, password: str) -> Any:
        return ada.put(url, json={"current": current, "password": password})

    wrong = change("guess", BETTER)
    assert (wrong.status_code, wrong.json()["error"]["detail"]) == (422, "The current password is wrong.")
    assert "characters" in change(PASSWORD, "short").json()["error"]["detail"]
    assert "first that anybody tries" in change(PASSWORD, "password1").json()["error"]["detail"]
    assert ada.put(url, json={"current": PASSWORD, "password": "x" * 201}).status_code == 422
    other_site = {"Sec-Fetch-Site": "cross-site"}
    assert ada.put(url, json={"current": PASSWORD, "password": BETTER}, headers=other_site).status_code == 403
    assert with_token(api, token) == 200 and elsewhere.get("/api/v1/me").status_code == 200

    answer = change(PASSWORD, BETTER)
    assert answer.status_code == 200
    cookie = answer.headers["set-cookie"].lower()
    assert "httponly" in cookie and "samesite=lax" in cookie
    assert ada.get("/api/v1/account").json() == {
        "name": ADA,
        "is_admin": False,
        "has_password": True,
        "tokens": [],
    }
    assert elsewhere.get("/api/v1/me").status_code == 401
    assert with_token(api, token) == 401
    audit = read_audit(settings)
    assert '"account.password"' in audit and '"account.refused"' in audit
    assert not any(secret in audit + answer.text for secret in (PASSWORD, BETTER, token))


def test_a_token_is_told_once_named_and_revoked(
    api: Any, enter: Callable[[str], TestClient], settings: Settings
) -> None:
    ada, admin = enter(ADA), enter(ADMIN)
    url = "/api/v1/account/tokens"
    assert ada.post(url, json={"current": "guess"}).status_code == 422
    made = ada.post(url, json={"name": " my\nnotebook ", "current": PASSWORD})
    assert (made.status_code, with_token(api, made.json()["token"])) == (201, 200)
    told = ada.get("/api/v1/account").json()["tokens"]
    assert [one["name"] for one in told] == ["my notebook"]
    assert made.json()["token"] not in json.dumps(told) + settings.users_file.read_text() + read_audit(settings)
    assert admin.delete(f"{url}/{told[0]['id']}").status_code == 404
    assert ada.delete(f"{url}/{told[0]['id']}").status_code == 204
    assert ada.delete(f"{url}/{told[0]['id']}").json()["error"]["title"] == "Users"
    assert with_token(api, made.json()["token"]) == 401


def test_whoever_guesses_the_current_password_has_to_wait(enter: Callable[[str], TestClient]) -> None:
    ada = enter(ADA)

    def try_it(current: str) -> Any:
        return ada.post("/api/v1/account/tokens", json={"current": current})

    assert [try_it(f"guess {number}").status_code for number in range(5)] == [422] * 5
    refused = try_it(PASSWORD)
    assert refused.status_code == 429
    assert int(refused.headers["Retry-After"]) > 1
    assert ada.get("/api/v1/account").json()["tokens"] == []
    assert enter(ADMIN).post("/api/v1/account/tokens", json={"current": PASSWORD}).status_code == 201


def test_admins_add_reset_and_remove_users_and_nobody_else_does(
    api: Any,
    enter: Callable[[str], TestClient],
    settings: Settings,
    submit: Callable[..., Job],
    worker: Worker,
) -> None:
    submit("A boat of an earlier Bob", owner="bob")
    worker.run_next()
    ada, admin = enter(ADA), enter(ADMIN)
    new = {"name": "Bob", "password": BETTER}
    for method, url, body in (
        ("GET", "users", None),
        ("POST", "users", new),
        ("PUT", f"users/{ADMIN}/password", {"password": BETTER}),
        ("DELETE", f"users/{ADMIN}", None),
    ):
        assert ada.request(method, f"/api/v1/{url}", json=body).status_code == 403, (method, url)

    assert "cannot be a name" in admin.post("/api/v1/users", json={**new, "name": "a b"}).json()["error"]["detail"]
    assert "first that anybody" in admin.post("/api/v1/users", json={**new, "password": "bob12345"}).text
    added = admin.post("/api/v1/users", json=new)
    bob = {"name": "bob", "is_you": False, "is_admin": False, "has_password": True, "tokens": 0, "outputs": 1}
    assert (added.status_code, added.json()) == (201, bob)
    assert "already" in admin.post("/api/v1/users", json=new).json()["error"]["detail"]
    assert [user["name"] for user in admin.get("/api/v1/users").json()["users"]] == [ADA, "bob", ADMIN]

    assert admin.put(f"/api/v1/users/{ADMIN}/password", json={"password": BETTER}).status_code == 422
    assert admin.put("/api/v1/users/carol/password", json={"password": BETTER}).status_code == 404
    visiting = enter("bob")
    assert admin.put("/api/v1/users/bob/password", json={"password": "window-seat-21"}).json() == bob
    assert visiting.get("/api/v1/me").status_code == 401
    visiting = enter("bob")

    assert admin.delete(f"/api/v1/users/{ADMIN}").status_code == 422
    assert admin.delete("/api/v1/users/bob").status_code == 204
    assert admin.delete("/api/v1/users/bob").status_code == 404
    assert visiting.get("/api/v1/me").status_code == 401
    everyones = admin.get("/api/v1/outputs", params={"everyone": True}).json()
    assert [output["owner"] for output in everyones["outputs"]] == ["bob"]
    audit = read_audit(settings)
    assert all(f'"users.{what}"' in audit for what in ("add", "password", "remove"))
    assert BETTER not in audit and "window-seat" not in audit


def test_without_passwords_there_are_no_accounts(client: TestClient) -> None:
    for method, url in (("GET", "account"), ("GET", "users"), ("DELETE", "users/ada"), ("DELETE", "account/tokens/x")):
        answer = client.request(method, f"/api/v1/{url}")
        assert (answer.status_code, answer.json()["error"]["detail"]) == (
            403,
            "This studio keeps no accounts of its own.",
        )
    assert client.get("/api/v1/me").json()["has_account"] is False

"""The Hugging Face login against a provider that answers over real HTTP and checks what it is sent."""

import base64
import hashlib
import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any
from urllib.parse import parse_qs, parse_qsl, urlsplit

import anyio
import pytest

from studio.access.hub_login import HubLoginError, HubLogins
from studio.access_settings import HubLogin


@dataclass
class Provider:
    """Answers as the hub does: one code, for who has the verifier, the secret and the same redirect address."""

    url: str = ""
    challenge: str = ""
    account: dict[str, Any] = field(default_factory=lambda: {"sub": "5f1", "preferred_username": "Ada"})


@pytest.fixture
def provider() -> Iterator[Provider]:
    found = Provider()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            if self.path == "/.well-known/openid-configuration":
                names = {"authorization_endpoint": "a", "token_endpoint": "t", "userinfo_endpoint": "u"}
                self._answer({name: f"{found.url}/{path}" for name, path in names.items()})
            elif self.headers["Authorization"] == "Bearer access":
                self._answer(found.account)
            else:
                self._answer({}, 401)

        def do_POST(self) -> None:
            sent = dict(parse_qsl(self.rfile.read(int(self.headers["Content-Length"])).decode()))
            digest = hashlib.sha256(sent["code_verifier"].encode()).digest()
            is_right = (
                base64.urlsafe_b64encode(digest).decode().rstrip("=") == found.challenge
                and base64.b64decode(self.headers["Authorization"].split()[1]) == b"id:secret"
                and sent["code"] == "code"
                and sent["redirect_uri"] == "https://me-lumesh.hf.space/login/callback"
            )
            self._answer({"access_token": "access"} if is_right else {}, 200 if is_right else 400)

        def _answer(self, content: Any, status: int = 200) -> None:
            body = json.dumps(content).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: Any) -> None:
            """Says nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        found.url = f"http://127.0.0.1:{server.server_address[1]}"
        Thread(target=server.serve_forever, daemon=True).start()
        yield found
        server.shutdown()


@pytest.fixture
def logins(provider: Provider) -> HubLogins:
    login = HubLogin(
        client_id="id",
        client_secret="secret",
        provider_url=provider.url,
        scopes="openid profile",
        space_host="me-lumesh.hf.space",
    )
    return HubLogins(login, b"key" * 12)


def begin(logins: HubLogins, provider: Provider) -> tuple[dict[str, str], str]:
    url, cookie = anyio.run(logins.begin, "api/docs")
    query = {name: values[0] for name, values in parse_qs(urlsplit(url).query).items()}
    provider.challenge = query["code_challenge"]
    return query, cookie


def test_the_account_comes_back_with_where_it_wanted_to(logins: HubLogins, provider: Provider) -> None:
    query, cookie = begin(logins, provider)
    assert query["client_id"] == "id"
    assert "secret" not in f"{query}{cookie}"
    account, onward = anyio.run(logins.finish, {"code": "code", "state": query["state"]}, cookie)
    assert (account.owner, account.preferred_username, onward) == ("hf-5f1", "Ada", "api/docs")


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        ({"code": "code", "state": "another"}, "another attempt"),
        ({"code": "code"}, "another attempt"),
        ({"error": "access_denied"}, "access_denied"),
        ({"code": "guessed"}, "refused it"),
    ],
)
def test_an_answer_that_does_not_fit_logs_nobody_in(
    logins: HubLogins, provider: Provider, answer: dict[str, str], message: str
) -> None:
    query, cookie = begin(logins, provider)
    if message in ("access_denied", "refused it"):
        answer = {"state": query["state"], **answer}
    with pytest.raises(HubLoginError, match=message):
        anyio.run(logins.finish, answer, cookie)


def test_another_browsers_answer_logs_nobody_in(logins: HubLogins, provider: Provider) -> None:
    query, _ = begin(logins, provider)
    for cookie in ("", "forged.00", begin(logins, provider)[1]):
        with pytest.raises(HubLoginError):
            anyio.run(logins.finish, {"code": "code", "state": query["state"]}, cookie)


@pytest.mark.parametrize(
    "account", [{}, {"sub": "", "preferred_username": "x"}, {"sub": "a/b", "preferred_username": "x"}]
)
def test_an_account_without_an_id_is_nobody(logins: HubLogins, provider: Provider, account: dict[str, str]) -> None:
    provider.account = account
    query, cookie = begin(logins, provider)
    with pytest.raises(HubLoginError, match="whose account"):
        anyio.run(logins.finish, {"code": "code", "state": query["state"]}, cookie)


def test_a_space_logs_people_in_over_http(start_command: Any, provider: Provider) -> None:
    space = {
        "SPACE_ID": "me/lumesh",
        "SPACE_HOST": "me-lumesh.hf.space",
        "OAUTH_CLIENT_ID": "id",
        "OAUTH_CLIENT_SECRET": "secret",
        "OPENID_PROVIDER_URL": provider.url,
    }
    studio = start_command(None, "--host", "127.0.0.1", "--admins", "ada", environment=space)
    client = studio.client
    assert client.get("/api/v1/jobs").status_code == 401
    assert "Log in with Hugging Face" in client.get("/login").text
    sent = client.get("/login/huggingface", params={"next": "api/docs"})
    query = dict(parse_qsl(urlsplit(sent.headers["location"]).query))
    provider.challenge = query["code_challenge"]
    begun = sent.headers["set-cookie"]
    assert "samesite=none; secure" in begun.lower()
    back = {"code": "code", "state": query["state"]}
    assert client.get("/login/callback", params=back).status_code == 401, "in another browser"
    answer = client.get("/login/callback", params=back, headers={"Cookie": begun.partition(";")[0]})
    assert (answer.status_code, answer.headers["location"]) == (303, "./../api/docs")
    session = next(value for value in answer.headers.get_list("set-cookie") if value.startswith("lumesh-session="))
    assert {"httponly", "secure", "samesite=none"} <= {part.strip().lower() for part in session.split(";")}
    me = client.get("/api/v1/me", headers={"Cookie": session.partition(";")[0]}).json()
    assert (me["owner"], me["name"], me["is_admin"]) == ("hf-5f1", "Ada", True)
    assert client.get("/api/v1/me").status_code == 401

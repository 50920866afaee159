"""Logging in with a Hugging Face account, on a Space whose README says `hf_oauth: true`.

This is OpenID Connect's code flow with PKCE, in three requests by httpx: discover the provider's endpoints, exchange
the code for an access token, and read the user info with it. Answers come straight from the provider over TLS, so the
ID token's signature is not checked. The token is used once and never stored. (The helpers of gradio and huggingface_hub
keep it in the browser's cookie, and outside of Spaces they log everybody in as the server's own account.)
"""

import asyncio
import base64
import hashlib
import hmac
import secrets
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, cast
from urllib.parse import urlencode

import httpx
from pydantic import BaseModel, Field, ValidationError

from pipelines.errors import LumeshError
from pipelines.messages import Message, say
from studio.access.sessions import Signer
from studio.access_settings import HubLogin

STATE_COOKIE = "lumesh-login"
STATE_S = 600.0
TIMEOUT_S = 10.0
AT_ONCE = 2  # logins that wait for the hub: one whose name is not found holds a thread of the server for half a minute
CALLBACK_PATH = "/login/callback"  # one of the two that the hub allows for a Space


class HubLoginError(LumeshError):
    """The login failed."""

    title = say("Logging in did not work")

    def __init__(self, detail: Message) -> None:
        super().__init__(detail, advice=say("Try again."))


class Account(BaseModel):
    """An account of the hub; `sub` survives a renaming, so it serves as the owner."""

    sub: str = Field(pattern=r"^[A-Za-z0-9_.-]{1,100}$")
    preferred_username: str = Field(min_length=1, max_length=100)

    @property
    def owner(self) -> str:
        return f"hf-{self.sub}"


@dataclass(frozen=True, kw_only=True)
class _Endpoints:
    authorize: str
    token: str
    userinfo: str


class HubLogins:
    """The login flow; its state is in a signed cookie of the visitor."""

    def __init__(self, login: HubLogin, key: bytes) -> None:
        self._login = login
        self._signer = Signer(key, purpose="hub login")
        self._found: _Endpoints | None = None
        self._turns = asyncio.Semaphore(AT_ONCE)

    async def begin(self, onward: str) -> tuple[str, str]:
        """Returns the address to send the visitor to, and the state cookie; `onward` is the page they wanted."""
        async with self._turns:
            endpoints = await self._find_endpoints()
        state, verifier = secrets.token_urlsafe(24), secrets.token_urlsafe(48)
        challenge = base64.urlsafe_b64encode(hashlib.sha256(verifier.encode()).digest()).decode().rstrip("=")
        query = {
            "response_type": "code",
            "client_id": self._login.client_id,
            "redirect_uri": self._redirect_uri,
            "scope": self._login.scopes,
            "state": state,
            "code_challenge": challenge,
            "code_challenge_method": "S256",
        }
        until = time.time() + STATE_S
        cookie = self._signer.sign({"state": state, "verifier": verifier, "until": until, "onward": onward})
        return f"{endpoints.authorize}?{urlencode(query)}", cookie

    async def finish(self, query: Mapping[str, str], cookie: str) -> tuple[Account, str]:
        """Returns the account of the provider's answer and the page its owner wanted; raises HubLoginError."""
        begun = self._signer.read(cookie)
        if begun is None or begun["until"] < time.time():
            raise HubLoginError(say("It was begun in another browser, or too long ago."))
        if not hmac.compare_digest(query.get("state", "").encode(), begun["state"].encode()):
            raise HubLoginError(say("The answer belongs to another attempt."))
        if "code" not in query:
            raise HubLoginError(
                say("The hub answered {error}.", error=repr(query["error"][:60]))
                if "error" in query
                else say("The hub answered without a code.")
            )
        async with self._turns:
            about = await self._exchange(query["code"], str(begun["verifier"]))
        try:
            return Account.model_validate(about), str(begun["onward"])
        except ValidationError as error:
            raise HubLoginError(say("The hub did not say whose account it is.")) from error

    async def _exchange(self, code: str, verifier: str) -> dict[str, Any]:
        """Exchanges the code for a token, and reads with it whose account it is."""
        endpoints = await self._find_endpoints()
        async with httpx.AsyncClient(timeout=TIMEOUT_S) as client:
            tokens = await _read(
                client.post(
                    endpoints.token,
                    data={
                        "grant_type": "authorization_code",
                        "code": code,
                        "redirect_uri": self._redirect_uri,
                        "client_id": self._login.client_id,
                        "code_verifier": verifier,
                    },
                    auth=(self._login.client_id, self._login.client_secret),
                )
            )
            bearer = {"Authorization": f"Bearer {tokens.get('access_token', '')}"}
            return await _read(client.get(endpoints.userinfo, headers=bearer))

    @property
    def _redirect_uri(self) -> str:
        return f"https://{self._login.space_host}{CALLBACK_PATH}"

    async def _find_endpoints(self) -> _Endpoints:
        if self._found is None:
            async with httpx.AsyncClient(timeout=TIMEOUT_S) as client:
                url = f"{self._login.provider_url.rstrip('/')}/.well-known/openid-configuration"
                found = await _read(client.get(url))
            try:
                self._found = _Endpoints(
                    authorize=found["authorization_endpoint"],
                    token=found["token_endpoint"],
                    userinfo=found["userinfo_endpoint"],
                )
            except KeyError as error:
                raise HubLoginError(say("The hub does not name its {name}.", name=error)) from error
        return self._found


async def _read(request: Any) -> dict[str, Any]:
    """Reads the JSON object of an answer; raises HubLoginError without details that could be secret."""
    try:
        answer: httpx.Response = await request
        answer.raise_for_status()
        found = answer.json()
    except httpx.HTTPStatusError as error:
        raise HubLoginError(say("The hub refused it ({status}).", status=error.response.status_code)) from None
    except (httpx.HTTPError, ValueError):
        raise HubLoginError(say("The hub does not answer.")) from None
    if not isinstance(found, dict):
        raise HubLoginError(say("The hub's answer cannot be read."))
    return cast(dict[str, Any], found)

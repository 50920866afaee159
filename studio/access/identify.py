"""The one place that decides who a request comes from, and whether it may queue something now.

Every request is checked anew, so a user who was removed or logged out elsewhere loses access at once. User names and
client addresses in a proxy's headers are trusted only if the settings list the proxy.
"""

import ipaddress
import re
import secrets
import time
from collections.abc import Sequence

from starlette.datastructures import Headers
from starlette.requests import cookie_parser

from pipelines.messages import english, say
from pipelines.recipes.recipe import Recipe
from studio.access import hooks, sessions
from studio.access.audit import Audit
from studio.access.few import FewAtOnce
from studio.access.hooks import PromptRefusedError
from studio.access.limits import Limiter, RateError
from studio.access.networks import find_network
from studio.access.people import LOCAL_OWNER, Person
from studio.access.sessions import COOKIE, Session, Sessions, Signer
from studio.access.users import TOKEN_PREFIX, Users
from studio.access_settings import Mode
from studio.database import Database
from studio.settings import Settings

BEARER = "bearer "
PROXY_NAME = re.compile(r"[!-+\--~]{1,100}")  # no comma: what some proxies make of two headers
LOGINS_EACH = 5  # wrong passwords for one name from one address, then one a minute
LOGINS_ADDRESS = 30
LOGINS_PERIOD_S = 300.0
# For one name, from wherever: then one every 30 s. A browser that this name logged in with before counts for itself.
LOGINS_ACCOUNT, LOGINS_ACCOUNT_PERIOD_S = 20, 600.0
PASSWORD_THREADS = 2  # each check takes a third of a second of a core and 32 MiB
PASSWORDS_WAITING = 12
KNOWN_S = 180 * 24 * 3600.0  # how long such a browser stays known
KNOWN_COOKIE = "lumesh-known"


class Door:
    """Identifies and admits visitors; built once for an application."""

    def __init__(self, settings: Settings, database: Database) -> None:
        self.settings = settings.access
        self.audit = Audit(settings.audit_log)
        self.users = Users(settings.users_file)
        self.key = sessions.read_key(settings.secret_file)
        self.sessions = Sessions(self.key, database)
        self.passwords = FewAtOnce("passwords", threads=PASSWORD_THREADS, waiting=PASSWORDS_WAITING)
        self._is_loopback = is_loopback(settings.host)
        self._prompt_hook = hooks.load_hook(self.settings.prompt_hook)
        self._submits = Limiter(count=self.settings.submits_per_minute, period_s=60.0)
        self._logins = Limiter(count=LOGINS_EACH, period_s=LOGINS_PERIOD_S)
        self._logins_of_account = Limiter(count=LOGINS_ACCOUNT, period_s=LOGINS_ACCOUNT_PERIOD_S)
        self._known = Signer(self.key, purpose="known browser")
        self._logins_of_address = Limiter(count=LOGINS_ADDRESS, period_s=LOGINS_PERIOD_S)

    def identify(self, headers: Headers, peer: str | None) -> Person | None:
        """Returns who asks; None without a valid token, session or header."""
        address = self.find_address(headers, peer)
        if self.settings.mode is Mode.OPEN:
            return Person(owner=LOCAL_OWNER, name=LOCAL_OWNER, address=address, is_alone=self._is_loopback)
        person = self._identify_token(headers, address) or self._identify_session(headers, address, peer)
        # Nobody has this name, whatever an older users file says: they would own all that was made without a login.
        return None if person is not None and person.owner == LOCAL_OWNER else person

    def find_address(self, headers: Headers, peer: str | None) -> str:
        """Returns the client's address: behind trusted proxies, the last hop that is not one of them."""
        address = peer or "unknown"
        hops = [hop.strip() for value in headers.getlist("x-forwarded-for") for hop in value.split(",")]
        while hops and self.settings.is_trusted(address):
            address = hops.pop()[:100] or "unknown"
        return address

    def log_in(self, name: str, password: str, address: str, *, known: str = "") -> str | None:
        """Opens a session and returns its cookie; None when name and password do not match. Raises RateError.

        `known` is the cookie of a browser in which this name logged in before: strangers who guess this name's password
        from many addresses do not lock its owner out there.
        """
        name = name.strip().casefold()[:100]
        network = find_network(address)
        browser = self._read_known(known, name)
        key = f"{browser or network} {name}"
        wait_s = self._logins_of_address.take(network) or self._logins.take(key)
        if not wait_s and browser is None:
            wait_s = self._logins_of_account.take(name)
        if wait_s:
            self.audit.note("login.limited", name=self._name_for_log(name), address=address)
            raise RateError(say("Too many attempts to log in."), wait_s=wait_s)
        user = self.users.check_password(name, password)
        if user is None:
            self.audit.note("login.failed", name=self._name_for_log(name), address=address)
            return None
        self._logins.forgive(key)
        if browser is None:
            self._logins_of_account.forgive(name)
        self.audit.note("login", name=name, address=address)
        return self.sessions.open(owner=name, name=name, stamp=user.stamp)

    def is_own_password(self, person: Person, password: str) -> bool:
        """Tells whether this is the password of whoever asks; raises RateError after as many wrong ones as a login."""
        key = f"account {person.owner}"
        if wait_s := self._logins.take(key):
            self.audit.note("account.limited", name=person.owner, address=person.address)
            raise RateError(say("Too many wrong passwords."), wait_s=wait_s)
        if self.users.check_password(person.owner, password) is None:
            self.audit.note("account.refused", name=person.owner, address=person.address)
            return False
        self._logins.forgive(key)
        return True

    def make_known(self, name: str) -> str:
        """Returns the cookie that marks a browser in which this name logged in."""
        name = name.strip().casefold()[:100]
        return self._known.sign({"name": name, "id": secrets.token_hex(8), "until": time.time() + KNOWN_S})

    def _read_known(self, cookie: str, name: str) -> str | None:
        values = self._known.read(cookie) if cookie else None
        is_own = values is not None and values["name"] == name and values["until"] > time.time()
        return f"browser {values['id']}" if values is not None and is_own else None

    def log_out(self, headers: Headers) -> None:
        """Ends the session of this request, if it has one."""
        session = self._read_session(headers)
        if session is not None:
            self.sessions.end(session)
            self.audit.note("logout", name=session.name)

    def admit(self, person: Person, recipes: Sequence[Recipe]) -> None:
        """Checks rate and prompts before anything is queued: raises RateError, or PromptRefusedError of the hook."""
        if not person.is_alone:
            key = find_network(person.address) if self.settings.mode is Mode.OPEN else person.owner
            if wait_s := self._submits.take(key):
                raise RateError(
                    say("At most {count} a minute can be queued.", count=self.settings.submits_per_minute),
                    wait_s=wait_s,
                )
        if self._prompt_hook is None:
            return
        for recipe in recipes:
            reason = hooks.ask(self._prompt_hook, owner=person.owner, recipe=recipe.to_json())
            if reason is not None:
                self.audit.note(
                    "prompt.refused", owner=person.owner, address=person.address, reason=reason, prompt=recipe.prompt
                )
                raise PromptRefusedError({"prompt": english(reason)})

    def _identify_token(self, headers: Headers, address: str) -> Person | None:
        """Identifies a bearer token of the studio; passes over the hub token of a private Space in the same header."""
        given = headers.get("authorization", "")
        token = given[len(BEARER) :].strip()
        if given[: len(BEARER)].lower() != BEARER or not token.startswith(TOKEN_PREFIX):
            return None
        found = self.users.find_token(token)
        if found is None:
            return None
        name, user = found
        return Person(owner=name, name=name, address=address, is_admin=self._is_admin(name) or user.is_admin)

    def _identify_session(self, headers: Headers, address: str, peer: str | None) -> Person | None:
        if self.settings.mode is Mode.PROXY:
            return self._identify_header(headers, address, peer)
        session = self._read_session(headers)
        if session is None:
            return None
        is_admin = self._is_admin(session.name)
        if self.settings.mode is Mode.PASSWORD:
            user = self.users.read().get(session.owner)
            if user is None or user.password is None or user.stamp != session.stamp:
                return None
            is_admin = is_admin or user.is_admin
        elif session.stamp != Mode.HUGGINGFACE:  # opened in another mode
            return None
        return Person(owner=session.owner, name=session.name, address=address, is_admin=is_admin, can_log_out=True)

    def _identify_header(self, headers: Headers, address: str, peer: str | None) -> Person | None:
        """Identifies the header of a trusted proxy; of two of them one may be the visitor's own, so neither counts."""
        names = headers.getlist(self.settings.user_header)
        if not self.settings.is_trusted(peer) or len(names) != 1 or not PROXY_NAME.fullmatch(names[0]):
            return None
        name = names[0].casefold()
        return Person(owner=name, name=names[0], address=address, is_admin=self._is_admin(name))

    def _read_session(self, headers: Headers) -> Session | None:
        cookie = cookie_parser(headers.get("cookie", "")).get(COOKIE)
        return self.sessions.read(cookie) if cookie else None

    def _name_for_log(self, name: str) -> str:
        """Hides unknown names in the log: someone may have typed a password there."""
        return name if name in self.users.read() else "(unknown)"

    def _is_admin(self, name: str) -> bool:
        return name.casefold() in self.settings.admins


def is_loopback(host: str) -> bool:
    """Tells whether only this machine can reach that address."""
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return host == "localhost"

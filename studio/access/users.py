"""The users file: names, scrypt hashes, admins and token digests, in the data directory, readable only by its owner.

`python app.py users` (commands.py) and admins in the page write it atomically. The running studio notices changes, so a
removed user loses access at once. A damaged file lets nobody in.
"""

import hashlib
import hmac
import re
import secrets
import threading
import time
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from pathlib import Path

from pydantic import BaseModel, ConfigDict, ValidationError

from pipelines.errors import LumeshError
from pipelines.files.locked import hold_file
from pipelines.files.whole import PRIVATE, write_whole
from pipelines.messages import english, say
from studio.access.passwords import MAX_CHARS, MIN_CHARS, NOBODYS, hash_password, is_password, is_weak
from studio.access.people import LOCAL_OWNER

TOKEN_PREFIX = "lumesh_"
MAX_NAME_CHARS = 40
NAME = re.compile(rf"[a-z0-9][a-z0-9._-]{{0,{MAX_NAME_CHARS - 1}}}")
MAX_TOKENS = 50  # a user's
MAX_TOKEN_NAME_CHARS = 60


class UsersError(LumeshError):
    """The users file is damaged, or a change of it is refused."""

    title = say("Users")
    status = 503


class UserChangeError(UsersError):
    """A change of the users is refused; the error says why."""

    status = 422


class NoUserError(UsersError):
    """There is no such user, or no such token."""

    status = 404


class Token(BaseModel):
    """A stored token: its digest only; `name` says what it is for, as far as somebody wrote it."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    sha256: str
    created_at: float
    name: str = ""

    @property
    def id(self) -> str:
        """Returns the beginning of the digest, which names the token and gives nothing of it away."""
        return self.sha256[:16]


class User(BaseModel):
    """A user; `password` is a hash, or None if they may use only tokens."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    password: str | None = None
    is_admin: bool = False
    tokens: tuple[Token, ...] = ()

    @property
    def stamp(self) -> str:
        """Returns a digest of the password hash, which ends sessions that were opened with an older password."""
        return hashlib.sha256((self.password or "").encode()).hexdigest()[:16]


class _File(BaseModel):
    model_config = ConfigDict(extra="forbid")

    users: dict[str, User] = {}


class Users:
    """The users file; it is read again whenever it changed."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._seen: tuple[int, ...] | None = None
        self._users: Mapping[str, User] = {}
        self._lock = threading.Lock()

    def read(self) -> Mapping[str, User]:
        """Returns all users by name; raises UsersError when the file is damaged."""
        with self._lock:
            try:
                status = self._file.stat()
            except FileNotFoundError:
                self._seen = None
                self._users = {}
                return self._users
            now = (status.st_ino, status.st_mtime_ns, status.st_size)
            if now != self._seen:
                self._users = self._parse(self._file.read_bytes())
                self._seen = now
            return self._users

    def require(self, name: str) -> User:
        """Returns the user of this name; raises NoUserError."""
        return _require(self.read(), name)

    def check_password(self, name: str, password: str) -> User | None:
        """Returns the user if name and password match; takes as long for unknown names."""
        user = self.read().get(name)
        stored = user.password if user else None
        is_right = is_password(password, stored or NOBODYS)
        return user if is_right and stored else None

    def find_token(self, token: str) -> tuple[str, User] | None:
        """Finds the user of a token."""
        digest = _digest(token)
        found = None
        for name, user in self.read().items():
            for known in user.tokens:
                if hmac.compare_digest(known.sha256, digest):
                    found = name, user
        return found

    def add(self, name: str, *, password: str | None, is_admin: bool) -> None:
        """Adds a user; raises UserChangeError when the name is taken or cannot be one."""
        if not NAME.fullmatch(name):
            raise UserChangeError(
                say("{name} cannot be a name.", name=repr(name[:60])),
                advice=say("Use up to 40 small letters, digits, dots, dashes and underscores."),
            )
        if name == LOCAL_OWNER:
            raise UserChangeError(
                say("{name} owns what was made before anybody logged in.", name=repr(name)),
                advice=say("Choose another name."),
            )
        with self._change() as users:
            require_new(users, name)
            users[name] = User(password=hash_password(password) if password else None, is_admin=is_admin)

    def set_password(self, name: str, password: str) -> None:
        """Sets a new password, which ends every session and every token of this user: the old one may be known."""
        with self._change() as users:
            users[name] = _require(users, name).model_copy(update={"password": hash_password(password), "tokens": ()})

    def remove(self, name: str) -> None:
        """Removes a user, whose sessions and tokens end; jobs and files stay."""
        with self._change() as users:
            _require(users, name)
            del users[name]

    def add_token(self, name: str, *, called: str = "") -> str:
        """Makes a token and returns it; only its digest is stored, with what it is `called`."""
        token = TOKEN_PREFIX + secrets.token_urlsafe(32)
        with self._change() as users:
            user = _require(users, name)
            if len(user.tokens) >= MAX_TOKENS:
                raise UserChangeError(
                    say("{name} has {count} tokens already.", name=repr(name), count=len(user.tokens)),
                    advice=say("Revoke those that nobody uses."),
                )
            kept = Token(sha256=_digest(token), created_at=time.time(), name=called[:MAX_TOKEN_NAME_CHARS])
            users[name] = user.model_copy(update={"tokens": (*user.tokens, kept)})
        return token

    def revoke_token(self, name: str, token_id: str) -> None:
        """Revokes one of a user's tokens; raises NoUserError for an unknown id."""
        with self._change() as users:
            user = _require(users, name)
            left = tuple(token for token in user.tokens if token.id != token_id)
            if len(left) == len(user.tokens):
                raise NoUserError(
                    say("There is no token {id}.", id=repr(token_id[:40])), advice=say("Look at the list of tokens.")
                )
            users[name] = user.model_copy(update={"tokens": left})

    def revoke_tokens(self, name: str) -> int:
        """Revokes all of a user's tokens; returns how many."""
        with self._change() as users:
            user = _require(users, name)
            users[name] = user.model_copy(update={"tokens": ()})
        return len(user.tokens)

    @contextmanager
    def _change(self) -> Generator[dict[str, User]]:
        with hold_file(self._file):
            users = dict(self.read())
            yield users
            write_whole(self._file, _File(users=users).model_dump_json(indent=1).encode(), mode=PRIVATE)

    def _parse(self, content: bytes) -> Mapping[str, User]:
        try:
            return _File.model_validate_json(content).users
        except ValidationError as error:
            raise UsersError(
                english(f"{self._file} is damaged ({error.error_count()} problems)."),
                advice=english("Repair it, or remove it and add the users again."),
            ) from None  # the original message would quote the file


def require_new(users: Mapping[str, User], name: str) -> None:
    """Raises UserChangeError when the name is taken."""
    if name in users:
        raise UserChangeError(
            say("There is a user {name} already.", name=repr(name)),
            advice=say("Give that user a new password, or choose another name."),
        )


def require_good(password: str, name: str) -> None:
    """Raises UserChangeError for a password that is too short, too long, or among the first that anybody tries."""
    if not MIN_CHARS <= len(password) <= MAX_CHARS:
        raise UserChangeError(
            say("A password has {least} to {most} characters.", least=MIN_CHARS, most=MAX_CHARS),
            advice=say("Choose another one."),
        )
    if is_weak(password, name):
        raise UserChangeError(
            say("This password is among the first that anybody tries."),
            advice=say("Choose another one, such as four random words."),
        )


def _require(users: Mapping[str, User], name: str) -> User:
    if name not in users:
        raise NoUserError(
            say("There is no user {name}.", name=repr(name[:60])), advice=say("Look at the list of users.")
        )
    return users[name]


def _digest(token: str) -> str:
    """Digests a token with plain SHA-256: 256 random bits cannot be guessed, however fast one tries."""
    return hashlib.sha256(token.encode()).hexdigest()

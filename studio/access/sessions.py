"""Sessions as signed cookies: the server stores no sessions that could be stolen.

The signing key is made once, in a file that only the studio's account can read. A session ends when it expires, by
logging out (its id is on a revocation list in the database until then), or when the user's password changes. Each
purpose signs with a key of its own.
"""

import base64
import binascii
import hashlib
import hmac
import json
import re
import secrets
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from pipelines.errors import LumeshError
from pipelines.files.whole import PRIVATE, write_whole
from pipelines.messages import english
from studio.database import Database

COOKIE = "lumesh-session"
SESSION_S = 7 * 24 * 3600.0
KEY_BYTES = 32
_KEY = re.compile(rb"[0-9a-f]{%d}\s*" % (2 * KEY_BYTES))


class KeyFileError(LumeshError):
    """The file of the signing key holds no key."""

    title = english("The signing key cannot be used")


@dataclass(frozen=True, kw_only=True)
class Session:
    """A session: `owner` owns jobs, `name` is shown; it is valid while `stamp` is the user's current one (users.py)."""

    id: str
    owner: str
    name: str
    stamp: str
    until: float


class Signer:
    """Signs small JSON objects that clients keep and send back."""

    def __init__(self, key: bytes, *, purpose: str) -> None:
        assert len(key) >= KEY_BYTES, "an empty or short key signs whatever anybody likes"
        self._key = hmac.digest(key, purpose.encode(), hashlib.sha256)

    def sign(self, values: dict[str, Any]) -> str:
        """Returns the values with their signature, as text for a cookie."""
        body = base64.urlsafe_b64encode(json.dumps(values, separators=(",", ":")).encode()).decode()
        return f"{body}.{self._seal(body)}"

    def read(self, text: str) -> dict[str, Any] | None:
        """Returns the values if they were signed with this key; None otherwise."""
        body, _, seal = text.partition(".")
        if not hmac.compare_digest(seal.encode(), self._seal(body).encode()):
            return None
        try:
            return json.loads(base64.urlsafe_b64decode(body))
        except (binascii.Error, ValueError):
            return None

    def _seal(self, body: str) -> str:
        return hmac.new(self._key, body.encode(), hashlib.sha256).hexdigest()


class Sessions:
    """Opens, reads and revokes sessions."""

    def __init__(self, key: bytes, database: Database) -> None:
        self._signer = Signer(key, purpose="session")
        self._database = database

    def open(self, *, owner: str, name: str, stamp: str = "", lasts_s: float = SESSION_S) -> str:
        """Opens a session and returns its cookie's value."""
        session = Session(id=secrets.token_hex(16), owner=owner, name=name, stamp=stamp, until=time.time() + lasts_s)
        return self._signer.sign(asdict(session))

    def read(self, cookie: str) -> Session | None:
        """Returns the session of a cookie; None if it is forged, expired or revoked."""
        values = self._signer.read(cookie)
        if values is None:
            return None
        session = Session(**values)
        if session.until <= time.time():
            return None
        ended = self._database.read_one("SELECT 1 FROM ended_sessions WHERE id = ?", (session.id,))
        return None if ended else session

    def end(self, session: Session) -> None:
        """Revokes the session, so that copies of its cookie become invalid too."""
        with self._database.write() as tx:
            tx.execute("INSERT OR IGNORE INTO ended_sessions (id, until) VALUES (?, ?)", (session.id, session.until))
            tx.execute("DELETE FROM ended_sessions WHERE until < ?", (time.time(),))


def read_key(file: Path) -> bytes:
    """Reads the signing key; makes it on first use, in a file that only the studio's own account can read.

    Raises KeyFileError for a file that holds anything but a key: whoever knows the key is whoever they say they are.
    """
    try:
        stored = file.read_bytes()
    except FileNotFoundError:
        key = secrets.token_bytes(KEY_BYTES)
        write_whole(file, key.hex().encode(), mode=PRIVATE)
        return key
    if not _KEY.fullmatch(stored):
        what = f"has {len(stored)} bytes that are no key" if stored else "is empty"
        raise KeyFileError(
            english(f"{file} {what}, so nobody's session can be trusted."),
            advice=english(
                "Delete the file, or bring it back from a backup, and start again. With a new key everybody logs in "
                "anew."
            ),
        )
    return bytes.fromhex(stored.decode())

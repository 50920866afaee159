"""Passwords as scrypt hashes, which are slow on purpose.

The cost is OWASP's second recommendation for scrypt: 32 MiB and about a third of a second on one core. It is part of
each hash, so it can be raised later. Only a few hashes are computed at a time: logins must not fill the memory.
"""

import base64
import hashlib
import hmac
import secrets
import threading

LOG2_N, R, P = 15, 8, 3
SALT_BYTES = 16
MAX_CHARS = 200
MIN_CHARS = 8
_ROOM_BYTES = 128 * 1024 * 1024  # OpenSSL refuses scrypt beyond 32 MiB unless told

# The most used of every list of stolen passwords, without digits and signs around them.
_COMMON = frozenset(
    [
        "password",
        "passwort",
        "passw0rd",
        "p@ssword",
        "p@ssw0rd",
        "letmein",
        "welcome",
        "iloveyou",
        "qwerty",
        "qwertyuiop",
        "qwertz",
        "azerty",
        "asdfghjkl",
        "zxcvbnm",
        "admin",
        "administrator",
        "changeme",
        "default",
        "secret",
        "dragon",
        "monkey",
        "sunshine",
        "princess",
        "football",
        "baseball",
        "superman",
        "batman",
        "trustno1",
        "master",
        "whatever",
        "starwars",
        "computer",
        "internet",
        "login",
        "access",
        "abc",
        "abcd",
        "abcdefgh",
        "test",
        "guest",
        "root",
        "toor",
        "lumesh",
        "studio",
    ]
)
_ROWS = ("01234567890", "09876543210", "abcdefghijklmnopqrstuvwxyz", "qwertyuiopasdfghjklzxcvbnm", "qwertzuiop")

_turns = threading.BoundedSemaphore(2)


def is_weak(password: str, name: str = "") -> bool:
    """Tells whether a password is among the first that anybody tries: common, a row of keys, few signs, the name."""
    plain = password.casefold()
    core = plain.strip("0123456789!?.,;:_-+*#$%&/()= ")
    half = plain[: len(plain) // 2]
    return (
        plain.isdigit()
        or core in _COMMON
        or plain in _COMMON
        or any(plain in row for row in _ROWS)
        or len(set(plain)) <= 3
        or (half * 2 == plain and half.strip("0123456789") in _COMMON | {""})
        or core == name.casefold() != ""
    )


def hash_password(password: str) -> str:
    """Hashes a password; the returned text contains salt and cost as well."""
    salt = secrets.token_bytes(SALT_BYTES)
    digest = _scrypt(password, salt, LOG2_N, R, P)
    return "$".join(("scrypt", str(LOG2_N), str(R), str(P), _encode(salt), _encode(digest)))


def is_password(password: str, stored: str) -> bool:
    """Tells whether this password made that hash, in constant time."""
    _, log2_n, r, p, salt, digest = stored.split("$")
    found = _scrypt(password, base64.b64decode(salt), int(log2_n), int(r), int(p))
    return hmac.compare_digest(found, base64.b64decode(digest))


def _scrypt(password: str, salt: bytes, log2_n: int, r: int, p: int) -> bytes:
    with _turns:
        return hashlib.scrypt(password.encode(), salt=salt, n=1 << log2_n, r=r, p=p, maxmem=_ROOM_BYTES)


def _encode(content: bytes) -> str:
    return base64.b64encode(content).decode()


NOBODYS = "$".join(("scrypt", str(LOG2_N), str(R), str(P), _encode(bytes(SALT_BYTES)), _encode(bytes(64))))
"""Passwords for unknown names are compared with this hash, so that they take as long; no password matches it."""

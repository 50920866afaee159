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

# The cores of the most used passwords of eight and more characters: without digits and signs around them, and with
# letters for the signs that look like them.
_WORDS = """
password passwort pass passw letmein welcome iloveyou trustno qwerty qwertyuiop qwertz qwert qwer qwe azerty asdf
asdfgh asdfghjkl zxcvbnm zxcvbn abc abcd abcde abcdefgh aa changeme default secret admin administrator root toor
guest user test testing login access master dragon monkey shadow sunshine princess football baseball basketball
superman batman starwars pokemon naruto whatever computer internet samsung google facebook liverpool chelsea arsenal
michael michelle jennifer jessica jordan charlie ashley daniel hunter killer freedom forever summer winter spring
autumn lumesh studio
"""
_COMMON = frozenset(_WORDS.split())
_ROWS = (
    *("01234567890", "09876543210", "abcdefghijklmnopqrstuvwxyz", "qwertyuiopasdfghjklzxcvbnm", "qwertzuiop"),
    *("1q2w3e4r5t6z7u", "1q2w3e4r5t6y7u8i9o0p", "q1w2e3r4t5y6", "1qaz2wsx3edc4rfv5tgb", "zaq12wsxcde3", "a1b2c3d4e5f6"),
    *("1qazxsw23edcvfr4", "qazwsxedcrfv"),
)
_LOOKALIKES = str.maketrans("0134@5$7", "oieaasst")
_AROUND = "0123456789!?.,;:_-+*#$%&/()=@ "
LONG_NUMBER = 16  # digits; a random one has 53 bits

_turns = threading.BoundedSemaphore(2)


def is_weak(password: str, name: str = "") -> bool:
    """Tells whether a password is among the first that anybody tries: common, a row of keys, few signs, the name."""
    plain = password.casefold()
    half = plain[: len(plain) // 2]
    parts = {plain, half} if half * 2 == plain else {plain}
    return any(_is_common(part, name.casefold()) for part in parts) or len(set(plain)) <= 3


def _is_common(plain: str, name: str) -> bool:
    core = plain.strip(_AROUND)
    is_number = not core and len(plain) < LONG_NUMBER
    is_row = any(plain in row or plain[::-1] in row for row in _ROWS)
    read = {core, core.translate(_LOOKALIKES), plain.translate(_LOOKALIKES)} - {""}
    return is_number or is_row or bool(read & (_COMMON | {name}))


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

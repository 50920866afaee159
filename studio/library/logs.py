"""Shows the end of a log file without tokens and passwords.

Libraries may write anything into the worker's log, including URLs with passwords and headers with tokens, so whatever
looks like a secret is removed, and so is every secret of the settings.
"""

import re
from collections.abc import Iterable
from pathlib import Path

MAX_BYTES = 256_000
REMOVED = "[removed]"
MIN_SECRET_CHARS = 4  # replacing a shorter one would also remove ordinary words

_PATTERNS = (
    # user:password@ in a URL; the user may be the token
    (re.compile(r"(?<=://)[^\s/@\"']+@"), f"{REMOVED}@"),
    # Authorization: Bearer ..., Basic ...
    (re.compile(r"\b(bearer|basic|digest)(\s+)[\w.~+/=-]{6,}", re.IGNORECASE), rf"\1\2{REMOVED}"),
    # token=..., "api_key": "...", x-hub-token: ..., ?access_token=...
    (
        re.compile(
            r"""([\w-]*(?:token|secret|password|passwd|pwd|api[_-]?key|access[_-]?key|signature|credential|cookie)s?"""
            r"""["']?\s*[=:]\s*)("[^"]*"|'[^']*'|[^\s,;&"'})\]]+)""",
            re.IGNORECASE,
        ),
        rf"\1{REMOVED}",
    ),
    # Tokens of the Hugging Face Hub, GitHub, OpenAI, Google, Amazon and webhooks, and JSON web tokens
    (
        re.compile(
            r"\b(?:hf_|api_org_|gh[pousr]_|github_pat_|sk-|ya29\.|whsec_)[\w./+=-]{6,}"
            r"|\bAKIA[0-9A-Z]{12,}|\bAIza[\w-]{20,}|\beyJ[\w-]{8,}\.[\w-]{8,}\.[\w-]*"
        ),
        REMOVED,
    ),
    (re.compile(r"-----BEGIN [A-Z ]*PRIVATE KEY-----[\s\S]*?(?:-----END [A-Z ]*PRIVATE KEY-----|\Z)"), REMOVED),
)


def read_tail(file: Path, *, lines: int, secrets: Iterable[str] = ()) -> list[str]:
    """Returns the last complete lines without secrets; none when there is no file."""
    try:
        with file.open("rb") as log:
            length = log.seek(0, 2)
            log.seek(max(0, length - MAX_BYTES))
            text = log.read().decode("utf-8", "replace")
    except FileNotFoundError:
        return []
    if length > MAX_BYTES:
        text = text.partition("\n")[2]  # drops the first, partial line, because half a token is not recognized
    return remove_secrets(text, secrets).splitlines()[-lines:]


def remove_secrets(text: str, secrets: Iterable[str] = ()) -> str:
    """Replaces each secret by `[removed]`."""
    for secret in sorted((one for one in secrets if len(one) >= MIN_SECRET_CHARS), key=len, reverse=True):
        text = text.replace(secret, REMOVED)
    for pattern, replacement in _PATTERNS:
        text = pattern.sub(replacement, text)
    return text

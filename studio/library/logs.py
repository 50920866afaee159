"""The end of a log file as others may see it: no tokens, no passwords.

Libraries write what they like into the worker's log, addresses with passwords and headers with tokens among it, so
whatever looks like a secret goes, and every secret that the settings know, whatever it looks like.
"""

import re
from collections.abc import Iterable
from pathlib import Path

MAX_BYTES = 256_000
REMOVED = "[removed]"
MIN_SECRET_CHARS = 4  # a shorter one would take ordinary words along

_PATTERNS = (
    # user:password@ in an address; the user may be the token
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
    # The hub's, GitHub's, OpenAI's, Google's, Amazon's, webhooks', JSON web tokens
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
    """The last lines, whole and without secrets; none where there is no file."""
    try:
        with file.open("rb") as log:
            length = log.seek(0, 2)
            log.seek(max(0, length - MAX_BYTES))
            text = log.read().decode("utf-8", "replace")
    except FileNotFoundError:
        return []
    if length > MAX_BYTES:
        text = text.partition("\n")[2]  # of half a token nobody can tell that it is one
    return remove_secrets(text, secrets).splitlines()[-lines:]


def remove_secrets(text: str, secrets: Iterable[str] = ()) -> str:
    """The text with each secret replaced by `[removed]`."""
    for secret in sorted((one for one in secrets if len(one) >= MIN_SECRET_CHARS), key=len, reverse=True):
        text = text.replace(secret, REMOVED)
    for pattern, replacement in _PATTERNS:
        text = pattern.sub(replacement, text)
    return text

"""Whose token the hub is asked with: one that an admin entered in the studio, else what huggingface_hub finds itself.

That is HF_TOKEN, or the file of `hf auth login`. The studio's own lies in its data directory, for its user alone.
"""

import re
from pathlib import Path

from pipelines.errors import ModelError
from pipelines.files.whole import write_whole
from pipelines.messages import Message, say

TOKEN_FILE = "hub.token"
"""Its name in a data directory."""
MODE = 0o600
_TOKEN = re.compile(r"[\x21-\x7e]{8,200}")

_files: list[Path] = []
"""The studio's own file, once its process named it."""


def use_token_file(file: Path) -> None:
    """Makes this process ask with the token in `file`, whenever there is one."""
    _files[:] = [file]


def find_token() -> str | None:
    """Returns the studio's own token; None leaves the choice to huggingface_hub."""
    try:
        return next((token for file in _files if (token := file.read_text("utf-8").strip())), None)
    except (OSError, UnicodeDecodeError):
        return None


def find_origin() -> str:
    """Returns where the token comes from: `studio`, `environment` (or a login of this user), or "" without any."""
    from huggingface_hub import get_token

    if find_token() is not None:
        return "studio"
    return "environment" if get_token() else ""


def keep_token(file: Path, token: str) -> None:
    """Writes the token for this user alone; raises ModelError for what cannot be one."""
    token = token.strip()
    if _TOKEN.fullmatch(token) is None:
        raise ModelError(
            say("This is no token of the hub: one has 8 to 200 letters, digits and signs, without spaces."),
            advice=say("Copy it from huggingface.co/settings/tokens; a token that may read is enough."),
        )
    write_whole(file, token.encode(), mode=MODE)


def forget_token(file: Path) -> None:
    """Deletes the studio's own token."""
    file.unlink(missing_ok=True)


def advise_on_token(repo: str) -> Message:
    """Returns what to do about a repository that only some may read."""
    return say(
        "Accept it at huggingface.co/{repo}, then enter a token of the same account under System > Models, or set "
        "HF_TOKEN.",
        repo=repo,
    )

"""The secret of a cluster. Ray runs whatever is sent to it, so whoever holds the token can do anything on its machines.

It is always used, off loopback and on it: 32 random bytes in a file that only this account can read, whose path Ray
takes from the environment, where no list of processes shows it.
"""

import secrets
from pathlib import Path

from pipelines.errors import LumeshError
from pipelines.files.whole import PRIVATE, write_whole
from pipelines.messages import english

TOKEN_BYTES = 32


class TokenError(LumeshError):
    """There is no token, or others can read it."""

    title = english("The cluster's token cannot be used")


def make_token(file: Path) -> str:
    """Returns the token, which is made when the file is not there; raises TokenError as read_token does."""
    if not file.exists():
        write_token(file, secrets.token_hex(TOKEN_BYTES))
    return read_token(file)


def write_token(file: Path, token: str) -> None:
    """Keeps a token, also one that came from another machine, where only this account can read it."""
    write_whole(file, token.strip().encode(), mode=PRIVATE)


def read_token(file: Path) -> str:
    """Returns the token; raises TokenError when there is none, it is too short, or other accounts can read the file."""
    if not file.is_file():
        raise TokenError(
            english(f"There is no {file}."),
            advice=english(
                "On the studio's machine, `python app.py workers token` prints it: put it into that file, readable by "
                "this account only, or into LUMESH_RAY_TOKEN."
            ),
        )
    if file.stat().st_mode & 0o077:
        raise TokenError(
            english(f"Other accounts of this machine can read {file}."), advice=english(f"Run: chmod 600 {file}")
        )
    token = file.read_text("utf-8").strip()
    if len(token) < TOKEN_BYTES:
        raise TokenError(english(f"{file} holds no token."), advice=english("Delete it, and start the studio again."))
    return token


def give_ray(file: Path) -> dict[str, str]:
    """Returns the variables that make Ray's processes ask for the token in this file, and send it."""
    read_token(file)
    return {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN_PATH": str(file), "RAY_USAGE_STATS_ENABLED": "0"}

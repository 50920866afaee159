"""A training's result on the hub: what would stop the upload is found before anything is learnt.

Not here: models and files that come from the hub (runtime/weights).
"""

import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from huggingface_hub import HfApi, get_token
from huggingface_hub.errors import HfHubHTTPError, HFValidationError
from huggingface_hub.utils import validate_repo_id

from pipelines.errors import LumeshError, RecipeError
from pipelines.messages import Message, english
from pipelines.runtime.weights.hub_token import find_token
from pipelines.training.results.installing import CARD, OF_TRAINING

_UNKNOWN = (401, 403)


def open_hub(token: str | None) -> HfApi:
    """Returns the hub, asked with this token, or that of the data directory or of this user; raises RecipeError."""
    found = token or find_token() or get_token()
    if not found:
        raise _refuse("there is no token for the upload; give --hub_token or HF_TOKEN, or run: hf auth login")
    return HfApi(token=found)


def check_push(repo: str, hub: Any) -> str:
    """Returns the repository's whole name, with its owner.

    Raises RecipeError where an upload to it cannot work, as far as the hub tells before.
    """
    try:
        validate_repo_id(repo)
    except HFValidationError as error:
        raise RecipeError({"hub_model_id": english(str(error))}) from error
    try:
        user = hub.whoami()
    except HfHubHTTPError as error:
        if error.response is not None and error.response.status_code in _UNKNOWN:
            raise _refuse(
                "the hub does not know the token; make one that may write at hf.co/settings/tokens"
            ) from error
        raise _refuse(_tell_unreachable(error)) from error
    except Exception as error:  # whatever a network may raise
        raise _refuse(_tell_unreachable(error)) from error
    if user.get("auth", {}).get("accessToken", {}).get("role") == "read":
        raise _refuse("the token may only read; make one that may write at hf.co/settings/tokens")
    owner, slash, _ = repo.partition("/")
    owners = [user.get("name"), *(one.get("name") for one in user.get("orgs", ()))]
    if slash and owner not in owners:
        raise RecipeError(
            {"hub_model_id": english(f"{owner} is neither the token's user nor an organisation of theirs: {owners}")}
        )
    return repo if slash else f"{user.get('name')}/{repo}"


def push(files: Sequence[Path], repo: str, card: str, hub: Any) -> None:
    """Uploads the result with its model card; the files stay here, and an error says how to try again."""
    try:
        repo = hub.create_repo(repo, exist_ok=True).repo_id
        for file in files:
            if file.is_dir():
                hub.upload_folder(repo_id=repo, folder_path=file, ignore_patterns=[*OF_TRAINING])
            else:
                hub.upload_file(repo_id=repo, path_or_fileobj=file, path_in_repo=file.name)
        if not any(file.is_dir() for file in files) and not hub.file_exists(repo, CARD):
            hub.upload_file(repo_id=repo, path_or_fileobj=card.encode(), path_in_repo=CARD)
    except Exception as error:  # whatever it is, what was learnt must not be lost for it
        where = ", ".join(map(str, files))
        raise LumeshError(
            english(f"The result is at {where}, but its upload to {repo} failed: {error}"),
            advice=english(f"Try again with: {'; '.join(_write_upload(repo, file) for file in files)}"),
        ) from error


def _write_upload(repo: str, file: Path) -> str:
    left_out = "".join(f" --exclude '{one}'" for one in OF_TRAINING) if file.is_dir() else ""
    return f"hf upload {repo} {shlex.quote(str(file))}{left_out}"


def _tell_unreachable(error: Exception) -> str:
    return (
        f"the hub cannot be asked ({type(error).__name__}: {error}); mend that, or leave it out and upload the result "
        "later with: hf upload"
    )


def _refuse(text: str) -> RecipeError:
    reason: Message = english(text)
    return RecipeError({"push_to_hub": reason})

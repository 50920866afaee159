"""Presets in a dataset repository of the Hugging Face Hub: list, pull, push.

A repository holds the same documents that are shared as files, under `presets/`; pulled presets pass the same checks as
any file. The token is the visitor's own, comes with each request and is never stored; this machine's login is never
used for visitors.
"""

import hashlib
import tempfile
from collections.abc import Generator, Iterable
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from pipelines.errors import LumeshError
from pipelines.messages import join, say
from pipelines.runtime.weights.online import is_hub_reachable
from studio.library.presets.files import (
    MAX_FILE_BYTES,
    MAX_PACK_FILES,
    Found,
    Refusal,
    name_file,
    name_first,
    read_file,
    write_document,
)
from studio.library.presets.preset import Preset, PresetError

if TYPE_CHECKING:
    from huggingface_hub import HfApi

FOLDER = "presets/"
SUFFIX = ".json"
CARD = b"""---
tags:
- lumesh-presets
---

# Lumesh presets

Recipes for pictures and video, each with its thumbnail. Open Lumesh, choose Presets, then Hub, and enter this
repository's name.
"""


class HubError(LumeshError):
    """The repository cannot be read or written."""

    title = say("The Hub refused this")
    status = 502


class HubTokenError(HubError):
    """The action needs a token, and none was given."""

    title = say("A token is needed")
    status = 401


@dataclass(frozen=True, kw_only=True)
class Hub:
    """A hub as one visitor can access it; without a `token` only public repositories."""

    endpoint: str | None = None
    token: str | None = None

    def list_files(self, repo: str) -> list[str]:
        """Lists the names of the presets in a repository; raises HubError."""
        from huggingface_hub.hf_api import RepoFile

        with self._open(repo) as api:
            tree = list(api.list_repo_tree(repo, repo_type="dataset", recursive=True))
        return sorted(
            file.path.removeprefix(FOLDER)
            for file in tree
            if isinstance(file, RepoFile)
            and file.path.startswith(FOLDER)
            and file.path.endswith(SUFFIX)
            and file.size <= MAX_FILE_BYTES
        )[:MAX_PACK_FILES]

    def pull(self, repo: str, names: Iterable[str]) -> Found:
        """Downloads the named presets; raises HubError, and PresetError when none is usable."""
        known = set(self.list_files(repo))
        presets: list[Preset] = []
        refused: list[Refusal] = []
        with tempfile.TemporaryDirectory() as folder, self._open(repo) as api:
            for name in names:
                if name not in known:
                    refused.append(Refusal(name=name[:80], detail=say("It is not in this repository.")))
                    continue
                file = api.hf_hub_download(repo, FOLDER + name, repo_type="dataset", local_dir=folder)
                try:
                    presets += read_file(Path(file).read_bytes()).presets
                except PresetError as error:
                    refused.append(Refusal(name=name[:80], detail=error.detail))
        if not presets:
            raise PresetError(join((say("Nothing of {repo} can be used.", repo=repo), *name_first(refused))))
        return Found(presets=tuple(presets), refused=tuple(refused))

    def push(self, repo: str, presets: Iterable[Preset]) -> str:
        """Uploads presets to a repository of the token's account, creating it if missing; returns its address."""
        from huggingface_hub import CommitOperationAdd

        if not self.token:
            raise HubTokenError(
                say("Pushing needs a token that may write."), advice=say("Make one at huggingface.co/settings/tokens.")
            )
        documents = [(preset, write_document(preset)) for preset in presets]
        files = {f"{FOLDER}{_name(preset, content)}": content for preset, content in documents}
        with self._open(repo) as api:
            address = api.create_repo(repo, repo_type="dataset", exist_ok=True)
            if not api.file_exists(repo, "README.md", repo_type="dataset"):
                files["README.md"] = CARD
            operations = [CommitOperationAdd(path, content) for path, content in files.items()]
            api.create_commit(repo, operations, commit_message=_describe(documents), repo_type="dataset")
        return str(address)

    @contextmanager
    def _open(self, repo: str) -> "Generator[HfApi]":
        """Opens the client and turns its exceptions into errors that people can act on."""
        # Imported here because app.py sets the library's environment before its first import.
        import httpx2
        from huggingface_hub import HfApi
        from huggingface_hub.errors import GatedRepoError, HfHubHTTPError, OfflineModeIsEnabled, RepositoryNotFoundError

        if not is_hub_reachable(self.endpoint):
            raise HubError(say("The hub cannot be reached."), advice=say("Check the network, then try again."))
        try:
            yield HfApi(endpoint=self.endpoint, token=self.token or False)
        except GatedRepoError as error:
            raise HubError(
                say("{repo} is gated.", repo=repo),
                advice=say("Ask for access on its page, then give a token of that account."),
            ) from error
        except RepositoryNotFoundError as error:
            raise HubError(
                say("There is no dataset repository {repo}, or it is private.", repo=repo),
                advice=say("Check the name; a private one needs a token of an account that may read it."),
            ) from error
        except HfHubHTTPError as error:
            raise HubError(
                say("The hub answered {status} for {repo}.", status=error.response.status_code, repo=repo),
                advice=say("Check that the token is right and may do this."),
            ) from error
        except (OfflineModeIsEnabled, httpx2.HTTPError, OSError) as error:
            raise HubError(
                say("The hub cannot be reached."), advice=say("Check the network, then try again.")
            ) from error


def _name(preset: Preset, content: bytes) -> str:
    """Names a preset's file by title and content, so that pushing the same preset again changes nothing."""
    stem = name_file(preset).removesuffix(".lumesh.json")
    return f"{stem}-{hashlib.sha256(content).hexdigest()[:8]}.lumesh.json"


def _describe(documents: list[tuple[Preset, bytes]]) -> str:
    return f"{len(documents)} preset{'s' if len(documents) > 1 else ''} from Lumesh"

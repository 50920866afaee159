"""One file of a repository of the hub: its start, and the whole, at the commit that a revision is when it is asked for.

Downloaded as whole models are (hub_files.py): into the hub's cache, resumed, its SHA-256 checked.
Not here: what the file is (pipelines/models/single_files.py), where it is put (pipelines/models/model_arrivals.py).
"""

import functools
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from huggingface_hub import (
    HfApi,
    get_hf_file_metadata,
    get_session,
    hf_hub_download,
    hf_hub_url,
    try_to_load_from_cache,
)
from huggingface_hub.errors import EntryNotFoundError
from huggingface_hub.utils import build_hf_headers, hf_raise_for_status

from pipelines.errors import ModelError
from pipelines.messages import say
from pipelines.runtime.weights.hub import PATIENCE_S, Silent, telling_in_words
from pipelines.runtime.weights.hub_files import fetch_missing
from pipelines.runtime.weights.hub_token import find_token
from pipelines.runtime.weights.online import is_hub_reachable


@dataclass(frozen=True, kw_only=True)
class HubFile:
    """A file of a repository at a commit; its size is in bytes, `licence` the repository's, "" if it names none."""

    repo: str
    file: str
    commit: str
    size: int
    licence: str = ""

    @property
    def url(self) -> str:
        """Returns its page on the hub."""
        return f"https://huggingface.co/{self.repo}/blob/{self.commit}/{self.file}"


def find_file(repo: str, file: str, *, revision: str = "main") -> HubFile:
    """Asks the hub for a file; raises ModelError where it has none, is not reached, or wants a token."""
    with telling_in_words(repo, revision):
        if not is_hub_reachable(timeout_s=PATIENCE_S):
            raise ConnectionError
        info = HfApi(token=find_token()).model_info(repo, revision=revision)
        commit = str(info.sha)
        try:
            about = get_hf_file_metadata(hf_hub_url(repo, file, revision=commit), token=find_token())
        except EntryNotFoundError as error:
            names = ", ".join(sorted(one.rfilename for one in info.siblings or () if "." in one.rfilename)[:12])
            raise ModelError(
                say("{repo} has no file {file}.", repo=repo, file=file), advice=say("It has: {names}.", names=names)
            ) from error
        licence = str((info.card_data or {}).get("license") or "")
        return HubFile(repo=repo, file=file, commit=commit, size=about.size or 0, licence=licence)


def read_start(found: HubFile, count: int) -> bytes:
    """Returns the file's first `count` bytes; raises ModelError as `find_file` does."""
    url = hf_hub_url(found.repo, found.file, revision=found.commit)
    headers = build_hf_headers(token=find_token()) | {"Accept-Encoding": "identity", "Range": f"bytes=0-{count - 1}"}
    content = b""
    with (
        telling_in_words(found.repo, found.commit),
        get_session().stream("GET", url, headers=headers, timeout=PATIENCE_S, follow_redirects=True) as response,
    ):
        hf_raise_for_status(response)
        for piece in response.iter_bytes():
            content += piece
            if len(content) >= count:
                break
    return content[:count]


def is_cached(found: HubFile) -> bool:
    """Tells whether the hub's cache has the file already."""
    return isinstance(try_to_load_from_cache(found.repo, found.file, revision=found.commit), str)


def fetch(found: HubFile, *, on_bytes: Callable[[int, int], None]) -> Path:
    """Returns the file's place in the hub's cache, downloaded when need be; `on_bytes` may raise to stop.

    Raises ModelError as `find_file` does, and for bytes that are not the hub's.
    """
    with telling_in_words(found.repo, found.commit):
        download = functools.partial(
            hf_hub_download, found.repo, found.file, revision=found.commit, token=find_token(), tqdm_class=Silent
        )
        fetch_missing(found.repo, [download(dry_run=True)], on_bytes=on_bytes)
        return Path(download())


def take_out(link: Path, target: Path) -> None:
    """Moves a file out of the cache to its own place."""
    shutil.move(link.resolve(), target)
    link.unlink(missing_ok=True)

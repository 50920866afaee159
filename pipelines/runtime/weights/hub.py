"""Where a model's files are: a folder, or a pinned revision of a hub repository, downloaded once.

huggingface_hub knows which files there are and keeps its cache; what is lacking there is fetched so that a broken
download goes on where it stopped (hub_files.py). This file turns exceptions into words people can act on.
"""

import contextlib
import functools
import hashlib
import re
from collections.abc import Callable, Collection, Generator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx2
from huggingface_hub import HfApi, constants, snapshot_download, try_to_load_from_cache
from huggingface_hub.errors import (
    DryRunError,
    GatedRepoError,
    HfHubHTTPError,
    LocalEntryNotFoundError,
    OfflineModeIsEnabled,
    RepositoryNotFoundError,
    RevisionNotFoundError,
)
from huggingface_hub.file_download import DryRunFileInfo
from huggingface_hub.utils import filter_repo_objects
from tqdm.auto import tqdm

from pipelines.errors import ModelError
from pipelines.messages import say
from pipelines.models.catalog import Model
from pipelines.models.single_files import recognise_file
from pipelines.models.weight_files import SUFFIX
from pipelines.runtime.weights.hub_files import DamagedDownloadError, fetch_missing
from pipelines.runtime.weights.hub_pins import choose_revision, keep_pin
from pipelines.runtime.weights.hub_token import advise_on_token, find_token
from pipelines.runtime.weights.online import is_hub_reachable

PRINTED = ("json", "txt", "model", "jinja", "safetensors")  # endings of what a fingerprint covers
PIECES = 64
PATIENCE_S = 15.0  # for the hub's answer, where there is nothing without it
PIECE_BYTES = 2**16
_CONFIGS = ["model_index.json", "*/config.json", "*/*_config.json"]


def locate(
    model: Model,
    *,
    components: tuple[str, ...],
    on_bytes: Callable[[int, int], None],
    without_weights: Collection[str] = (),
) -> Path:
    """The model's folder in diffusers layout, downloaded when need be; `on_bytes(done, total)` may raise to stop.

    Components named in `without_weights` are downloaded without their weights.
    Raises ModelError for a gated or unknown repository, a missing token, and a network that is not there.
    """
    model = model.in_place
    if model.path is not None:
        if not (model.path / "model_index.json").exists():
            raise ModelError(
                say(
                    "{model} should be in {folder}, but there is no model_index.json.",
                    model=model.id,
                    folder=model.path,
                ),
                advice=say("Check that the folder was copied whole."),
            )
        return model.path
    revision = choose_revision(model)
    patterns = _choose_files(components, model.variant, without_weights)
    download = functools.partial(
        snapshot_download, model.repo, revision=revision, allow_patterns=patterns, tqdm_class=Silent, token=find_token()
    )

    def fetch() -> Path:
        chosen = patterns
        # Without a list of files there is nothing to fetch, and the next call says why or finds the cache whole.
        with contextlib.suppress(DryRunError):
            files = _list_files(model, components, without_weights)
            fetch_missing(model.repo, files, on_bytes=on_bytes)
            chosen = [file.filename for file in files]
        folder = Path(download(allow_patterns=chosen))
        keep_pin(model, folder)
        return folder

    with telling_in_words(model.repo, revision):
        if is_hub_reachable():
            return fetch()
        try:
            return Path(download(local_files_only=True))
        except LocalEntryNotFoundError:  # nothing to fall back on: a slow hub is worth a longer wait
            if not is_hub_reachable(timeout_s=PATIENCE_S):
                raise
            return fetch()


@dataclass(frozen=True, kw_only=True)
class Repository:
    """A repository at a `commit`: the `folder` of its configs here, the names of all its files of weights.

    `licence` is as the hub calls it, "" where its card says none.
    """

    folder: Path
    commit: str
    weights: Sequence[str]
    licence: str


def fetch_configs(repo: str, revision: str, *, works_offline: bool = False) -> Repository:
    """Downloads a repository's configs, and asks for what else is known of it.

    If it `works_offline`, what was fetched of this revision before is enough where the hub cannot be asked: its licence
    is not known then, and its weights are those that are here. Raises ModelError as `locate` does, and for a repository
    that is not in diffusers layout.
    """
    with telling_in_words(repo, revision):
        if not is_hub_reachable(timeout_s=PATIENCE_S):
            if works_offline:
                return _find_fetched(repo, revision)
            raise ConnectionError
        hub = HfApi(token=find_token())
        info = hub.model_info(repo, revision=revision)
        commit = str(info.sha)
        names = hub.list_repo_files(repo, revision=commit)
        if "model_index.json" not in names:
            raise ModelError(
                say("{repo} has no model_index.json: it is not in diffusers layout.", repo=repo),
                advice=say("Download its single file, and add that."),
            )
        # Asked for by this revision, its commit is noted with it, and is found again without the hub.
        folder = Path(
            snapshot_download(
                repo, revision=revision, allow_patterns=_CONFIGS, tqdm_class=Silent, token=find_token()
            )
        )  # fmt: skip
        return Repository(
            folder=folder,
            commit=folder.name,
            weights=[name for name in names if name.count("/") == 1 and name.endswith(".safetensors")],
            licence=_read_licence(info.card_data),
        )


def _find_fetched(repo: str, revision: str) -> Repository:
    folder = Path(snapshot_download(repo, revision=revision, allow_patterns=_CONFIGS, local_files_only=True))
    weights = [file.relative_to(folder).as_posix() for file in folder.glob("*/*.safetensors")]
    return Repository(folder=folder, commit=folder.name, weights=weights, licence="")


def _read_licence(card: Any) -> str:
    """Returns the licence that a repository's card names, by its own name where the hub knows none."""
    named = None if card is None else card.get("license")
    if named == "other":
        named = card.get("license_name") or named
    return named[:100] if isinstance(named, str) else ""


@contextlib.contextmanager
def telling_in_words(repo: str, revision: str) -> Generator[None]:
    """Turns what goes wrong with a repository into a ModelError that says so, and what to do."""
    try:
        yield
    except GatedRepoError as error:
        raise ModelError(
            say("{repo} is gated: its owner asks you to accept a licence.", repo=repo),
            advice=advise_on_token(repo),
        ) from error
    except RevisionNotFoundError as error:
        raise ModelError(
            say("{repo} has no revision {revision}.", repo=repo, revision=revision),
            advice=say("Update the revision in presets/models.toml."),
        ) from error
    except RepositoryNotFoundError as error:
        raise ModelError(
            say("The hub knows no repository {repo}, or it is private.", repo=repo),
            advice=say("Check the name; for a private one set HF_TOKEN to a token that may read it."),
        ) from error
    except (LocalEntryNotFoundError, OfflineModeIsEnabled, httpx2.TransportError, ConnectionError) as error:
        raise ModelError(
            say("{repo} is not on this machine and the hub cannot be reached.", repo=repo),
            advice=say(
                "Check the network (and HF_HUB_OFFLINE, HF_ENDPOINT), or put the diffusers folder into the data "
                "directory's models/. A broken download goes on where it stopped."
            ),
        ) from error
    except HfHubHTTPError as error:
        raise ModelError(
            say("The hub answered {status} for {repo}.", status=error.response.status_code, repo=repo),
            advice=say("401 or 403: set HF_TOKEN. 429 or 5xx: try again in a few minutes; the download goes on."),
        ) from error
    except DamagedDownloadError as error:
        raise ModelError(
            say("{file} of {repo} arrived damaged.", file=error, repo=repo),
            advice=say("It was deleted, and the rest is kept: start the download again."),
        ) from error
    except OSError as error:
        raise ModelError(
            say("{repo} could not be stored: {error}.", repo=repo, error=error),
            advice=say("Free some disk space, or set HF_HOME to a larger disk."),
        ) from error


def is_here(model: Model) -> bool:
    """Whether the model's weights are on this machine, without asking the hub; part of them may still be missing."""
    if model.file is not None:
        return model.file.exists()
    if model.path is not None:
        return (model.path / "model_index.json").exists()
    if not model.repo:
        return True  # it has no weights
    index = try_to_load_from_cache(model.repo, "model_index.json", revision=choose_revision(model))
    return isinstance(index, str) and any(Path(index).parent.glob("*/*.safetensors"))


def measure_download(model: Model, *, components: Collection[str]) -> int | None:
    """Returns the bytes of the files that `locate` would fetch; None where the hub cannot be asked or does not tell."""
    held = frozenset[str]() if model.file is None else recognise_file(model.file).likeness.components
    model = model.in_place
    if model.path is not None:
        return 0
    if not is_hub_reachable():
        return None
    try:
        files = _list_files(model, components, held)
    except (DryRunError, LocalEntryNotFoundError, HfHubHTTPError, httpx2.TransportError, OSError):
        return None
    return sum(file.file_size or 0 for file in files if file.will_download)


@dataclass(frozen=True, kw_only=True)
class Access:
    """Who may download a repository: `is_gated` where its owner asks for consent, `is_granted` where this token may."""

    is_gated: bool
    is_granted: bool


def ask_access(repo: str) -> Access | None:
    """Asks the hub who may download; None where it cannot be asked or knows no such repository."""
    if not is_hub_reachable():
        return None
    api = HfApi(token=find_token())
    try:
        is_gated = bool(api.model_info(repo).gated)
        with contextlib.suppress(GatedRepoError):
            api.auth_check(repo)
            return Access(is_gated=is_gated, is_granted=True)
    except (HfHubHTTPError, httpx2.TransportError, OSError, ValueError):
        return None
    return Access(is_gated=True, is_granted=False)


def find_cache() -> Path:
    """Returns the folder that downloads go to, or the nearest one above it that is there already."""
    folder = Path(constants.HF_HUB_CACHE)
    return next(one for one in (folder, *folder.parents) if one.is_dir())


def find_revision(folder: Path, own_files: Sequence[Path] = ()) -> str:
    """Which weights lie in a model's folder: the hub's commit, or a fingerprint of its files (`local-...`).

    With `own_files`, which hold a model's weights instead, the fingerprint is theirs, in their order. The fingerprint
    covers sizes, and pieces spread over each file: reading gigabytes would cost more than a load, and weights that were
    trained further differ everywhere.
    """
    if not own_files and folder.parent.name == "snapshots" and re.fullmatch(r"[0-9a-f]{40}", folder.name):
        return folder.name
    digest = hashlib.sha256()
    in_folder = [] if own_files else sorted(file for ending in PRINTED for file in folder.rglob(f"*.{ending}"))
    for file in own_files or in_folder:
        size = file.stat().st_size
        name = "" if own_files else file.relative_to(folder).as_posix()
        digest.update(f"{name} {size}\n".encode())
        with file.open("rb") as stream:
            for start in range(0, size, max(PIECE_BYTES, size // PIECES)):
                stream.seek(start)
                digest.update(stream.read(PIECE_BYTES))
    return f"local-{digest.hexdigest()[:16]}"


def _list_files(model: Model, components: Collection[str], without_weights: Collection[str]) -> list[DryRunFileInfo]:
    """Asks the hub which files are wanted; a component that has no weights of the model's variant comes with others."""
    lists = functools.partial(_choose_files, components, without_weights=without_weights)
    there = snapshot_download(
        model.repo,
        revision=choose_revision(model),
        allow_patterns=lists(""),
        tqdm_class=Silent,
        token=find_token(),
        dry_run=True,
    )
    wanted = [*filter_repo_objects(there, allow_patterns=lists(model.variant), key=lambda file: file.filename)]
    served = {file.filename.partition("/")[0] for file in wanted if file.filename.endswith(SUFFIX)}
    others = [
        file for file in there if file.filename.endswith(SUFFIX) and file.filename.partition("/")[0] not in served
    ]
    return [*wanted, *others]


def _choose_files(components: Collection[str], variant: str, without_weights: Collection[str] = ()) -> list[str]:
    """Patterns for the components used, in one precision only (a repository often holds several)."""
    patterns = ["model_index.json"]
    for component in components:
        patterns += [f"{component}/*.{ending}" for ending in ("json", "txt", "model", "jinja")]
        if component not in without_weights:
            patterns.append(f"{component}/*.{variant}*.safetensors" if variant else f"{component}/*.safetensors")
    return patterns


class Silent(tqdm):
    """Shows nothing: progress is told to whoever waits."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        kwargs.pop("name", None)
        kwargs["disable"] = True
        super().__init__(*args, **kwargs)

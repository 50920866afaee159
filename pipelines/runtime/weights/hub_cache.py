"""What a model's weights take on this machine's disk, in a folder or in the hub's cache, and taking them off it.

The cache is shared with other programs of this user: only the revision that the catalogue names is deleted, and what
arrived of a download that was not finished.
Not here: files and folders of one's own (pipelines/models/model_manager.py).
"""

from pathlib import Path

from huggingface_hub import constants, scan_cache_dir
from huggingface_hub.file_download import repo_folder_name

from pipelines.files.sizes import count_bytes
from pipelines.models.catalog import Model
from pipelines.runtime.weights.hub_files import SUFFIX
from pipelines.runtime.weights.hub_pins import choose_revision


def measure_disk(model: Model) -> int:
    """Returns the bytes of the model's files here; a file that several names link to counts once."""
    if model.file is not None:
        return count_bytes({file.resolve() for file in model.own_files})
    folder = model.path or _find_snapshot(model)
    if folder is None:
        return 0
    return count_bytes({file.resolve() for file in folder.rglob("*") if file.is_file()})


def measure_partial(model: Model) -> int:
    """Returns the bytes that arrived of a download which was stopped; the next one goes on with them."""
    return count_bytes(_list_partial(model))


def delete(model: Model) -> int:
    """Deletes a hub model's weights from the cache and returns their bytes; of any other model nothing."""
    if model.path is not None or model.file is not None:
        return 0
    freed = measure_disk(model) + measure_partial(model)
    snapshot = _find_snapshot(model)
    if snapshot is not None:
        cached = scan_cache_dir(constants.HF_HUB_CACHE)
        found = {revision.commit_hash for repo in cached.repos for revision in repo.revisions}
        if snapshot.name in found:
            cached.delete_revisions(snapshot.name).execute()
    for file in _list_partial(model):
        file.unlink(missing_ok=True)
    return freed


def _find_snapshot(model: Model) -> Path | None:
    """Finds the folder of the pinned revision in the hub's cache."""
    if model.path is not None or not model.repo:
        return None
    folder = _find_repo(model)
    revision = choose_revision(model)
    named = folder / "refs" / revision
    commit = named.read_text("utf-8").strip() if named.is_file() else revision
    snapshot = folder / "snapshots" / commit
    return snapshot if snapshot.is_dir() else None


def _find_repo(model: Model) -> Path:
    return Path(constants.HF_HUB_CACHE) / repo_folder_name(repo_id=model.repo, repo_type="model")


def _list_partial(model: Model) -> list[Path]:
    return [] if model.path is not None or not model.repo else [*(_find_repo(model) / "blobs").glob(f"*{SUFFIX}")]

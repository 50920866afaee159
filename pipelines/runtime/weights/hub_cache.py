"""What a model's weights take on this machine's disk, in a folder or in the hub's cache, and taking them off it.

The cache is shared with other programs of this user: only the revision that the catalogue names is deleted, and what
arrived of a download that was not finished.
"""

import shutil
from pathlib import Path

from huggingface_hub import constants, scan_cache_dir
from huggingface_hub.file_download import repo_folder_name

from pipelines.catalog import Model
from pipelines.errors import ModelError
from pipelines.messages import say
from pipelines.runtime.weights.hub_files import SUFFIX


def measure_disk(model: Model) -> int:
    """Returns the bytes of the model's files here; a file that several names link to counts once."""
    if model.file is not None:
        return sum(file.stat().st_size for file in {file.resolve() for file in model.own_files if file.exists()})
    folder = model.path or _find_snapshot(model)
    if folder is None:
        return 0
    real = {file.resolve() for file in folder.rglob("*") if file.is_file()}
    return sum(file.stat().st_size for file in real)


def measure_partial(model: Model) -> int:
    """Returns the bytes that arrived of a download which was stopped; the next one goes on with them."""
    return sum(file.stat().st_size for file in _list_partial(model))


def delete(model: Model, *, models_dir: Path) -> int:
    """Deletes the model's files and returns their bytes.

    Raises ModelError for what came with Lumesh, or lies outside of `models_dir` and the hub's cache.
    """
    if (own := model.file or model.path) is not None:
        return _delete_own(model, own, models_dir)
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


def may_delete(model: Model, *, models_dir: Path) -> bool:
    """Returns whether `delete` takes this model, and there is something of it here."""
    if (own := model.file or model.path) is not None:
        return not model.is_demo and _is_inside(own, models_dir)
    return _find_snapshot(model) is not None or bool(_list_partial(model))


def _delete_own(model: Model, path: Path, models_dir: Path) -> int:
    if not may_delete(model, models_dir=models_dir):
        raise ModelError(
            say("{model} lies in {folder}, which is not the studio's to delete.", model=model.id, folder=path),
            advice=say("Delete it by hand, or take its entry out of models.toml."),
        )
    freed = measure_disk(model)
    if path.is_symlink() or path.is_file():
        path.unlink()  # what a link leads to is somebody else's
    else:
        shutil.rmtree(path)
    for folder in path.absolute().parents:  # of an author, who has no other model
        if folder == models_dir.absolute() or any(folder.iterdir()):
            break
        folder.rmdir()
    return freed


def _is_inside(path: Path, folder: Path) -> bool:
    """Returns whether a path is below the folder, by its name: a link there may be deleted, wherever it leads."""
    return folder.absolute() in path.absolute().parents


def _find_snapshot(model: Model) -> Path | None:
    """Finds the folder of the pinned revision in the hub's cache."""
    if model.path is not None or not model.repo:
        return None
    folder = _find_repo(model)
    named = folder / "refs" / model.revision
    commit = named.read_text("utf-8").strip() if named.is_file() else model.revision
    snapshot = folder / "snapshots" / commit
    return snapshot if snapshot.is_dir() else None


def _find_repo(model: Model) -> Path:
    return Path(constants.HF_HUB_CACHE) / repo_folder_name(repo_id=model.repo, repo_type="model")


def _list_partial(model: Model) -> list[Path]:
    return [] if model.path is not None or not model.repo else [*(_find_repo(model) / "blobs").glob(f"*{SUFFIX}")]

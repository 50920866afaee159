"""A data directory's own models: added, downloaded and removed, by the command line, REST and the page alike.

What is added is recognised before anything is copied or written, and refused with the reason if no code here runs it.
Importable without jax and torch.
Not here: what a find is (own_models.py, single_files.py), downloading weights (runtime/weights/hub.py).
"""

import os
import re
import shutil
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from pipelines.errors import ModelError
from pipelines.files.whole import PART, put_whole
from pipelines.messages import say
from pipelines.models.adopting import adopt_folder
from pipelines.models.catalog import OWN_FILE, Catalog, load_catalog, read_data_dir
from pipelines.models.fingerprints import list_components
from pipelines.models.gguf_files import is_gguf
from pipelines.models.model import Model
from pipelines.models.moved import find_repository
from pipelines.models.own_entries import append_entry, drop_entry
from pipelines.models.own_models import MAX_DEPTH, OwnModel, UnusableModel, make_id, read_own_model
from pipelines.models.single_files import recognise_file
from pipelines.models.weight_files import GGUF, SUFFIX
from pipelines.web.web_files import OnBytes, check_room

if TYPE_CHECKING:
    from pipelines.runtime.weights.hub import Repository

COPY_BYTES = 2**24
_NOISE = re.compile(r"(high|low)(?:[-_ ]?noise)?(?![a-z])[-_ ]?", re.IGNORECASE)  # in the names of two experts
_SWAPPED = {"high": "low", "low": "high"}
_REPO = re.compile(r"[\w.-]+/[\w.-]+")
_VARIANT = re.compile(rf"\.(\w+)(?:-\d+-of-\d+)?{re.escape(SUFFIX)}$")


def add_file(
    data_dir: Path,
    file: Path,
    *,
    name: str = "",
    links: bool = False,
    moves: bool = False,
    on_bytes: OnBytes | None = None,
) -> str:
    """Copies a single-file checkpoint into models/, links or moves it; returns the id of the model that it is.

    One of two experts is kept until the other one comes, "" until then: their names differ in `high` and `low`, and
    both together become an entry of models.toml. Raises ModelError if it is none of ours, and then leaves nothing
    behind.
    """
    recognise_file(file)
    check_name(name or file.stem)
    ending = GGUF if is_gguf(file) else SUFFIX
    target = data_dir / "models" / f"{name or file.stem}{ending}"
    refuse_taken(read_data_dir(data_dir), make_id(name or file.stem), target)
    target.parent.mkdir(parents=True, exist_ok=True)
    if links:
        target.symlink_to(file.resolve())
    elif moves:
        file.replace(target)
    else:
        _copy(file, target, on_bytes or (lambda _done, _total: None))
    if recognise_file(target).likeness.is_expert:
        return _pair_experts(data_dir, target)
    return _check_added(data_dir, make_id(name or file.stem), target)


def add_folder(data_dir: Path, folder: Path, *, name: str = "", links: bool = False) -> str:
    """Copies a folder in diffusers layout into models/, or links it; returns the id of the model that it is.

    Raises ModelError if it is none of ours or not whole, and then leaves nothing behind.
    """
    check_name(name or folder.name)
    found = read_own_model(folder, name or folder.name)
    problems = [found] if isinstance(found, UnusableModel) else [*found.lacking.values()]
    if problems:
        raise ModelError(problems[0].reason, advice=problems[0].advice)
    target = data_dir / "models" / (name or folder.name)
    refuse_taken(read_data_dir(data_dir), found.id, target)
    target.parent.mkdir(parents=True, exist_ok=True)
    if links:
        target.symlink_to(folder.resolve(), target_is_directory=True)
    else:
        part = target.with_name(f".{target.name}{PART}")
        shutil.rmtree(part, ignore_errors=True)
        try:
            shutil.copytree(folder, part)
            part.rename(target)
        except BaseException:
            shutil.rmtree(part, ignore_errors=True)
            raise
    return _check_added(data_dir, found.id, target)


def add_repository(data_dir: Path, repo: str, *, revision: str = "main", name: str = "", variant: str = "") -> str:
    """Adds an entry for a hub repository to models.toml, at the commit that `revision` is now; returns the model's id.

    Only its configs are downloaded; weights follow with the first job. Raises ModelError for a repository that is not
    there, gated, or none of ours.
    """
    repo = find_repository(repo)
    found, there = _look_at_repository(repo, revision)
    catalog = read_data_dir(data_dir)
    model_id = make_id(name or repo.rpartition("/")[2])
    refuse_taken(catalog, model_id, data_dir / OWN_FILE)
    known = next((model for model in catalog.models if model.repo == repo and model.revision == there.commit), None)
    if known is not None:
        raise ModelError(
            say("{repo} is there already: {model}.", repo=repo, model=known.id), advice=say("Use that model.")
        )
    if variant and variant not in (variants := _list_variants(there.weights)):
        advice = say("It has only plain ones: leave the variant out.")
        if variants:
            advice = say("It has {variants}: name one of them, or none.", variants=", ".join(variants))
        raise ModelError(
            say("{repo} has no weights of the variant {variant}.", repo=repo, variant=variant[:40]), advice=advice
        )
    said = {"variant": variant or _choose_variant(there.weights), "licence": there.licence}
    fields = {"id": model_id, "like": found.likeness.model_id, "repo": repo, "revision": there.commit}
    append_entry(data_dir / OWN_FILE, fields | {name: value for name, value in said.items() if value})
    return _check_added(data_dir, model_id, None)


def is_repository(text: str) -> bool:
    """Tells whether a text has the form of a hub repository's name."""
    return _REPO.fullmatch(text) is not None


def open_repository(repo: str, *, revision: str = "main", loras_dir: Path | None = None) -> Model:
    """Returns the model of a hub repository at the commit that `revision` is now, which is written nowhere.

    Only its configs are downloaded; without the hub it is what was fetched of that revision before. Raises ModelError
    as `add_repository` does.
    """
    found, there = _look_at_repository(repo, revision, works_offline=True)
    return replace(
        adopt_folder(found, load_catalog().models),
        path=None,
        repo=repo,
        revision=there.commit,
        variant=_choose_variant(there.weights),
        licence=there.licence,
        loras_dir=loras_dir,
    )


def _look_at_repository(repo: str, revision: str, *, works_offline: bool = False) -> tuple[OwnModel, "Repository"]:
    """Returns what a repository's configs are, and what else is known of it."""
    from pipelines.runtime.weights.hub import fetch_configs  # imports the hub's library, which the page sets up first

    if not is_repository(repo):
        raise ModelError(
            say("{repo} is no repository.", repo=repr(repo)), advice=say("Write it as owner/name, as on the hub.")
        )
    there = fetch_configs(repo, revision, works_offline=works_offline)
    found = read_own_model(there.folder, repo)
    if isinstance(found, UnusableModel):
        raise ModelError(found.reason, advice=found.advice)
    return found, there


def download_model(model: Model, *, on_bytes: OnBytes) -> None:
    """Downloads what the model's family reads of its repository; what was stopped or broke off goes on.

    Raises ModelError where the hub refuses or cannot be reached, and before the first byte where the disk has no room.
    """
    from pipelines.runtime.weights import hub  # imports the hub's library, which the page sets up first

    components = tuple(list_components(model))
    needed = hub.measure_download(model, components=components)
    if needed is not None:
        check_room(hub.find_cache(), needed, advice=say("Make room, or set HF_HOME to a larger disk."))
    hub.locate(model, components=components, on_bytes=on_bytes)


def is_own(model: Model) -> bool:
    """Returns whether a model was added here, so that it can be removed: it does not come with Lumesh."""
    return all(model.id != shipped.id for shipped in load_catalog().models)


def remove_model(data_dir: Path, model_id: str) -> list[str]:
    """Removes a model's entry from models.toml, and its file or folder from models/; returns what was removed.

    Of a link only the link goes, and what lies elsewhere stays. Raises ModelError for a model that comes with Lumesh.
    """
    catalog = read_data_dir(data_dir)
    model = next((one for one in catalog.models if one.id == model_id), None)
    model = model or next((one.model for one in catalog.partial if one.model.id == model_id), None)
    removed: list[str] = []
    if drop_entry(data_dir / OWN_FILE, model_id):
        removed.append(f"{data_dir / OWN_FILE}: {model_id}")
    places = [] if model is None else [one for one in (model.file, model.file_2) if one is not None]
    if model is not None and not places and model.path is not None:  # a demo's is not inside
        places = [model.path]
    unusable = next((one for one in catalog.unusable if model_id in (one.id, one.name)), None)
    if not places and unusable is not None:
        places = [place for ending in ("", SUFFIX, GGUF)
                  if os.path.lexists(place := data_dir / "models" / f"{unusable.name}{ending}")]  # fmt: skip
    for place in places:
        if not _is_inside(place, data_dir / "models"):
            continue
        if place.is_symlink() or place.is_file():
            place.unlink()
        elif place.is_dir():
            shutil.rmtree(place)
        removed.append(str(place))
        _prune(place.parent, data_dir / "models")
    if removed:
        return removed
    if model is None:
        catalog.get(model_id)  # raises, and names the known ones
    raise ModelError(
        say("{model} comes with Lumesh and cannot be removed.", model=model_id),
        advice=say("Its downloaded weights lie in the hub's cache: `hf cache rm` frees them."),
    )


def check_name(name: str) -> None:
    """Raises ModelError for a name that leads out of models/, is hidden, or leaves no id."""
    parts = name.split("/")
    if not make_id(name) or len(parts) >= MAX_DEPTH or any(not part or part.startswith((".", "__")) for part in parts):
        raise ModelError(
            say("{name} cannot be a model's name.", name=repr(name)),
            advice=say("Write letters, digits, dots and hyphens; author/name makes a folder."),
        )


def refuse_taken(catalog: Catalog, model_id: str, target: Path) -> None:
    """Raises ModelError if there is a model of this id, or something where its file or folder would be."""
    taken = {one.id for one in catalog.models} | {one.model.id for one in catalog.partial}
    if model_id in taken or (target.suffix != ".toml" and os.path.lexists(target)):
        raise ModelError(
            say("Another model is called {id} already.", id=model_id), advice=say("Give it another name with --name.")
        )


def _check_added(data_dir: Path, model_id: str, target: Path | None) -> str:
    """Returns the id if the catalogue has the model now; else takes what was added away and raises the reason."""
    try:
        read_data_dir(data_dir).get(model_id)
    except ModelError:
        if target is None:
            drop_entry(data_dir / OWN_FILE, model_id)
        elif target.is_symlink() or target.is_file():
            target.unlink()
        else:
            shutil.rmtree(target)
        raise
    return model_id


def _copy(file: Path, target: Path, on_bytes: OnBytes) -> None:
    total, done = file.stat().st_size, 0
    free = shutil.disk_usage(target.parent).free
    if total > free:
        raise ModelError(
            say("It has {size} GB, and {free} GB are free.", size=f"{total / 1e9:.1f}", free=f"{free / 1e9:.1f}"),
            advice=say("Free some disk space, or link it (--link) where it lies."),
        )

    def write(part: Path) -> None:
        nonlocal done
        with file.open("rb") as source, part.open("ab") as sink:
            while piece := source.read(COPY_BYTES):
                sink.write(piece)
                done += len(piece)
                on_bytes(done, total)

    put_whole(target, write)


def _pair_experts(data_dir: Path, file: Path) -> str:
    """Writes an entry for two experts in models/, whichever came last; returns its id, "" while the other is not here.

    Raises ModelError if they do not belong together, and takes the last one away.
    """
    found = _NOISE.search(file.stem)
    if found is None:
        return ""
    is_high = found[1].lower() == "high"
    other = _SWAPPED["high" if is_high else "low"]
    word = other.upper() if found[1].isupper() else other.title() if found[1].istitle() else other
    stem = file.stem[: found.start(1)] + word + file.stem[found.end(1) :]
    partner = next((place for ending in (SUFFIX, GGUF) if (place := file.with_name(stem + ending)).is_file()), None)
    if partner is None:
        return ""
    high, low = (file, partner) if is_high else (partner, file)
    models = data_dir / "models"
    name = file.relative_to(models).with_name(_NOISE.sub("", file.stem))
    model_id = make_id(name.as_posix())
    refuse_taken(read_data_dir(data_dir), model_id, data_dir / OWN_FILE)
    places = {"file": high.relative_to(models).as_posix(), "file_2": low.relative_to(models).as_posix()}
    append_entry(data_dir / OWN_FILE, {"id": model_id, **places})
    written = f"{OWN_FILE}/{model_id}"
    problem = next((one for one in read_data_dir(data_dir).unusable if one.name == written), None)
    if problem is not None:
        drop_entry(data_dir / OWN_FILE, model_id)
        file.unlink()
        raise ModelError(problem.reason, advice=problem.advice)
    return model_id


def _list_variants(weights: Sequence[str]) -> list[str]:
    """Lists the variants in the names of a repository's weights, without the plain ones."""
    return sorted({match[1] for name in weights if (match := _VARIANT.search(name)) is not None})


def _choose_variant(weights: Sequence[str]) -> str:
    """Returns fp16 if each component has such weights besides others, "" for the plain ones."""
    folders = {name.rpartition("/")[0] for name in weights}
    halves = {name.rpartition("/")[0] for name in weights if _list_variants([name]) == ["fp16"]}
    return "fp16" if halves and halves == folders else ""


def _prune(folder: Path, top: Path) -> None:
    """Removes folders that have become empty, up to the one at the top."""
    while folder != top and _is_inside(folder, top) and not any(folder.iterdir()):
        folder.rmdir()
        folder = folder.parent


def _is_inside(place: Path, folder: Path) -> bool:
    return place.parent.resolve().is_relative_to(folder.resolve()) and place != folder

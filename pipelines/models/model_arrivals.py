"""Models and LoRAs that come from the web: a URL, or a single file inside a repository of the hub.

What it is is told from the file's first bytes, so that a wrong one is refused before gigabytes of it have come. A file
of the hub is taken at the commit that its revision is, and where it came from is noted in models.toml.
Not here: how files are downloaded (web_files.py, runtime/weights/hub_single.py), how models are added
(model_manager.py).
"""

import contextlib
import re
import shutil
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from urllib.parse import parse_qs, unquote, urlsplit

from pipelines.errors import ModelError
from pipelines.loras.files import find_lora_file, inspect_lora
from pipelines.loras.settings import ADAPTER_CONFIG, ADAPTER_MODEL
from pipelines.messages import say
from pipelines.models.catalog import OWN_FILE, load_catalog, read_data_dir
from pipelines.models.gguf_files import MAGIC
from pipelines.models.model_manager import add_file, check_name, refuse_taken
from pipelines.models.own_entries import append_entry
from pipelines.models.own_models import make_id
from pipelines.models.single_files import recognise_file
from pipelines.models.weight_files import GGUF, MAX_HEADER_BYTES, SUFFIX, SUFFIXES, read_header
from pipelines.web.public_addresses import find_url_problem
from pipelines.web.web_files import OnBytes, Web, check_room, hide_secrets

CIVITAI = "civitai.com"
_FIRST_BYTES = 2**20
_GGUF_BYTES = (2**20, 2**24, 2**26)  # a header's length is not in it
_REPO = re.compile(r"[\w.-]+/[\w.-]+")
_OF_HUB = re.compile(r"/([\w.-]+/[\w.-]+)/(?:resolve|blob|raw)/([^/]+)/(.+)")
_HUBS = ("huggingface.co", "www.huggingface.co", "hf.co")
_WRITTEN = say("Write its address (https://...), or owner/name of the hub and the file's name in it.")


@dataclass(frozen=True, kw_only=True)
class Source:
    """Where a file is: a `url`, or a `file` of the hub's `repo` at a `revision`."""

    url: str = ""
    repo: str = ""
    file: str = ""
    revision: str = "main"

    @property
    def told(self) -> str:
        """Returns it for people and for logs, without passwords."""
        return hide_secrets(self.url) if self.url else f"{self.repo}/{self.file}"


def is_url(text: str) -> bool:
    """Tells a URL from a path and from a repository's name."""
    return "://" in text


def read_source(text: str, *, file: str = "", revision: str = "main", allows_private: bool = True) -> Source:
    """Reads what somebody typed: a URL, one of the hub among them, or a repository whose `file` is meant.

    Raises ModelError for anything else, and for addresses that are not asked from here.
    """
    text = text.strip()
    if not is_url(text):
        file = file.strip().strip("/")
        if not _REPO.fullmatch(text) or not file or ".." in file.split("/"):
            raise ModelError(say("{place} is no file of the web.", place=repr(text)), advice=_WRITTEN)
        return Source(repo=text, file=file, revision=revision or "main")
    parts = urlsplit(text)
    host = (parts.hostname or "").lower()
    if host in _HUBS:
        match = _OF_HUB.fullmatch(unquote(parts.path))
        if match is None:
            raise ModelError(
                say("{url} is no file of the hub.", url=hide_secrets(text)),
                advice=say("Open the file on the hub, under Files, and copy that address; a whole repository is "
                           "added as owner/name."),
            )  # fmt: skip
        return Source(repo=match[1], revision=match[2], file=match[3])
    if problem := find_url_problem(text, allows_private=allows_private):
        raise ModelError(say("{url} {problem}.", url=hide_secrets(text), problem=problem), advice=_WRITTEN)
    if host.removeprefix("www.") == CIVITAI and parts.path.startswith("/models/"):
        version = parse_qs(parts.query).get("modelVersionId", [""])[0]
        if not version.isdigit():
            raise ModelError(
                say("{url} is a page with several versions.", url=hide_secrets(text)),
                advice=say("Copy the address of its download button, or of the page once a version is chosen."),
            )
        return Source(url=f"https://{CIVITAI}/api/download/models/{version}")
    return Source(url=text)


def bring_model(data_dir: Path, source: Source, *, name: str = "", web: Web, on_bytes: OnBytes) -> str:
    """Downloads a checkpoint in one file into models/; returns the id of the model that it is, "" for half of one.

    What has arrived of a download that breaks off is kept, and asked for again no more. Raises ModelError for what is
    none of ours, before it is downloaded.
    """
    models = data_dir / "models"
    models.mkdir(parents=True, exist_ok=True)
    if source.url:
        start = web.read_start(source.url, _FIRST_BYTES)

        def read_start(count: int) -> bytes:
            return start.content if count <= len(start.content) else web.read_start(source.url, count).content

        called = _choose_name(name, start.name)
        _check_start(models, called, start.size, read_start, data_dir)
        part = web.download(source.url, start, models, on_bytes=on_bytes)
        try:
            recognise_file(part)
        except ModelError:  # its end is missing: what has come is worth nothing
            part.unlink(missing_ok=True)
            raise
        model_id = add_file(data_dir, part, name=called, moves=True)
        _note_source(data_dir, model_id, hide_secrets(source.url))
        return model_id
    from pipelines.runtime.weights import hub, hub_single  # import the hub's library, which the page sets up first

    found = hub_single.find_file(source.repo, source.file, revision=source.revision)
    called = _choose_name(name, PurePosixPath(source.file).name)
    _check_start(models, called, found.size, lambda count: hub_single.read_start(found, count), data_dir)
    was_here = hub_single.is_cached(found)
    check_room(hub.find_cache(), 0 if was_here else found.size)
    link = hub_single.fetch(found, on_bytes=on_bytes)
    if was_here:  # other programs' too: it stays there
        model_id = add_file(data_dir, link, name=called, links=True)
    else:
        taken = models / f".{found.commit[:12]}-{make_id(called)}.download"
        hub_single.take_out(link, taken)
        model_id = add_file(data_dir, taken, name=called, moves=True)
    _note_source(data_dir, model_id, found.url, licence=found.licence)
    return model_id


def bring_lora(loras_dir: Path, source: Source, *, ref: str = "", on_bytes: OnBytes) -> str:
    """Downloads a LoRA of the hub into the loras folder; returns the name that recipes call it by: `ref`, or its own.

    What peft has saved comes with its description as a folder, by default called as its folder or repository is.
    Raises ModelError for a file that is none, before it is downloaded, and for one that is there already.
    """
    from pipelines.runtime.weights import hub, hub_single  # import the hub's library, which the page sets up first

    if source.url:
        raise ModelError(say("{place} is no file of the hub.", place=source.told), advice=_WRITTEN)
    place = PurePosixPath(source.file)
    is_of_peft = place.name == ADAPTER_MODEL
    own_name = (place.parent.name or source.repo.rpartition("/")[2]) if is_of_peft else place.name
    ref = (ref or own_name).removesuffix(SUFFIX)
    target = loras_dir / ref / ADAPTER_MODEL if is_of_peft else loras_dir / f"{ref}{SUFFIX}"
    if any(not part or part.startswith(".") for part in ref.split("/")):
        raise ModelError(
            say("{name} cannot be a LoRA's name.", name=repr(ref)), advice=say("Write letters, digits and hyphens.")
        )
    if find_lora_file(ref, loras_dir) is not None:
        raise ModelError(say("There is a LoRA {name} already.", name=ref), advice=say("Delete it first."))
    loras_dir.mkdir(parents=True, exist_ok=True)
    found = hub_single.find_file(source.repo, source.file, revision=source.revision)
    with tempfile.TemporaryDirectory(dir=loras_dir, prefix=".start-") as folder:
        file = Path(folder) / target.name
        first = hub_single.read_start(found, _FIRST_BYTES)
        count = _measure_start(first, found.size)
        content = first if count <= len(first) else hub_single.read_start(found, count)
        _write_start(file, content, found.size)
        if (problem := inspect_lora(file).problem) is not None:
            raise ModelError(
                say("{file} cannot be used as a LoRA: {problem}.", file=source.told, problem=problem),
                advice=say("Check the file's name in the repository."),
            )
    was_here = hub_single.is_cached(found)
    check_room(hub.find_cache(), 0 if was_here else found.size)
    link = hub_single.fetch(found, on_bytes=on_bytes)
    target.parent.mkdir(parents=True, exist_ok=True)
    if is_of_peft:
        with contextlib.suppress(ModelError):  # without one the LoRA says so where it is used
            config = hub_single.find_file(source.repo, str(place.with_name(ADAPTER_CONFIG)), revision=source.revision)
            shutil.copyfile(hub_single.fetch(config, on_bytes=_count_nothing), target.with_name(ADAPTER_CONFIG))
    if was_here:
        target.symlink_to(link.resolve())
    else:
        hub_single.take_out(link, target)
    return ref


def _count_nothing(_done: int, _total: int) -> None:
    """A small file's bytes are not worth a line."""


def _choose_name(name: str, file: str) -> str:
    """Returns what the model will be called: as somebody wishes, else as its file."""
    name = name.strip() or file
    ending = next((one for one in SUFFIXES if name.lower().endswith(one)), "")
    name = name[: len(name) - len(ending)]
    check_name(name)
    return name


def _check_start(models: Path, name: str, size: int, read_start: Callable[[int], bytes], data_dir: Path) -> None:
    """Raises ModelError unless a file that begins like this becomes a model: its start is tried as a whole file."""
    refuse_taken(read_data_dir(data_dir), make_id(name), models / f"{name}{SUFFIX}")
    with tempfile.TemporaryDirectory(dir=models, prefix=".start-") as folder:
        first = read_start(_FIRST_BYTES)
        is_quantised = first.startswith(MAGIC)
        lengths = _GGUF_BYTES if is_quantised else (_measure_start(first, size),)
        file = Path(folder) / f"{PurePosixPath(name).name}{GGUF if is_quantised else SUFFIX}"
        for count in lengths:
            content = first if count <= len(first) else read_start(count)
            _write_start(file, content, size)
            try:
                read_header(file)
            except ModelError:
                if count == lengths[-1] or count >= size:
                    raise ModelError(
                        say("It is neither a safetensors nor a GGUF file, or its header is damaged."),
                        advice=say("Check the address: it must be that of the file itself."),
                    ) from None
            else:
                break
        if recognise_file(file).likeness.is_expert:  # it waits for the other one
            return
        for problem in load_catalog(Path(folder)).unusable:
            raise ModelError(problem.reason, advice=problem.advice)


def _measure_start(first: bytes, size: int) -> int:
    """Returns how many bytes of a safetensors file its header takes, as its first eight say."""
    return min(8 + int.from_bytes(first[:8], "little"), size, MAX_HEADER_BYTES)


def _write_start(file: Path, content: bytes, size: int) -> None:
    """Writes a file's start, and a hole as long as the rest: nothing of it is read."""
    with file.open("wb") as stream:
        stream.write(content)
        stream.truncate(size)


def _note_source(data_dir: Path, model_id: str, source: str, *, licence: str = "") -> None:
    """Adds to models.toml where a file came from, and the licence that its repository names."""
    if not model_id:  # one of two experts: there is no model yet
        return
    known = read_data_dir(data_dir).get(model_id)
    fields = {"id": model_id, "source": source}
    append_entry(data_dir / OWN_FILE, fields | ({"licence": licence} if licence and not known.licence else {}))

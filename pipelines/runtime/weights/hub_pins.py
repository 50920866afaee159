"""At which commit a repository is used for which the catalogue names none: that of its first download here.

So the same recipe means the same weights next year, also where nobody could look a commit up. What was found is kept in
the data directory; whoever deletes a line of that file takes the repository as it then is.
Needs neither jax nor torch.
"""

import json
import logging
import re
from pathlib import Path

from pipelines.files.locked import hold_file
from pipelines.files.whole import write_whole
from pipelines.models.catalog import Model

PINS_FILE = "pins.json"
"""Its name in a data directory: repositories -> commits."""
NEWEST = "main"
_COMMIT = re.compile(r"[0-9a-f]{40}")

_files: list[Path] = []
"""The file, once its process named it."""

log = logging.getLogger(__name__)


def use_pins_file(file: Path) -> None:
    """Makes this process keep what it finds in `file`."""
    _files[:] = [file]


def choose_revision(model: Model) -> str:
    """Returns the model's own revision, or the commit of its first download, or the newest."""
    return model.revision or _read().get(model.repo, NEWEST)


def keep_pin(model: Model, folder: Path) -> None:
    """Notes the commit of a model's downloaded `folder`, if the catalogue names none."""
    if model.revision or model.repo in _read() or not _COMMIT.fullmatch(folder.name):
        return
    log.info("%s is used at %s from now on", model.repo, folder.name)
    for file in _files:
        with hold_file(file):
            pins = {model.repo: folder.name} | _read()  # whoever was first
            write_whole(file, (json.dumps(pins, indent=1) + "\n").encode())


def _read() -> dict[str, str]:
    pins: dict[str, str] = {}
    for file in _files:
        try:
            found = json.loads(file.read_text("utf-8"))
            pins = {str(repo): commit for repo, commit in found.items() if _COMMIT.fullmatch(commit)}
        except FileNotFoundError:
            continue
        except (OSError, ValueError, AttributeError, TypeError) as error:
            log.warning("%s is not read: %s", file, error)
    return pins

"""Where the studio's own cluster is: its head outlives the dispatcher and the app, which find it again by this file.

Ray is not imported here: the app ends a head that has no dispatcher left to do it.
"""

import json
import secrets
from dataclasses import asdict, dataclass

from pipelines.files.whole import write_whole
from studio.cluster.groups import end_group, is_alive
from studio.settings import Settings

END_S = 3.0


@dataclass(frozen=True, kw_only=True)
class HeadProcess:
    """The leader of the head's processes, and the address that machines join."""

    pid: int
    address: str


def read_studio(settings: Settings) -> str:
    """Returns the id by which this studio's workers are told from those of others on the same cluster."""
    file = settings.ray_studio_file
    if not file.is_file():
        write_whole(file, secrets.token_hex(6).encode())
    return file.read_text("utf-8")


def read(settings: Settings) -> HeadProcess | None:
    """Returns the head that runs; None when there is none."""
    try:
        head = HeadProcess(**json.loads(settings.ray_head_file.read_text("utf-8")))
    except (OSError, ValueError, TypeError):
        return None
    return head if is_alive(head.pid) else None


def write(settings: Settings, head: HeadProcess) -> None:
    write_whole(settings.ray_head_file, json.dumps(asdict(head)).encode())


def end(settings: Settings) -> None:
    """Ends the head and with it the cluster; machines that joined keep trying to join again."""
    head = read(settings)
    if head is not None:
        end_group(head.pid, within_s=END_S)
    settings.ray_head_file.unlink(missing_ok=True)

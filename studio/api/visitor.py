"""The route parameter that identifies the visitor (`Visitor`), and the dependency of routes only for operators."""

from typing import Annotated, Any

from fastapi import Depends, Request

from pipelines.messages import Message, say
from studio.access.people import PERSON
from studio.access_settings import Mode
from studio.visit import NotAllowedError, Visit


def is_still_here(request: Request, visit: Visit) -> bool:
    """Tells whether the request would be accepted again now: a stream ends when its reader logs out or is removed."""
    person = visit.studio.door.identify(request.headers, request.client.host if request.client else None)
    return person is not None and person.owner == visit.owner


def _open_visit(request: Request) -> Visit:
    return Visit(person=request.scope[PERSON], studio=request.app.state.studio)


Visitor = Annotated[Visit, Depends(_open_visit)]
"""The type of a route parameter that identifies the visitor."""


def only_operators(refusal: Message) -> Any:
    """Returns the dependency of a route that only operators may use; others get the error `refusal`."""

    def admit(visit: Visitor) -> Visit:
        """Returns the visit of an operator; raises NotAllowedError for anybody else."""
        require_operator(visit, refusal)
        return visit

    return Depends(admit)


def require_operator(visit: Visit, refusal: Message) -> None:
    """Raises NotAllowedError unless the visitor is an operator."""
    if not visit.is_operator:
        has_admins = visit.studio.settings.access.mode is not Mode.OPEN
        names_them = say("`--admins` or `app.py users add --admin` names them.")
        raise NotAllowedError(refusal, advice=say("Ask an admin of this studio.") if has_admins else names_them)

"""One's own account over REST: the password, and the personal tokens of scripts. Only a studio with passwords has any.

Whoever changes the password or makes a token says the current password, however they came in: a session or a token in
foreign hands must not become a lasting one.
Not here: other people's accounts (users.py), who is identified as whom (access/identify.py).
"""

from typing import Annotated, Any

from fastapi import APIRouter, Depends, Request, Response
from pydantic import BaseModel, ConfigDict, Field

from pipelines.messages import say
from studio.access.cookies import choose_flags
from studio.access.passwords import MAX_CHARS
from studio.access.sessions import COOKIE, SESSION_S
from studio.access.users import MAX_TOKEN_NAME_CHARS, UserChangeError, require_good
from studio.access_settings import Mode
from studio.api.answers import accounts as accounts_answers
from studio.api.visitor import Visitor
from studio.library.presets.preset import clean_line
from studio.visit import NotAllowedError, Visit

router = APIRouter(tags=["accounts"])

Password = Annotated[str, Field(max_length=MAX_CHARS)]


class NewPassword(BaseModel):
    """The password until now, and the one from now on."""

    model_config = ConfigDict(extra="forbid")

    current: Password
    password: Password


class NewToken(BaseModel):
    """What the token is for, and your current password."""

    model_config = ConfigDict(extra="forbid")

    name: Annotated[str, Field(max_length=MAX_TOKEN_NAME_CHARS)] = ""
    current: Password


def require_passwords(visit: Visitor) -> Visit:
    """Returns the visit to a studio that keeps accounts; raises NotAllowedError elsewhere."""
    if visit.studio.settings.access.mode is not Mode.PASSWORD:
        raise NotAllowedError(
            say("This studio keeps no accounts of its own."),
            advice=say("Who may come in is decided elsewhere, or nobody is asked."),
        )
    return visit


AccountVisitor = Annotated[Visit, Depends(require_passwords)]


@router.get("/account", response_model=accounts_answers.Account)
def get_account(visit: AccountVisitor) -> dict[str, Any]:
    """Returns your account: its tokens, the oldest first, without what is secret of them."""
    user = visit.studio.door.users.require(visit.owner)
    return {
        "name": visit.owner,
        "is_admin": visit.person.is_admin,
        "has_password": user.password is not None,
        "tokens": [{"id": token.id, "name": token.name, "created_at": token.created_at} for token in user.tokens],
    }


@router.put("/account/password", response_model=accounts_answers.Changed)
async def change_password(
    new: NewPassword, visit: AccountVisitor, request: Request, response: Response
) -> dict[str, str]:
    """Changes your password. It ends all your sessions and tokens; the session that asks goes on with a new cookie."""
    door = visit.studio.door

    def change() -> str:
        _require_current(visit, new.current)
        require_good(new.password, visit.owner)
        door.users.set_password(visit.owner, new.password)
        visit.note("account.password", name=visit.owner)
        return door.sessions.open(owner=visit.owner, name=visit.owner, stamp=door.users.require(visit.owner).stamp)

    session = await door.passwords.run(change)
    if visit.person.can_log_out:
        flags = choose_flags(visit.studio.settings.access, request)
        response.set_cookie(COOKIE, session, max_age=int(SESSION_S), **flags)
    return {"name": visit.owner}


@router.post("/account/tokens", status_code=201, response_model=accounts_answers.NewToken)
async def make_token(new: NewToken, visit: AccountVisitor) -> dict[str, str]:
    """Makes a personal token for scripts: `Authorization: Bearer lumesh_...`. It is answered only this once."""

    def make() -> str:
        _require_current(visit, new.current)
        return visit.studio.door.users.add_token(visit.owner, called=clean_line(new.name))

    token = await visit.studio.door.passwords.run(make)
    visit.note("account.token", name=visit.owner)
    return {"token": token}


@router.delete("/account/tokens/{token_id}", status_code=204)
def revoke_token(token_id: str, visit: AccountVisitor) -> Response:
    """Revokes one of your tokens; whoever uses it is refused from then on."""
    visit.studio.door.users.revoke_token(visit.owner, token_id)
    visit.note("account.revoke", name=visit.owner)
    return Response(status_code=204)


def _require_current(visit: Visit, password: str) -> None:
    """Raises UserChangeError for a wrong password, RateError after too many."""
    if not visit.studio.door.is_own_password(visit.person, password):
        raise UserChangeError(
            say("The current password is wrong."), advice=say("Type the one that you log in with now.")
        )

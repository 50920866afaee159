"""Users over REST, for admins of a studio with passwords: who may log in, one more, a new password, one less.

A password is only ever taken, never told. Admins change their own account as everybody does (account.py), and cannot
remove themselves: so one is always left.
"""

from functools import partial
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Response
from pydantic import BaseModel, ConfigDict, Field

from pipelines.messages import say
from studio.access.users import User, UserChangeError, require_good, require_new
from studio.api.answers import accounts as accounts_answers
from studio.api.routes.account import AccountVisitor, Password
from studio.library import records
from studio.visit import NotAllowedError, Visit

router = APIRouter(tags=["accounts"])


class NewUser(BaseModel):
    """Somebody who may log in from now on."""

    model_config = ConfigDict(extra="forbid")

    name: Annotated[str, Field(max_length=100)]
    password: Password
    is_admin: bool = False


class ResetPassword(BaseModel):
    """The password from now on."""

    model_config = ConfigDict(extra="forbid")

    password: Password


def _require_admin(visit: AccountVisitor) -> Visit:
    """Returns an admin's visit; raises NotAllowedError for anybody else."""
    if not visit.person.is_admin:
        raise NotAllowedError(say("Only admins manage users."), advice=say("Ask an admin of this studio."))
    return visit


Admin = Annotated[Visit, Depends(_require_admin)]


@router.get("/users", response_model=accounts_answers.Users)
def list_users(visit: Admin) -> dict[str, Any]:
    """Lists who may log in, by name, each with the number of tokens and of outputs. For admins."""
    outputs = records.count_by_owner(visit.database)
    users = visit.studio.door.users.read()
    return {"users": [_describe(visit, name, user, outputs.get(name, 0)) for name, user in sorted(users.items())]}


@router.post("/users", status_code=201, response_model=accounts_answers.User)
async def add_user(new: NewUser, visit: Admin) -> dict[str, Any]:
    """Adds somebody who may log in. `outputs` are what an earlier user of that name left, theirs now. For admins."""
    name = new.name.strip().casefold()
    users = visit.studio.door.users
    require_new(users.read(), name)
    require_good(new.password, name)
    await visit.studio.door.passwords.run(partial(users.add, name, password=new.password, is_admin=new.is_admin))
    visit.note("users.add", name=name)
    return _describe_now(visit, name)


@router.put("/users/{name}/password", response_model=accounts_answers.User)
async def reset_password(name: str, new: ResetPassword, visit: Admin) -> dict[str, Any]:
    """Gives somebody else a new password, which ends their sessions and tokens. For admins."""
    if name == visit.owner:
        raise UserChangeError(
            say("Your own password is changed with the current one."), advice=say("Change it under Account.")
        )
    users = visit.studio.door.users
    users.require(name)
    require_good(new.password, name)
    await visit.studio.door.passwords.run(partial(users.set_password, name, new.password))
    visit.note("users.password", name=name)
    return _describe_now(visit, name)


@router.delete("/users/{name}", status_code=204)
def remove_user(name: str, visit: Admin) -> Response:
    """Removes somebody else: sessions and tokens end at once, what they made and queued stays. For admins."""
    if name == visit.owner:
        raise UserChangeError(say("You cannot remove yourself."), advice=say("Ask another admin to do it."))
    visit.studio.door.users.remove(name)
    visit.note("users.remove", name=name)
    return Response(status_code=204)


def _describe_now(visit: Visit, name: str) -> dict[str, Any]:
    outputs = records.count_by_owner(visit.database).get(name, 0)
    return _describe(visit, name, visit.studio.door.users.require(name), outputs)


def _describe(visit: Visit, name: str, user: User, outputs: int) -> dict[str, Any]:
    return {
        "name": name,
        "is_you": name == visit.owner,
        "is_admin": user.is_admin or name in visit.studio.settings.access.admins,
        "has_password": user.password is not None,
        "tokens": len(user.tokens),
        "outputs": outputs,
    }

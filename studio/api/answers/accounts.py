"""Response models of accounts: one's own, its tokens, and everybody's for admins. No password is in any of them."""

from studio.api.answers.answer import Answer, eg
from studio.api.answers.jobs import NOW


class Token(Answer):
    id: str = eg("5f0c7a1be2d94c10")
    name: str = eg("notebook")
    created_at: float = eg(NOW)


class Account(Answer):
    name: str = eg("ada")
    is_admin: bool = eg(False)
    has_password: bool = eg(True)
    tokens: list[Token]


class Changed(Answer):
    name: str = eg("ada")


class NewToken(Answer):
    token: str = eg("lumesh_...")


class User(Answer):
    name: str = eg("bob")
    is_you: bool = eg(False)
    is_admin: bool = eg(False)
    has_password: bool = eg(True)
    tokens: int = eg(0)
    outputs: int = eg(12)


class Users(Answer):
    users: list[User]

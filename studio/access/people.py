"""The person that a request comes from."""

from dataclasses import dataclass

from studio.access.networks import find_network

LOCAL_OWNER = "local"  # the owner of everything where nobody logs in


@dataclass(frozen=True, kw_only=True)
class Person:
    """The person behind a request: `owner` owns jobs and files, `name` is shown, `address` is the client's address.

    `is_alone` marks somebody at their own machine, where nothing is rate-limited. `can_log_out` requires a session.
    """

    owner: str
    name: str
    address: str
    is_admin: bool = False
    is_alone: bool = False
    can_log_out: bool = False

    @property
    def client(self) -> str:
        """Whom turns are counted by: the owner, or the network of somebody among all who need not log in."""
        return find_network(self.address) if self.owner == LOCAL_OWNER else self.owner

    @property
    def is_operator(self) -> bool:
        """Tells whether this person operates the studio: an admin, or somebody alone at their own machine."""
        return self.is_admin or self.is_alone


PERSON = "lumesh.person"
"""Key of the ASGI scope under which api/middleware/auth.py stores the request's Person."""

"""The person that a request comes from."""

from dataclasses import dataclass

LOCAL_OWNER = "local"  # everybody, as long as nobody logs in


@dataclass(frozen=True, kw_only=True)
class Person:
    """`owner` is whose jobs and files they are, `name` what people read; `address` is where the request comes from.

    `is_alone` says that this is somebody at their own machine, where nothing is counted. `can_log_out` needs a session.
    """

    owner: str
    name: str
    address: str
    is_admin: bool = False
    is_alone: bool = False
    can_log_out: bool = False


PERSON = "lumesh.person"
"""Key of a request's scope under which its Person lies once api/middleware/auth.py let it through."""

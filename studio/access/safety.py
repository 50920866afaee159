"""Checks that the settings of access are safe: nobody opens their machine to others by accident."""

from pipelines.errors import LumeshError
from pipelines.messages import english
from studio.access.identify import is_loopback
from studio.access.people import LOCAL_OWNER
from studio.access.users import Users
from studio.access_settings import Mode
from studio.settings import Settings

OPEN_WARNING = (
    "ANYBODY WHO REACHES THIS ADDRESS CAN USE THIS STUDIO: make, see and delete everything in it. "
    "`python app.py users add NAME` makes people log in."
)
NO_USERS_WARNING = "Nobody can log in yet: `python app.py users add NAME --admin` adds the first one."
LOCAL_WARNING = (
    f"The user {LOCAL_OWNER!r} is let in no more: that name owns what was made before anybody logged in. "
    f"`python app.py users remove {LOCAL_OWNER}`, then add them under another name."
)
ADMIN_WARNING = "There is no admin; `--admins NAME` names some."


class AccessError(LumeshError):
    """The settings of access contradict each other or are unsafe."""

    title = english("Who may use it?")


def check(settings: Settings) -> list[str]:
    """Returns warnings to print; raises AccessError when the studio must not start with these settings."""
    access = settings.access
    if access.mode is Mode.OPEN:
        if is_loopback(settings.host):
            return []
        if not access.is_open:
            raise AccessError(
                english(f"At {settings.host} other machines reach the studio, and nobody has to log in."),
                advice=(
                    english(
                        "Set `hf_oauth: true` in the Space's README, or the variable LUMESH_OPEN=1 to let everybody in."
                    )
                    if access.is_space
                    else english(
                        "Add users (python app.py users add NAME), choose --access proxy, or add --open to let "
                        "everybody in."
                    )
                ),
            )
        return [OPEN_WARNING]
    if access.mode is Mode.PROXY and not access.trusted_proxies:
        raise AccessError(
            english("With --access proxy somebody must be trusted."),
            advice=english("Name the proxy's address, such as --trusted-proxies 127.0.0.1."),
        )
    if access.mode is Mode.HUGGINGFACE and access.hub_login is None:
        raise AccessError(
            english("The Hugging Face login works on Spaces only, and this one has none."),
            advice=english("Set `hf_oauth: true` in the header of the Space's README."),
        )
    users = Users(settings.users_file).read()
    warnings = [LOCAL_WARNING] if LOCAL_OWNER in users else []
    if access.mode is Mode.PASSWORD:
        return warnings if any(user.password for user in users.values()) else [*warnings, NO_USERS_WARNING]
    return warnings if access.admins else [*warnings, ADMIN_WARNING]

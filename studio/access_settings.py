"""The settings that say who may use the studio; settings.py reads them with the rest.

Secrets of the Hugging Face login come only from the environment, as Spaces set them.
Not here: what a mode does (access/), whether the chosen one is safe (access/safety.py).
"""

import argparse
import ipaddress
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

USERS_FILE = "users.json"
SUBMITS_PER_MINUTE = 120
EVERY_ORIGIN = "*"
EVERYBODY = "everybody"
FLAGS = (
    "access",
    "trusted_proxies",
    "user_header",
    "admins",
    "submits_per_minute",
    "prompt_hook",
    "image_hook",
    "allow_origins",
    "who_may_train",
)
SWITCHES = ("open", "shared_gallery")

Network = ipaddress.IPv4Network | ipaddress.IPv6Network


class Mode(StrEnum):
    """How users are identified."""

    OPEN = "open"  # not at all: everybody is the owner `local`
    PASSWORD = "password"  # by the users file
    HUGGINGFACE = "huggingface"  # by their account, on Spaces
    PROXY = "proxy"  # by a header that a trusted proxy sets


@dataclass(frozen=True, kw_only=True)
class HubLogin:
    """The OAuth credentials that a Space with `hf_oauth: true` gets."""

    client_id: str
    client_secret: str = field(repr=False)
    provider_url: str
    scopes: str
    space_host: str


@dataclass(frozen=True, kw_only=True)
class AccessSettings:
    """The settings of access. `is_open`: other machines may connect, on purpose. Hooks are `module:function`.

    `who_may_train` are names, beside admins, of those who may train where people log in, or EVERYBODY.
    `allow_origins` are sites whose pages may call the API from a browser (CORS), such as `https://app.example`, or `*`.
    """

    mode: Mode = Mode.OPEN
    is_open: bool = False
    is_space: bool = False
    trusted_proxies: tuple[Network, ...] = ()
    user_header: str = "x-forwarded-user"
    admins: frozenset[str] = frozenset()
    shared_gallery: bool = False
    submits_per_minute: int = SUBMITS_PER_MINUTE
    prompt_hook: str | None = None
    image_hook: str | None = None
    allow_origins: tuple[str, ...] = ()
    who_may_train: frozenset[str] = frozenset()
    hub_login: HubLogin | None = None

    def is_trusted(self, address: str | None) -> bool:
        """Tells whether this is the address of a trusted proxy, whose headers may name the user."""
        try:
            ip = ipaddress.ip_address((address or "").partition("%")[0])
        except ValueError:
            return False
        if isinstance(ip, ipaddress.IPv6Address) and ip.ipv4_mapped:
            ip = ip.ipv4_mapped
        return any(ip in network for network in self.trusted_proxies)


def add_flags(parser: argparse.ArgumentParser) -> None:
    """Adds the flags, in a group of their own."""
    group = parser.add_argument_group("who may use it")
    group.add_argument(
        "--access",
        type=_parse_mode,
        help="open, password, huggingface or proxy (default: huggingface on a Space with a login, password when there "
        "are users, else open)",
    )
    group.add_argument("--open", action="store_true", help="let other machines in without any login")
    group.add_argument(
        "--trusted-proxies",
        "--trusted_proxies",
        type=_parse_networks,
        default=(),
        help="addresses of proxies that say who asks, such as 127.0.0.1,10.0.0.0/8",
    )
    group.add_argument(
        "--user-header",
        "--user_header",
        type=_parse_header,
        help="the header in which they say it (default X-Forwarded-User)",
    )
    group.add_argument("--admins", type=_parse_names, default=frozenset(), help="names of admins, with commas")
    group.add_argument(
        "--shared-gallery",
        "--shared_gallery",
        action="store_true",
        help="let everybody who may come in see everybody's outputs and presets",
    )
    group.add_argument(
        "--allow-origins",
        "--allow_origins",
        type=_parse_origins,
        default=(),
        help="sites whose pages may use the API from a browser, such as https://app.example, with commas; * is any "
        "site, which then gets no cookies",
    )
    group.add_argument(
        "--who-may-train",
        "--who_may_train",
        type=_parse_names,
        default=frozenset(),
        help="names of those who may train models, with commas, or everybody (default: admins; where nobody logs in, "
        "everybody)",
    )
    group.add_argument(
        "--submits-per-minute",
        "--submits_per_minute",
        type=_parse_rate,
        help=f"how often one owner may queue (default {SUBMITS_PER_MINUTE})",
    )
    for name, what in (("prompt", "recipes before they are queued"), ("image", "pictures before they are kept")):
        group.add_argument(
            f"--{name}-hook",
            f"--{name}_hook",
            type=_parse_hook,
            metavar="MODULE:FUNCTION",
            help=f"a function that may refuse {what}",
        )


def _parse_origins(text: str) -> tuple[str, ...]:
    origins = tuple(one.strip().rstrip("/").lower() for one in text.split(",") if one.strip())
    for origin in origins:
        if origin != EVERY_ORIGIN and not re.fullmatch(r"https?://[^/?#@\s]+", origin):
            raise argparse.ArgumentTypeError(f"{origin!r} is no origin; write https://app.example, or *")
    return origins


def read_defaults(environment: Mapping[str, str]) -> dict[str, str]:
    """Reads defaults from the environment as text, so that argparse checks them like flags."""
    defaults = {"user_header": "X-Forwarded-User", "submits_per_minute": str(SUBMITS_PER_MINUTE)}
    for name in FLAGS:
        if value := environment.get(f"LUMESH_{name.upper()}"):
            defaults[name] = value
    return defaults


def make(found: argparse.Namespace, environment: Mapping[str, str], *, has_users: bool) -> AccessSettings:
    """Makes the settings from parsed flags."""
    hub_login = _read_hub_login(environment)
    likely = Mode.HUGGINGFACE if hub_login else Mode.PASSWORD if has_users else Mode.OPEN
    values: dict[str, Any] = {name: getattr(found, name) for name in FLAGS if name != "access"}
    return AccessSettings(
        mode=found.access or likely,
        is_open=found.open,
        is_space="SPACE_ID" in environment,
        shared_gallery=found.shared_gallery,
        hub_login=hub_login,
        **values,
    )


def _read_hub_login(environment: Mapping[str, str]) -> HubLogin | None:
    client_id, client_secret = environment.get("OAUTH_CLIENT_ID"), environment.get("OAUTH_CLIENT_SECRET")
    space_host = (
        environment.get("SPACE_HOST", "").partition(",")[0].strip()
    )  # a list if the Space has a custom domain too
    if not client_id or not client_secret or not space_host:
        return None
    return HubLogin(
        client_id=client_id,
        client_secret=client_secret,
        provider_url=environment.get("OPENID_PROVIDER_URL", "https://huggingface.co"),
        scopes=environment.get("OAUTH_SCOPES", "openid profile"),
        space_host=space_host,
    )


def _parse_mode(text: str) -> Mode:
    try:
        return Mode(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not one of {', '.join(Mode)}") from None


def _parse_networks(text: str) -> tuple[Network, ...]:
    try:
        return tuple(ipaddress.ip_network(part.strip()) for part in text.split(",") if part.strip())
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"{error}; write addresses or networks, such as 10.0.0.0/8") from error


def _parse_header(text: str) -> str:
    if not re.fullmatch(r"[A-Za-z0-9-]+", text):
        raise argparse.ArgumentTypeError(f"{text!r} is not the name of a header")
    return text.lower()


def _parse_names(text: str) -> frozenset[str]:
    return frozenset(part.strip().casefold() for part in text.split(",") if part.strip())


def _parse_rate(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of jobs; use 1 or more")
    return int(text)


def _parse_hook(text: str) -> str:
    if not re.fullmatch(r"[A-Za-z_][\w.]*:[A-Za-z_]\w*", text):
        raise argparse.ArgumentTypeError(f"{text!r} is not a hook; write module:function")
    return text

"""Who a request comes from, in each mode, and what hooks and limits say."""

import json
from collections.abc import Callable
from dataclasses import replace
from ipaddress import ip_network
from typing import Any

import pytest
from starlette.datastructures import Headers

from studio.access import passwords
from studio.access.hooks import BROKEN, HookError, PromptRefusedError
from studio.access.identify import Door
from studio.access.limits import RateError
from studio.access.people import LOCAL_OWNER, Person
from studio.access.safety import LOCAL_WARNING, check
from studio.access.sessions import COOKIE
from studio.access_settings import Mode
from studio.database import Database
from studio.settings import Settings

PROXY = "10.0.0.1"
Make = Callable[..., Door]


@pytest.fixture
def make_door(settings: Settings, database: Database) -> Make:
    def make(mode: Mode, **fields: Any) -> Door:
        access = replace(settings.access, mode=mode, **fields)
        return Door(replace(settings, access=access), database)

    return make


def refuse_boats(*, recipe: dict[str, Any], **_: Any) -> str | None:
    return "No boats here." if "boat" in recipe["prompt"] else None


def fail(**_: Any) -> str | None:
    raise RuntimeError


def ask(door: Door, *, peer: str = "1.2.3.4", **headers: str) -> Person | None:
    return door.identify(Headers({name.replace("_", "-"): value for name, value in headers.items()}), peer)


def test_open_everybody_is_the_same_owner(make_door: Make) -> None:
    person = ask(make_door(Mode.OPEN))
    assert person
    assert (person.owner, person.is_admin, person.is_alone) == ("local", False, True)


def test_a_password_opens_a_session_that_ends_with_the_user(make_door: Make) -> None:
    door = make_door(Mode.PASSWORD)
    door.users.add("ada", password="lovelace-1815", is_admin=True)
    assert ask(door) is None
    assert door.log_in("ada", "wrong", "1.2.3.4") is None
    cookie = f"{COOKIE}={door.log_in(' Ada', 'lovelace-1815', '1.2.3.4')}"
    person = ask(door, cookie=cookie)
    assert person
    assert (person.owner, person.is_admin, person.can_log_out) == ("ada", True, True)
    assert ask(make_door(Mode.HUGGINGFACE), cookie=cookie) is None, "a session is worth nothing in another mode"
    door.users.set_password("ada", "lovelace-1852")
    assert ask(door, cookie=cookie) is None
    assert door.log_in("lovelace-1816", "ada", "1.2.3.4") is None, "in the wrong fields"
    log = door.audit._file.read_text()
    assert "login.failed" in log
    assert "lovelace" not in log


def test_guessing_ends_after_a_few_tries_for_that_name_and_address(make_door: Make) -> None:
    door = make_door(Mode.PASSWORD)
    door._logins_of_address.take("1.2.3.4")
    for _ in range(5):
        door._logins.take("1.2.3.4 ada")
    with pytest.raises(RateError):
        door.log_in("ada", "whatever", "1.2.3.4")
    for _ in range(29):
        door._logins_of_address.take("1.2.3.4")
    with pytest.raises(RateError):
        door.log_in("somebody else", "whatever", "1.2.3.4")


def test_a_token_is_its_users(make_door: Make) -> None:
    door = make_door(Mode.PASSWORD)
    door.users.add("robot", password=None, is_admin=False)
    token = door.users.add_token("robot")
    person = ask(door, authorization=f"Bearer {token}")
    assert person
    assert person.owner == "robot"
    for other in (f"Bearer {token}x", "Bearer hf_abc", f"Basic {token}", token):
        assert ask(door, authorization=other) is None


def test_a_name_is_believed_from_trusted_proxies_alone(make_door: Make) -> None:
    door = make_door(Mode.PROXY, trusted_proxies=(ip_network("10.0.0.0/24"),), admins=frozenset({"ada@example.com"}))
    person = ask(door, peer=PROXY, x_forwarded_user="Ada@Example.com")
    assert person
    assert (person.owner, person.is_admin) == ("ada@example.com", True)
    assert ask(door, peer=f"::ffff:{PROXY}", x_forwarded_user="bob")
    assert ask(door, peer="10.0.1.1", x_forwarded_user="ada@example.com") is None
    assert ask(door, peer="10.0.1.1", x_forwarded_user="bob", x_forwarded_for=PROXY) is None
    assert ask(door, peer=PROXY) is None
    assert ask(door, peer=PROXY, x_forwarded_user="a b") is None
    twice = Headers(raw=[(b"x-forwarded-user", b"bob"), (b"x-forwarded-user", b"ada@example.com")])
    assert door.identify(twice, PROXY) is None


@pytest.mark.parametrize("name", ["bob,ada@example.com", "bob, ada@example.com", ",bob", "local", "LOCAL"])
def test_neither_a_list_of_names_nor_the_name_of_what_has_no_owner_is_believed(make_door: Make, name: str) -> None:
    door = make_door(Mode.PROXY, trusted_proxies=(ip_network("10.0.0.0/24"),))
    assert ask(door, peer=PROXY, x_forwarded_user=name) is None


def test_a_user_of_an_older_users_file_is_not_the_owner_of_what_was_made_without_a_login(
    make_door: Make, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(passwords, "LOG2_N", 4)
    door = make_door(Mode.PASSWORD)
    door.users.add("ada", password="lovelace-1815", is_admin=False)
    token = door.users.add_token("ada")
    settings.users_file.write_text(settings.users_file.read_text().replace('"ada"', '"local"'))
    assert LOCAL_WARNING in check(replace(settings, access=door.settings))
    assert ask(door, authorization=f"Bearer {token}") is None
    session = door.log_in("local", "lovelace-1815", "1.2.3.4")
    assert ask(door, cookie=f"{COOKIE}={session}") is None


def test_a_new_password_ends_the_tokens_too(make_door: Make) -> None:
    door = make_door(Mode.PASSWORD)
    door.users.add("ada", password=None, is_admin=False)
    token = door.users.add_token("ada")
    assert ask(door, authorization=f"Bearer {token}")
    door.users.set_password("ada", "lovelace-1852")
    assert ask(door, authorization=f"Bearer {token}") is None


def test_the_address_behind_a_proxy_is_the_last_that_is_none(make_door: Make) -> None:
    door = make_door(Mode.PASSWORD, trusted_proxies=(ip_network("10.0.0.0/24"),))
    forwarded = Headers({"x-forwarded-for": "6.6.6.6, 1.2.3.4, 10.0.0.2"})
    assert door.find_address(forwarded, PROXY) == "1.2.3.4"
    assert door.find_address(forwarded, "5.5.5.5") == "5.5.5.5"


def test_what_the_hook_refuses_is_noted_and_not_queued(make_door: Make, make_recipe: Callable[..., Any]) -> None:
    door = make_door(Mode.OPEN, prompt_hook=f"{__name__}:refuse_boats")
    person = ask(door)
    assert person
    door.admit(person, [make_recipe("A house")])
    with pytest.raises(PromptRefusedError) as caught:
        door.admit(person, [make_recipe("A house"), make_recipe("A boat")])
    assert caught.value.fields == {"prompt": "No boats here."}
    (note,) = map(json.loads, door.audit._file.read_text().splitlines())
    assert (note["what"], note["prompt"], note["owner"]) == ("prompt.refused", "A boat", "local")


def test_a_hook_that_fails_refuses_and_one_that_is_missing_stops_the_start(
    make_door: Make, make_recipe: Callable[..., Any]
) -> None:
    door = make_door(Mode.OPEN, prompt_hook=f"{__name__}:fail")
    person = ask(door)
    assert person
    with pytest.raises(PromptRefusedError) as caught:
        door.admit(person, [make_recipe()])
    assert caught.value.fields == {"prompt": BROKEN}
    for name in ("no_such_module:f", "json:no_such_function", "json:__doc__"):
        with pytest.raises(HookError):
            make_door(Mode.OPEN, prompt_hook=name)


def test_each_owner_queues_only_so_often(make_door: Make, make_recipe: Callable[..., Any]) -> None:
    door = make_door(Mode.PASSWORD, submits_per_minute=2)
    ada, bob = (Person(owner=name, name=name, address="1.2.3.4") for name in ("ada", "bob"))
    for _ in range(2):
        door.admit(ada, [make_recipe()])
    with pytest.raises(RateError, match="2 a minute"):
        door.admit(ada, [make_recipe()])
    door.admit(bob, [make_recipe()])


def test_guesses_of_one_name_from_many_addresses_end_but_not_for_its_owners_browser(
    make_door: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    door = make_door(Mode.PASSWORD)
    door.users.add("ada", password=None, is_admin=False)
    monkeypatch.setattr(
        door.users, "check_password", lambda name, word: door.users.read()[name] if word == "right" else None
    )
    known = door.make_known("Ada ")
    for number in range(20):
        assert door.log_in("ada", "wrong", f"1.2.3.{number}") is None
    with pytest.raises(RateError):
        door.log_in("ada", "right", "1.2.3.99")
    assert door.log_in("ada", "right", "1.2.3.99", known=known), "her own browser"
    for forged in ("x.y", door.make_known("bob"), f"{known}0"):
        with pytest.raises(RateError):
            door.log_in("ada", "right", "1.2.3.99", known=forged)


def test_an_ipv6_subscriber_is_one_client(make_door: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    door = make_door(Mode.PASSWORD)
    monkeypatch.setattr(door.users, "check_password", lambda *_: None)
    for number in range(5):
        assert door.log_in("ada", "wrong", f"2001:db8:1:2::{number}") is None
    with pytest.raises(RateError):
        door.log_in("ada", "wrong", "2001:db8:1:2:ffff::9")
    assert door.log_in("ada", "wrong", "2001:db8:1:3::1") is None


def test_turns_are_counted_by_whoever_logged_in_and_by_networks_where_nobody_does() -> None:
    people = [
        Person(owner="ann", name="Ann", address="192.0.2.7"),
        Person(owner=LOCAL_OWNER, name="", address="192.0.2.7"),
        Person(owner=LOCAL_OWNER, name="", address="2001:db8:0:1::7"),
        Person(owner=LOCAL_OWNER, name="", address="2001:db8:0:1::8"),
    ]
    subscriber = "2001:db8:0:1::/64"
    assert [person.client for person in people] == ["ann", "192.0.2.7", subscriber, subscriber]

"""What hosts ask each other, and what they tell each other when one of them ends."""

import errno

import numpy as np
import pytest

from pipelines.errors import LumeshError, RecipeError
from pipelines.messages import english
from pipelines.runtime.devices import host_ends, hosts
from pipelines.runtime.devices.hosts import HostsError


def test_a_single_host_agrees_with_itself() -> None:
    assert hosts.agree("topic", {"a": 1}) == {"a": 1}
    assert hosts.collect("topic", 3) == [3]
    hosts.compare({"weights": "abc"})
    assert hosts.is_leader()
    assert (hosts.fetch(np.arange(3)) == np.arange(3)).all()


def test_all_that_hosts_differ_in_is_told_at_once_and_those_that_agree_together(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(hosts, "collect", lambda _topic, own: [own, {"rank": "8", "steps": "4"}, own])
    with pytest.raises(HostsError) as caught:
        hosts.compare({"rank": "16", "steps": "4", "libtpu": "0.0.42"})
    assert "rank: hosts 0, 2 have 16, host 1 has 8; in libtpu: hosts 0, 2 have 0.0.42, host 1 has None." in str(
        caught.value
    )


@pytest.mark.parametrize(
    ("error", "told", "code"),
    [
        (RecipeError({"data": english("there is none")}), "data: there is none", 2),
        (
            LumeshError(english("The model is not here."), advice=english("Fetch it.")),
            "The model is not here. Fetch it.",
            1,
        ),
        (OSError(errno.ENOSPC, "No space left on device", "/x"), "No space left on device: /x", 1),
        (OSError(errno.ENOSPC, "No space left on device"), "No space left on device", 1),
        (KeyboardInterrupt(), "it was told to", host_ends.LOST),
        (ZeroDivisionError("no text for people"), "ZeroDivisionError", host_ends.LOST),
    ],
)
def test_the_others_end_with_lost_only_where_the_same_command_may_go_on(
    error: BaseException, told: str, code: int
) -> None:
    assert host_ends.explain(error) == (told, code)

"""Shares of what is right, as the quality commands tell them."""

from collections import Counter

from pipelines.demos.scores import tell_shares


def test_every_attribute_has_its_line_and_all_together_the_last() -> None:
    lines = tell_shares(Counter({("time", True): 3, ("time", False): 1, ("colour", True): 4}))
    assert [line.split() for line in lines] == [["colour", "100.0%"], ["time", "75.0%"], ["all", "attributes", "87.5%"]]

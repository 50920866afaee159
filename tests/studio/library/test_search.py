"""Outputs are found by words and by what they are, newest first, in pages that stay where they are."""

from collections.abc import Callable

import pytest

from studio.database import Database
from studio.library import records, trash
from studio.library.records import Output
from studio.library.search import Filters, PresetMark, count_presets, count_values, find_outputs

AddOutput = Callable[..., Output]


def find(database: Database, **wanted: object) -> list[Output]:
    return find_outputs(database, Filters(**wanted), owner="local").outputs


def test_newest_first(database: Database, add_output: AddOutput) -> None:
    old, new = add_output("old"), add_output("new")
    assert find(database) == [new, old]


def test_pages_stay_where_they_are_when_more_is_made(database: Database, add_output: AddOutput) -> None:
    first, second, third = add_output("1"), add_output("2"), add_output("3")
    page = find_outputs(database, Filters(), owner="local", limit=2)
    assert (page.outputs, page.total) == ([third, second], 3)
    add_output("4")
    again = find_outputs(database, Filters(), owner="local", cursor=page.start, limit=2)
    following = find_outputs(database, Filters(), owner="local", cursor=page.next, limit=2)
    jump = find_outputs(database, Filters(), owner="local", cursor=page.start, offset=2)
    assert again.outputs == page.outputs
    assert following.outputs == jump.outputs == [first]
    assert (following.next, following.total) == (None, 4)
    assert find_outputs(database, Filters(words="none"), owner="local").start is None


def test_every_word_must_be_there_in_any_order(database: Database, add_output: AddOutput) -> None:
    found = add_output("A red Sailboat at sunset")
    add_output("A blue house")
    assert find(database, words="sunset boat") == [found]
    assert find(database, words="RED at") == [found]
    assert find(database, words="sunset house") == []


@pytest.mark.parametrize(
    "words", ["ÉTÉ", "日落", "a红", "帆船日落", "(x:1.2)", '"quoted"', "100%", "NOT", "boat*", "_"]
)
def test_words_are_only_letters(database: Database, add_output: AddOutput, words: str) -> None:
    found = add_output('Café en été a红帆船日落 (x:1.2) "quoted" 100% wool NOT boat* one_two')
    add_output("100 sheep, one two boats")
    assert find(database, words=words) == [found]


@pytest.mark.parametrize("words", ['"', "'''", "\0\0\0\0", "AND OR", "prompt:x", "^^^", "{}{}", "\\\\\\"])
def test_no_words_break_the_search(database: Database, add_output: AddOutput, words: str) -> None:
    add_output()
    assert len(find(database, words=words)) <= 1


def test_other_owners_outputs_are_not_found(database: Database, add_output: AddOutput) -> None:
    add_output("hers", owner="her")
    assert find(database) == find(database, words="hers") == []
    assert count_values(database, owner="local").kept == 0


def test_filters_narrow_by_what_an_output_is(database: Database, add_output: AddOutput) -> None:
    clip = add_output("Clip", model="clips", created_at=10.0)
    wide = add_output("Wide", shape="320x192", created_at=20.0)
    records.change(database, wide.id, is_favourite=True, tags=("sea", "été"))
    (wide,) = find(database, is_favourite=True)
    named = PresetMark(id="wide", model=wide.recipe.model, prompt="Wide")
    clip_filters = ({"kind": "video"}, {"models": ["clips"]}, {"before": 20.0}, {"is_favourite": False})
    wide_filters = ({"shape": "320x192"}, {"tag": "sea"}, {"after": 20.0}, {"preset": named}, {"words": "été"})
    for wanted in clip_filters:
        assert find(database, **wanted) == [clip], wanted
    for wanted in wide_filters:
        assert find(database, **wanted) == [wide], wanted
    assert find(database, models=[]) == find(database, kind="video", tag="sea") == []


def test_words_find_new_tags_and_no_removed_ones(database: Database, add_output: AddOutput) -> None:
    output = add_output("A boat")
    records.change(database, output.id, tags=("harbour",))
    assert len(find(database, words="boat harbour")) == 1
    records.change(database, output.id, tags=())
    assert find(database, words="harbour") == []


def test_what_is_in_the_trash_is_found_only_there(database: Database, add_output: AddOutput) -> None:
    kept, thrown = add_output("A boat"), add_output("A boat")
    trash.throw_away(database, [thrown.id], owner="local")
    assert find(database, words="boat") == [kept]
    assert [output.id for output in find(database, words="boat", is_trashed=True)] == [thrown.id]


def test_counts_say_what_there_is_to_filter_by(database: Database, add_output: AddOutput) -> None:
    first, second, thrown = add_output("Clip", model="clips"), add_output("Boat"), add_output("Boat")
    trash.throw_away(database, [thrown.id], owner="local")
    records.change(database, first.id, is_favourite=True, tags=("sea", "night"))
    records.change(database, second.id, tags=("sea",))
    counts = count_values(database, owner="local")
    assert (counts.kept, counts.trashed, counts.favourites) == (2, 1, 1)
    assert list(counts.tags.items()) == [("sea", 2), ("night", 1)]
    assert counts.models == {"clips": 1, second.recipe.model: 1}
    assert counts.shapes == {"96x64x9": 1, second.recipe.shape: 1}
    boats = PresetMark(id="boats", model=second.recipe.model, prompt="Boat")
    others = PresetMark(id="others", model="clips", prompt="Boat")
    assert count_presets(database, [boats, others], owner="local") == {"boats": 1, "others": 0}


def explain(database: Database, sql: str) -> str:
    return "; ".join(row["detail"] for row in database.read(f"EXPLAIN QUERY PLAN {sql}"))


def test_no_search_reads_or_sorts_the_whole_table(database: Database, add_output: AddOutput) -> None:
    """What keeps 10 000 outputs fast: pages come off an index in order, and counts never touch the rows."""
    add_output()
    statements: list[str] = []
    with database.write() as connection:
        connection.set_trace_callback(statements.append)
    filters = Filters(words="red sailboat", models=["a", "b"], shape="1x1", kind="image", is_favourite=True, after=1.0)
    for wanted in (Filters(), filters, Filters(is_favourite=True)):
        find_outputs(database, wanted, owner="local", cursor=9)
    with database.write() as connection:
        connection.set_trace_callback(None)
    plans = [explain(database, sql) for sql in statements if sql.startswith("SELECT")]
    assert len(plans) == 6
    for count, page in zip(plans[::2], plans[1::2], strict=True):
        assert "SEARCH outputs USING COVERING INDEX outputs_by_filters" in count
        assert "SEARCH outputs USING INDEX outputs_by_filters" in page
        assert "TEMP B-TREE" not in page
    assert "outputs_text VIRTUAL TABLE INDEX" in plans[2]

"""Nothing is lost before somebody says so: the trash keeps files and rows, purging takes both."""

from collections.abc import Callable

import pytest

from studio import events
from studio.database import Database
from studio.jobs import queue
from studio.library import records, trash
from studio.library.records import Output
from studio.library.search import Filters, find_outputs
from studio.settings import Settings
from studio.worker.loop import Worker

AddOutput = Callable[..., Output]


def list_files(settings: Settings) -> list[str]:
    return sorted(file.name for file in settings.outputs_dir.rglob("*") if file.is_file())


def test_an_output_comes_back_from_the_trash_as_it_was(
    settings: Settings, database: Database, add_output: AddOutput
) -> None:
    output = add_output(has_files=True)
    files = list_files(settings)
    assert trash.throw_away(database, [output.id, output.id, "none"], owner="local") == [output.id]
    assert trash.throw_away(database, [output.id], owner="local") == []
    assert records.read_output(database, output.id).trashed_at is not None
    assert trash.restore(database, [output.id], owner="local") == [output.id]
    assert records.read_output(database, output.id) == output
    assert list_files(settings) == files


def test_purging_takes_files_and_rows_of_the_trash_alone(
    settings: Settings, database: Database, add_output: AddOutput
) -> None:
    kept = add_output("Kept", has_files=True)
    files = list_files(settings)
    still, film = add_output("Still", has_files=True), add_output("Film", has_files=True, model="clips")
    assert len(list_files(settings)) == len(files) + 2 + 3
    trash.throw_away(database, [still.id, film.id], owner="local")
    assert trash.purge(database, settings.outputs_dir, [kept.id, still.id], owner="local") == [still.id]
    assert trash.purge(database, settings.outputs_dir, None, owner="local") == [film.id]
    assert list_files(settings) == files
    assert find_outputs(database, Filters(words="Still"), owner="local").total == 0
    assert records.read_output(database, kept.id) == kept


def test_pages_are_told_of_every_change_once(settings: Settings, database: Database, add_output: AddOutput) -> None:
    output = add_output(has_files=True)
    records.change(database, output.id, is_favourite=True)
    trash.throw_away(database, [output.id], owner="local")
    trash.throw_away(database, [output.id], owner="local")
    trash.restore(database, [output.id], owner="local")
    trash.throw_away(database, [output.id], owner="local")
    trash.purge(database, settings.outputs_dir, None, owner="local")
    told = [event.to_json() for event in events.read_after(database, 0) if event.kind == "outputs.changed"]
    assert [event["change"] for event in told] == ["marked", "trashed", "restored", "trashed", "purged"]
    assert all((event["ids"], event["job_ids"]) == ([output.id], [output.job_id]) for event in told)


def test_a_large_trash_is_purged_whole(settings: Settings, database: Database, add_output: AddOutput) -> None:
    ids = [add_output().id for _ in range(trash.PURGED_AT_ONCE + 1)]
    trash.throw_away(database, ids, owner="local")
    assert sorted(trash.purge(database, settings.outputs_dir, None, owner="local")) == sorted(ids)


def test_nobody_throws_away_what_is_somebody_elses(
    settings: Settings, database: Database, add_output: AddOutput
) -> None:
    hers = add_output(owner="her")
    assert trash.throw_away(database, [hers.id], owner="local") == []
    trash.throw_away(database, [hers.id], owner="her")
    assert trash.restore(database, [hers.id], owner="local") == []
    assert trash.purge(database, settings.outputs_dir, [hers.id], owner="local") == []
    assert trash.purge(database, settings.outputs_dir, None, owner="local") == []
    assert records.read_output(database, hers.id) is not None


def test_a_failed_purge_leaves_a_row_that_can_be_purged_again(
    settings: Settings, database: Database, add_output: AddOutput
) -> None:
    output = add_output(has_files=True)
    trash.throw_away(database, [output.id], owner="local")
    thumb = settings.outputs_dir / output.thumb
    thumb.unlink()
    thumb.mkdir()  # cannot be unlinked
    with pytest.raises(OSError, match=thumb.name):
        trash.purge(database, settings.outputs_dir, None, owner="local")
    assert records.read_output(database, output.id) is not None
    thumb.rmdir()
    assert trash.purge(database, settings.outputs_dir, None, owner="local") == [output.id]
    assert list_files(settings) == []


def test_a_job_lists_what_became_of_its_outputs(
    settings: Settings, database: Database, submit: Callable[..., object], worker: Worker
) -> None:
    job_id = submit(batch_size=2).id
    worker.run_next()
    before = queue.read_job(database, job_id).outputs
    ids = [output["id"] for output in before]
    trash.throw_away(database, ids[:1], owner="local")
    listed = queue.read_job(database, job_id).outputs
    assert listed == [{**before[0], "is_trashed": True}, before[1]]
    trash.restore(database, ids[:1], owner="local")
    assert queue.read_job(database, job_id).outputs == [{**before[0], "is_trashed": False}, before[1]]
    trash.throw_away(database, ids[:1], owner="local")
    trash.purge(database, settings.outputs_dir, None, owner="local")
    assert queue.read_job(database, job_id).outputs == before[1:]


def test_an_output_outlives_its_job(database: Database, add_output: AddOutput) -> None:
    output = add_output()
    with database.write() as tx:
        tx.execute("DELETE FROM jobs")
    assert records.read_output(database, output.id) == output

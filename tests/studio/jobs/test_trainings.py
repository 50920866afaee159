"""What a training learns from is found among all that its owner has brought and made."""

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from studio.database import Database
from studio.jobs import trainings
from studio.jobs.training import AskedTraining, TrainingPicture


def test_what_is_learnt_is_looked_up_however_much_its_owner_has_made(
    database: Database, upload: Callable[..., str]
) -> None:
    own, others = upload("red"), upload("green", owner="bob")
    ids = (own, others, "upload-none")
    asked = AskedTraining(model="m", name="n", pictures=tuple(TrainingPicture(id=one) for one in ids))
    plans: list[str] = []

    def read(sql: str, values: Sequence[Any]) -> Iterable[Any]:
        plans.extend(row["detail"] for row in database.read(f"EXPLAIN QUERY PLAN {sql}", values))
        return database.read(sql, values)

    assert trainings.find_lessons(read, asked, owner="local") == {own: False}
    read_tables = [plan for plan in plans if "uploads" in plan or "outputs" in plan]
    assert len(read_tables) == 2
    assert all("(id=?)" in plan for plan in read_tables)


def test_nothing_is_learnt_of_a_training_without_pictures(database: Database) -> None:
    asked = AskedTraining(model="m", name="n", pictures=())
    assert trainings.find_lessons(database.read, asked, owner="local") == {}

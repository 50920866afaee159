"""Finding outputs again: newest first, by words of the prompt and by model."""

from studio.database import Database
from studio.library.records import Output


def find_outputs(
    database: Database, *, owner: str, words: str = "", model: str | None = None, limit: int = 60, offset: int = 0
) -> list[Output]:
    """The owner's newest outputs whose prompt contains every one of `words`, in any order and case."""
    values = {"owner": owner, "model": model, "limit": limit, "offset": offset}
    conditions = ["owner = :owner", "(:model IS NULL OR model = :model)"]
    for number, word in enumerate(words.split()):
        conditions.append(f"prompt LIKE :word{number} ESCAPE '\\'")
        values[f"word{number}"] = f"%{_escape(word)}%"
    rows = database.read(
        f"SELECT * FROM outputs WHERE {' AND '.join(conditions)} "
        "ORDER BY created_at DESC, id LIMIT :limit OFFSET :offset",
        values,
    )
    return [Output.from_row(row) for row in rows]


def _escape(word: str) -> str:
    return word.replace("\\", "\\\\").replace("%", "\\%").replace("_", "\\_")

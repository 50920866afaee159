"""Searches tens of thousands of outputs by words of prompts and tags, and by properties; newest first.

Words of three letters and more are looked up in a trigram index, shorter ones by scanning; all may match any part of a
word. Pages are cursor-based, so outputs that are made meanwhile do not shift them.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from studio.database import Database
from studio.library.records import Output

INDEXED_CHARS = 3  # shorter words have no trigram


@dataclass(frozen=True, kw_only=True)
class PresetMark:
    """Identifies the outputs of a preset: their job came from it, or they have its model and prompt."""

    id: str
    model: str
    prompt: str


@dataclass(frozen=True, kw_only=True)
class Filters:
    """Conditions on outputs; None and empty match all. Times are seconds since 1970; `before` is exclusive."""

    words: str = ""
    models: Sequence[str] | None = None
    shape: str | None = None
    kind: str | None = None
    tag: str | None = None
    is_favourite: bool | None = None
    after: float | None = None
    before: float | None = None
    preset: PresetMark | None = None
    is_trashed: bool = False


@dataclass(frozen=True, kw_only=True)
class Page:
    """Outputs in order, the total of matches, and cursors to this page's start and to the next page."""

    outputs: list[Output]
    total: int
    start: int | None
    next: int | None


@dataclass(frozen=True, kw_only=True)
class Counts:
    """The number of kept outputs for each value of the filters, and the number in the trash."""

    kept: int
    trashed: int
    favourites: int
    models: dict[str, int]
    shapes: dict[str, int]
    tags: dict[str, int]


def find_outputs(
    database: Database,
    filters: Filters,
    *,
    owner: str | None,
    cursor: int | None = None,
    limit: int = 60,
    offset: int = 0,
) -> Page:
    """Finds the owner's (None: everybody's) newest matching outputs; `offset` counts from the cursor or the newest."""
    where, values = _make_conditions(filters, owner)
    total = database.read(f"SELECT count(*) FROM outputs WHERE {where}", values)[0][0]
    if cursor is not None:
        where += " AND number < :cursor"
    rows = database.read(
        f"SELECT * FROM outputs WHERE {where} ORDER BY number DESC LIMIT :limit OFFSET :offset",
        {**values, "cursor": cursor, "limit": limit + 1, "offset": offset},
    )
    outputs = [Output.from_row(row) for row in rows[:limit]]
    return Page(
        outputs=outputs,
        total=total,
        start=outputs[0].number + 1 if outputs else None,
        next=outputs[-1].number if len(rows) > limit else None,
    )


def count_values(database: Database, *, owner: str | None) -> Counts:
    """Counts the values to filter by, most frequent first; of everybody's outputs when `owner` is None."""
    mine = {"owner": owner}
    kept = f"{_whose(owner)} AND trashed_at IS NULL"

    def count(column: str, *, source: str = "outputs") -> dict[str, int]:
        rows = database.read(
            f"SELECT {column} AS value, count(*) AS times FROM {source} WHERE {kept} "
            "GROUP BY value ORDER BY times DESC, value",
            mine,
        )
        return {row["value"]: row["times"] for row in rows}

    totals = database.read(
        "SELECT count(*) FILTER (WHERE trashed_at IS NULL) AS kept, "
        "count(*) FILTER (WHERE trashed_at IS NULL AND is_favourite) AS favourites, "
        f"count(*) FILTER (WHERE trashed_at IS NOT NULL) AS trashed FROM outputs WHERE {_whose(owner)}",
        mine,
    )[0]
    return Counts(
        kept=totals["kept"],
        trashed=totals["trashed"],
        favourites=totals["favourites"],
        models=count("model"),
        shapes=count("shape"),
        tags=count("json_each.value", source="outputs, json_each(tags)"),
    )


def count_presets(database: Database, presets: Sequence[PresetMark], *, owner: str | None) -> dict[str, int]:
    """Counts the kept outputs of each preset, by its id."""
    alike: Counter[tuple[str, str]] = Counter()  # outputs by model and prompt
    for row in database.read(
        f"SELECT model, prompt, count(*) AS times FROM outputs WHERE {_whose(owner)} AND trashed_at IS NULL "
        "GROUP BY model, prompt",
        {"owner": owner},
    ):
        alike[row["model"], row["prompt"]] = row["times"]
    counts = {preset.id: alike[preset.model, preset.prompt] for preset in presets}
    marks = {preset.id: (preset.model, preset.prompt) for preset in presets}
    for row in database.read(
        "SELECT jobs.preset, outputs.model, outputs.prompt, count(*) AS times FROM jobs "
        "JOIN outputs ON outputs.job_id = jobs.id WHERE jobs.preset IS NOT NULL "
        "AND (:owner IS NULL OR outputs.owner = :owner) AND outputs.trashed_at IS NULL "
        "GROUP BY jobs.preset, outputs.model, outputs.prompt",
        {"owner": owner},
    ):
        if row["preset"] in counts and marks[row["preset"]] != (row["model"], row["prompt"]):
            times: int = row["times"]
            counts[row["preset"]] += times
    return counts


def _whose(owner: str | None) -> str:
    """Returns the condition on the owner, in a form that lets SQLite use the index on it."""
    return "TRUE" if owner is None else "owner = :owner"


def _make_conditions(filters: Filters, owner: str | None) -> tuple[str, dict[str, Any]]:
    """Returns the WHERE clause and its parameters; no text from a client becomes SQL."""
    values: dict[str, Any] = {"owner": owner}
    conditions = [_whose(owner), f"trashed_at IS {'NOT ' if filters.is_trashed else ''}NULL"]

    def require(condition: str, name: str, value: object) -> None:
        conditions.append(condition)
        values[name] = value

    if filters.preset is not None:
        conditions.append(
            "(job_id IN (SELECT id FROM jobs WHERE preset = :preset_id) "
            "OR (model = :preset_model AND prompt = :preset_prompt))"
        )
        values |= {f"preset_{name}": value for name, value in vars(filters.preset).items()}
    for name in ("shape", "kind"):
        if (value := getattr(filters, name)) is not None:
            require(f"{name} = :{name}", name, value)
    if filters.models is not None:
        names = {f"model{number}": model for number, model in enumerate(filters.models)}
        conditions.append(f"model IN ({', '.join(f':{name}' for name in names)})")
        values |= names
    if filters.is_favourite is not None:
        require("is_favourite = :is_favourite", "is_favourite", int(filters.is_favourite))
    if filters.after is not None:
        require("created_at >= :after", "after", filters.after)
    if filters.before is not None:
        require("created_at < :before", "before", filters.before)
    if filters.tag is not None:
        require("EXISTS (SELECT 1 FROM json_each(tags) WHERE json_each.value = :tag)", "tag", filters.tag)
    indexed: list[str] = []
    for number, word in enumerate(filters.words.replace("\0", " ").split()):  # the index ends a text at NUL
        if len(word) >= INDEXED_CHARS:
            indexed.append('"' + word.replace('"', '""') + '"')
        else:
            name = f"word{number}"
            require(f"(prompt LIKE :{name} ESCAPE '\\' OR tags LIKE :{name} ESCAPE '\\')", name, f"%{_escape(word)}%")
    if indexed:
        condition = "number IN (SELECT rowid FROM outputs_text WHERE outputs_text MATCH :words)"
        require(condition, "words", " ".join(indexed))
    return " AND ".join(conditions), values


def _escape(word: str) -> str:
    return word.replace("\\", "\\\\").replace("%", "\\%").replace("_", "\\_")

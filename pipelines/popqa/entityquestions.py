"""Stage `entityquestions`: EntityQuestions with each subject found again in Wikidata and its popularity (PopQA, 3.3).

Writes data/entityquestions/{entityquestions,rejects}.parquet. The questions name their subject only in their text: the
mention is what stands in the template's place, and it counts as matched when it names exactly one entity of the dump.
"""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from pipelines import params, shards, stage
from pipelines.errors import LongtailError
from pipelines.popqa import database
from pipelines.popqa.split import ENTITY, split_of
from pipelines.sources.rejects import Rejects
from pipelines.sources.text import open_text

RAW = Path("data/raw/entityquestions")
TEMPLATES = "relation_query_templates.json"
ENTITIES = Path("data/triples/entities.parquet")
OUT = Path("data/entityquestions")
METRICS = Path("data/metrics/entityquestions.json")

READ = pa.schema(
    {
        "number": pa.int64(),  # of the question, over all files
        "question_id": pa.string(),
        "relation": pa.string(),
        "subj": pa.string(),
        "question": pa.string(),
        "possible_answers": pa.list_(pa.string()),
    }
)


def build_entityquestions(
    raw: Path, entities: Path, out: Path, *, seed: int, train_share: float, ingest: params.Ingest, threads: int
) -> dict[str, float]:
    """Write the stage's folder `out` from the files in `raw` (none: an empty table); return its counts."""
    rejects = Rejects(ingest.max_reject_share)
    questions = read_questions(raw, rejects)
    with database.connect(ingest.memory_gb, threads) as db:
        db.execute(f"CREATE TEMP VIEW entities AS SELECT * FROM '{entities}'")
        db.register("questions", questions)
        matched = match_subjects(db)
    uris = [uri or "" for uri in matched["s_uri"].to_pylist()]
    split = [s if uri else "test" for s, uri in zip(split_of(seed, uris, train_share), uris, strict=True)]
    reasons = matched["reason"].value_counts().to_pylist()
    matched = matched.drop_columns("reason").append_column("split", pa.array(split, pa.string()))
    matched = matched.append_column("matched", pc.is_valid(matched["s_uri"]))
    with shards.atomic(out) as folder:
        folder.mkdir()
        pq.write_table(matched.combine_chunks(), folder / "entityquestions.parquet", compression="zstd")
        rejects.write(folder / "rejects.parquet")
    counts = {"questions": len(matched), "relations": pc.count_distinct(matched["relation"]).as_py()}
    counts |= {f"subject.{v['values']}": v["counts"] for v in sorted(reasons, key=lambda v: v["values"])}
    counts |= {"train": split.count("train"), "test": split.count("test")}
    counts |= {"matched": pc.sum(matched["matched"]).as_py() or 0}
    counts |= {f"rejected.{reason}": n for reason, n in rejects.reasons().items()}
    return counts | {"rejected": len(rejects.rows), "matched_share": counts["matched"] / max(len(matched), 1)}


def read_questions(raw: Path, rejects: Rejects) -> pa.Table:
    """All questions, as READ, by file and row; question_id is "<relation>-<row>".

    Bad entries go to `rejects` (bad_entry, no_answer, off_template). Raises LongtailError on a file that isn't JSON
    and on missing templates.
    """
    files = sorted(raw.glob("P*.test.json"), key=lambda file: (len(file.name), file.name))
    templates = _read_json(raw / TEMPLATES, dict) if files else {}
    rows: list[dict] = []
    for file in files:
        relation = file.name.split(".")[0]
        if "[X]" not in templates.get(relation, ""):
            raise LongtailError(f"{raw / TEMPLATES}: no template with [X] for {file.name}, expected one")
        before, after = templates[relation].split("[X]")
        for number, entry in enumerate(_read_json(file, list), start=1):
            rejects.read += 1
            reason, mention = _mention(entry, before, after)
            if reason:
                rejects.add(file, number, reason, json.dumps(entry, ensure_ascii=False))
                continue
            rows.append(
                {"number": len(rows), "question_id": f"{relation}-{number}", "relation": relation, "subj": mention}
                | {"question": entry["question"], "possible_answers": entry["answers"]}
            )
    rejects.check()
    return pa.Table.from_pylist(rows, schema=READ)


def match_subjects(db: duckdb.DuckDBPyConnection) -> pa.Table:
    """Table questions with s_pop and s_uri (null unless matched) and a reason, from table entities, in the given order.

    A mention is compared with labels alone, exactly as written, because the questions were made from labels. Aliases
    bring wrong entities ("Who performed U?": uranium): of 11 matched by alias in a small real dump, none was right.
    `reason` is matched, ambiguous, without_article (so without popularity) or not_found.
    """
    return database.read(
        db,
        f"""WITH mentions AS (SELECT DISTINCT subj AS mention FROM questions),
        named AS (
            SELECT mention, count(*) AS entities, min(qid) AS qid,
                min(popularity) AS popularity, min(wiki_title) AS title
            FROM mentions JOIN entities ON label = mention GROUP BY ALL
        ), judged AS (
            SELECT mention, qid, popularity, CASE WHEN entities > 1 THEN 'ambiguous'
                WHEN title IS NULL THEN 'without_article' ELSE 'matched' END AS reason
            FROM named
        )
        SELECT question_id, relation, subj, question, possible_answers,
            CASE WHEN reason = 'matched' THEN popularity END AS s_pop,
            CASE WHEN reason = 'matched' THEN '{ENTITY}' || qid END AS s_uri,
            coalesce(reason, 'not_found') AS reason
        FROM questions LEFT JOIN judged ON mention = subj ORDER BY number""",
    )


def _mention(entry: Any, before: str, after: str) -> tuple[str, str]:
    """("", mention), or (why the entry is rejected, "")."""
    question, answers = (entry.get("question"), entry.get("answers")) if isinstance(entry, dict) else (None, None)
    if not isinstance(question, str) or not isinstance(answers, list) or any(not isinstance(a, str) for a in answers):
        return "bad_entry", ""
    if not answers:
        return "no_answer", ""
    mention = question.removeprefix(before).removesuffix(after)
    if not mention or before + mention + after != question:
        return "off_template", ""
    return "", mention


def _read_json(file: Path, kind: type) -> Any:
    try:
        value = json.loads("\n".join(open_text(file)))
    except json.JSONDecodeError as error:
        raise LongtailError(f"{file}: not JSON ({error}), expected EntityQuestions' layout; fetch it again") from None
    if not isinstance(value, kind):
        raise LongtailError(f"{file}: a JSON {type(value).__name__}, expected a {kind.__name__}; fetch it again")
    return value


def work(chosen: SimpleNamespace) -> stage.Metrics:
    counts = build_entityquestions(
        RAW,
        ENTITIES,
        OUT,
        seed=chosen.seed,
        train_share=chosen.popqa.train_share,
        ingest=chosen.ingest,
        threads=chosen.compute.threads,
    )
    shards.write_json(METRICS, counts)
    return {name: float(n) for name, n in counts.items()}


def main() -> None:
    stage.run("entityquestions", ("seed", "compute", "ingest", "popqa"), work, out=str(OUT))


if __name__ == "__main__":
    main()

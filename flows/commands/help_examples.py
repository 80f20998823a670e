"""Examples of each command, which its help shows.

"" is `longtail` alone.
"""

EXAMPLES = {
    "": ("longtail run", "longtail thresholds closed.csv rag.csv --questions popQA.tsv"),
    "run": (
        "longtail run",
        "longtail run --profile laptop",
        "longtail run --month 2026-08",
    ),
    "schedule": ("longtail schedule --port 4200",),
    "accept": (
        "longtail accept triples-rows --because 'Wikidata merged 2,000 films'",
        "longtail accept popqa-rows popqa-views --because 'a smaller world'",
    ),
    "alerts": (
        "longtail alerts --to https://hooks.example.org/longtail",
        "longtail alerts --to slack-webhook/ops",
    ),
    "plan": ("longtail plan --profile laptop", "longtail plan --json"),
    "init": ("longtail init FOLDER --lsr", "longtail init --profile sample"),
    "status": ("longtail status --all", "longtail status --json"),
    "report": ("longtail report --open",),
    "explore": ("longtail explore --open",),
    "reproduce": ("longtail reproduce",),
    "search": (
        'longtail search "Who is the father of Soni Krepam?" -k 10',
        'longtail search "Soni Krepam" --corpus pile --retriever bm25 --json',
        "longtail search --questions questions.jsonl --out passages.jsonl --layout lm-eval",
    ),
    "ask": (
        'longtail ask "Who is the father of Soni Krepam?"',
        "longtail ask --json < questions.txt",
    ),
    "link": (
        "longtail link questions.jsonl --out linked.jsonl",
        "longtail link questions.csv --entities entities.tsv --text c4.json.gz",
    ),
    "thresholds": (
        "longtail thresholds closed.csv rag.csv --questions popQA.tsv",
        "longtail thresholds closed.csv rag.csv -q popQA.tsv --subset longtail --json",
    ),
    "decide": ("longtail decide thresholds/rule.json popQA.tsv --subset longtail",),
    "compare": ("longtail compare closed.csv rag.csv --questions popQA.tsv",),
    "imports": ("longtail imports FILE --dataset popqa --lm opt-13b --method bm25",),
    "release": (
        "longtail release",
        "longtail release --to hub:OWNER/NAME --yes",
    ),
}


def epilog(name: str) -> str:
    """The end of a command's help."""
    lines = "\n".join(f"  {example}" for example in EXAMPLES[name])
    return f"\b\nExamples:\n{lines}"  # after \b a paragraph keeps its lines

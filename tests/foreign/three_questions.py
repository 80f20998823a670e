"""Three questions of PopQA, what a system said to each, and files of that."""

import json

from fetching import saved

IDS = ["4222362", "4725190", "4382392"]
ASKED = ["What is George Rankin's occupation?", 'Who wrote "Heroes"?', "What is Ho the capital of?"]
GOLD = [["politician", "pol"], ["David Bowie"], ["Ho Municipality"]]
SAID = ["politician", '"Heroes" is by Bowie, I think; yes', ""]
ROWS = list(zip(range(3), IDS, ASKED, GOLD, SAID, strict=True))


def write(tmp_path, name, content):
    return saved(
        tmp_path / name, content if isinstance(content, str | bytes) else json.dumps(content)
    )


def quoted(rows, delimiter=","):
    return "".join(
        delimiter.join('"' + c.replace('"', '""') + '"' for c in cells) + "\r\n" for cells in rows
    )


def lines(records):
    return "".join(json.dumps(record) + "\n" for record in records)

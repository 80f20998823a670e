"""Files of every data set and models of several kinds, as users have them, for `longtail init` to
find.
"""

import bz2
import gzip
import json
import struct
from pathlib import Path

import yaml

from flows import profiles
from flows.init.choices import GIB, Machine
from pipelines.params import params_file
from pipelines.params.params import Params
from pipelines.questions import published

LAPTOP = Machine(cores=4, memory=16 * GIB, gpu=False)
QUESTION = {"question": "where", "answer": ["here"]}
FILES = {  # data set -> path -> content; one of every layout, small
    "popqa": {"popQA.tsv": "\t".join(published.COLUMNS) + "\n"},
    "wikipedia": {"psgs_w100.tsv.gz": "id\ttext\ttitle\n1\tA harbour.\tVelm\n"},
    "pile": {"pile/00.jsonl": {"text": "A text.", "meta": {"pile_set_name": "Pile-CC"}}},
    "c4": {"c4/c4-train.00000-of-01024.json.gz": {"text": "A text.", "timestamp": "", "url": "https://a.example"}},
    "wikidata": {"wikidata/latest-all.json": '[\n{"type":"item","id":"Q1","labels":{},"claims":{}},\n]\n'},
    "pageviews": {"views/pageviews-202203-user.bz2": "en.wikipedia Velm 12 desktop 4 A4\n"},
    "redirects": {"enwiki-latest-redirect.sql.gz": "-- MySQL dump\nCREATE TABLE `redirect` (\n"},
    "entityquestions": {
        "eq/test/P17.test.json": [
            {"question": "Which country is Velm located in?", "answers": ["Nor"]}
        ],
        "eq/relation_query_templates.json": {"P17": "Which country is [X] located in?"},
    },
    "mmlu/dev": {"mmlu/dev/anatomy_dev.csv": "Which?,a,b,c,d,A\n"},
    "mmlu/test": {"mmlu/test/anatomy_test.csv": "Which?,a,b,c,d,A\n"},
    "nq": {"nq/NQ-open.dev.jsonl": QUESTION},
    "triviaqa": {"triviaqa/validation.jsonl": {"question": "where", "answer": {"value": "here", "aliases": []}}},
    "retrieval": {"with_passages.jsonl": {"question": "where", "answers": ["here"], "ctxs": [{"text": "Here."}]}},
    "wikitext": {"wikitext/wiki.test.tokens": " \n = Velm = \n \n A harbour . \n", "wikitext/wiki.train.tokens": " \n = Mira = \n \n A town . \n"},
}  # fmt: skip


def write(folder: Path, files: dict[str, object]) -> None:
    for name, content in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        data = (content if isinstance(content, str) else json.dumps(content) + "\n").encode()
        pack = {".bz2": bz2.compress, ".gz": gzip.compress}.get(path.suffix, bytes)
        path.write_bytes(pack(data))


def model(folder: Path, config: dict, parameters: int = 10, **files: object) -> Path:
    """A model's folder with everything but the weights' values."""
    header = json.dumps(
        {"weight": {"dtype": "F32", "shape": [parameters], "data_offsets": [0, 0]}}
    ).encode()
    write(
        folder,
        {"config.json": config, "tokenizer.json": {}}
        | {name.replace("__", "/"): f for name, f in files.items()},
    )
    (folder / "model.safetensors").write_bytes(struct.pack("<Q", len(header)) + header)
    return folder


def gpt(folder: Path, positions: int = 2048, parameters: int = 10) -> Path:
    config = {"architectures": ["GPT2LMHeadModel"], "model_type": "gpt2", "n_positions": positions}
    return model(folder, config, parameters)


def bert(folder: Path, kind: str = "BertModel", **files: object) -> Path:
    return model(
        folder,
        {"architectures": [kind], "model_type": "bert", "max_position_embeddings": 512},
        **files,
    )


def composed(name: str = "data") -> Params:
    return params_file.parse(yaml.safe_load(profiles.compose(name)))

"""The profile `paper-popqa` asks what the authors' script run_model.py asks, and judges as it
does.
"""

from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import tiny_models
import yaml
from profile_values import values_of

from pipelines.answering import answer, passages
from pipelines.lm import language_model
from pipelines.lm.language_model import Generation
from pipelines.lm.token_prompts import PromptTokenizer
from pipelines.params import params_file
from pipelines.questions import matching
from pipelines.retrieval import retriever

GOLDEN = yaml.safe_load(Path(__file__).with_name("popqa_script.yaml").read_text(encoding="utf-8"))
EVERY = [*GOLDEN["items"], *GOLDEN["others"]]
TEXTS = [item["asked"].removeprefix("Q: ").removesuffix(" A:") for item in EVERY]
SHOWN = [f"{item['asked']} {item['answer']}" for item in EVERY]
pytestmark = pytest.mark.usefixtures("workplace")


class Asked:
    """Writes a line for each passage that it is asked for, and keeps all prompts."""

    name, max_tokens, mixes, votes = "gpt-neo-1b3", 2048, True, True

    def __init__(self):
        self.answers, self.passages = [], []

    def generate(self, asked, max_tokens, stop="\n"):
        of_passages = [prompt for prompt in asked if not prompt.context.endswith(" A:")]
        assert len(of_passages) in (0, len(asked))
        assert max_tokens == (GOLDEN["settings"]["passage_tokens" if of_passages else "new_tokens"])
        (self.passages if of_passages else self.answers).extend(asked)
        return [Generation(f"\n\nOf {prompt.context[-30:]}", -1.0, 1, 1) for prompt in asked]

    def seen(self, asked, max_tokens):
        return asked


@pytest.fixture
def chosen():
    return params_file.parse(values_of("paper-popqa"))


@pytest.fixture
def ask(chosen, monkeypatch):
    """Asks all questions as the stage `answer` does, and gives the model that was asked."""
    docs = Path("data/corpus/wikipedia/docs.parquet")
    docs.parent.mkdir(parents=True)
    columns = {
        name: [item.get(name, f"{name}. {name}") for item in EVERY] for name in ("title", "text")
    }
    pq.write_table(pa.table({"id": [f"{i:02}" for i in range(len(EVERY))], **columns}), docs)

    def search(texts, k):
        first = np.array([TEXTS.index(text) for text in texts])[:, None]
        return (first + np.arange(k)) % len(EVERY), np.full((len(texts), k), 1.0, np.float32)

    monkeypatch.setattr(retriever, "open_index", lambda *_, **__: SimpleNamespace(search=search))
    relation, shown = ([item[name] for item in EVERY] for name in ("relation", "answer"))
    rows = {
        "question_id": [f"{i:02}" for i in range(len(EVERY))],
        "split": ["test"] * len(EVERY),
        "relation": relation,
    }
    rows |= {
        "question": TEXTS,
        "possible_answers": [[one] for one in shown],
        "obj": shown,
        "subj": relation,
    }
    rows["s_wiki_title"] = relation

    def ask(way, dataset="popqa"):
        lm, settings = Asked(), chosen.lm["gpt-neo-1b3"]
        source = passages.open_source(way, lm, chosen, Path("data"))
        of_file = (
            dataset,
            way,
            lm,
            source,
            chosen.answer.of(dataset, settings),
            chosen.replug,
            chosen.seed,
            f"{dataset}-{way}",
        )
        answer.answer(pa.table(rows), answer.Setup(*of_file))
        return lm

    return ask


def test_the_numbers_are_the_scripts(chosen):
    (contriever,) = (chosen.retriever[name] for name in chosen.retrievers)
    for name, value in GOLDEN["settings"].items():
        assert (
            getattr(chosen.answer if hasattr(chosen.answer, name) else contriever, name) == value
        ), name
    assert chosen.popqa.train_share == 0, "all questions are asked and shown"


@pytest.mark.parametrize("way", ["closed_book", "bm25", "dense", "genread"])
def test_every_prompt_is_the_scripts_but_for_shots_order(ask, way):
    lm = ask(way)
    assert len(lm.answers) == len(EVERY)
    for number, item in enumerate(GOLDEN["items"]):
        (prompt,) = (prompt for prompt in lm.answers if prompt.context.endswith(item["asked"]))
        passage = {"bm25": "text", "dense": "clipped"}.get(way)
        before = item[passage] + "\n\n" if passage else ""
        if way == "genread":
            before = f"Of {(GOLDEN['genread'] + TEXTS[number])[-30:]}\n\n"
        assert prompt.document == ""
        assert prompt.context.endswith(f"\n\n{before}{item['asked']}")
        shown = (
            prompt.context.removesuffix(f"{before}{item['asked']}")
            .removesuffix("\n\n")
            .split("\n\n")
        )
        assert sorted(shown) == sorted(SHOWN[:number] + SHOWN[number + 1 :])
    asked = [GOLDEN["genread"] + text for text in TEXTS] if way == "genread" else []
    assert sorted(prompt.context for prompt in lm.passages) == sorted(asked)


def test_entityquestions_shows_15_other_questions(ask):
    for prompt in ask("closed_book", "entityquestions").answers:
        *shown, asked = prompt.context.split("\n\n")
        assert sorted([*shown, next(one for one in SHOWN if one.startswith(asked))]) == sorted(
            SHOWN
        )


def test_a_too_long_prompt_keeps_its_last_tokens(ask, chosen):
    tokenizer, (prompt, *_) = tiny_models.tokenizer(bos=False), ask("dense").answers
    positions, new = 300, chosen.answer.new_tokens
    (seen,) = PromptTokenizer(tokenizer, Path(), "tiny", positions).seen([prompt], np.array([new]))
    kept = tokenizer(prompt.context, verbose=False)["input_ids"][-(positions - new) :]
    assert 0 < len(seen.context) < len(prompt.context)
    assert seen.context == tokenizer.decode(kept, clean_up_tokenization_spaces=False)


@pytest.mark.parametrize("case", GOLDEN["matching"], ids=lambda case: case["writes"].strip()[:12])
def test_an_answer_is_right_where_the_script_says_so(case):
    assert (
        matching.substring(language_model.up_to(case["writes"], "\n"), case["answers"])
        == case["right"]
    )

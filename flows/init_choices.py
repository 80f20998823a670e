"""What a profile for a folder sets: the parts that its data and models allow, and numbers that fit the machine."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from flows.machine import GIB, NEW_TOKENS, TOKENS, Machine, answer_hours, answers, shown
from flows.model_folders import Encoder, LanguageModel
from pipelines.sources import pageviews
from pipelines.sources.source_documents import is_psgs

PASSAGE = 180  # tokens of a passage with its title: more than most have
QUESTION = 30  # tokens of a question with its answer
MOST_MONTHS = 12  # of page views
SHORTEST = 16  # tokens of the last piece of a text
SHOTS = 15  # demonstrations, as PopQA's authors show
SHOTS_ON_A_CPU = 5  # which it reads in bearable time
WAYS, TUNED_WAYS = ("closed_book", "bm25", "dense", "genread", "replug"), ("lsr", "replug_lsr")
QUESTIONS = (20_000, 5_000, 2_000, 1_000, 500, 200)  # all of PopQA, or fewer
HOURS = 2.0  # that all answers may take
TRAINED = "dense"  # the name of the retriever that is trained where there is no encoder (conf/config.yaml)
ENSEMBLE = 10  # documents of REPLUG's ensemble, as its authors take
ENSEMBLE_ON_A_CPU = 5  # which it reads in bearable time
PASSAGE_TOKENS = "passage_tokens: at most, of the passage that the language model writes itself (genread)."
WRITTEN = 150  # tokens of the passage that the language model writes itself (GenRead)


@dataclass
class Choices:
    parts: dict
    data_sets: list[str]  # that are fetched, as under fetch.files
    set_aside: dict[str, str]  # data sets that are there and not fetched -> why
    sections: dict[str, dict | list]  # of the profile, without fetch
    notes: dict[str, list[str]]  # section -> comments above it
    advice: list[str]  # for the terminal
    uses_lms: bool

    def commands(self, name: str) -> list[str]:
        """What to run next."""
        if self.uses_lms or not self.parts["answered"]:
            return [f"longtail plan --profile {name}", f"longtail run --profile {name}"]
        imported = f"longtail imports FILE --dataset {self.parts['answered'][0]} --lm NAME --method METHOD"
        return [
            f"longtail run popqa --profile {name}",
            f"{imported}   # closed_book, and one with retrieval",
            "longtail run",
        ]


def choose_parts(
    files: dict[str, list[Path]],
    lms: Sequence[LanguageModel],
    encoders: Sequence[Encoder],
    machine: Machine,
    *,
    lsr: bool = False,
) -> Choices:
    """The profile's content for `files` by data set; `lms` are smallest first, of `encoders` the first is used."""
    retriever = encoders[0].name if encoders else TRAINED
    parts, set_aside = _parts(files, retriever, lsr=lsr)
    data_sets = _needed(files, parts)
    set_aside |= {key: "nothing in this run needs it" for key in files if key not in {*data_sets, *set_aside}}
    uses_lms = bool(parts["corpora"]) and bool(parts["answered"] or parts["scored"] or parts["benchmarks"])
    if not uses_lms:
        parts["tuned"] = []
    choices = Choices(parts, data_sets, set_aside, {}, {}, [], uses_lms)
    _machine(choices, lms if uses_lms else [], machine)
    choices.sections["parts"] = parts
    choices.notes["parts"] = ["What the run is made of; an empty list leaves its stages out."]
    if parts["corpora"] and not parts["tuned"]:
        choices.notes["parts"].append(f"tuned: [{retriever}] would tune it to the language model (--lsr).")
    choices.notes["parts"] += _explained(parts, uses_lms=uses_lms)
    choices.sections["retrievers"] = [retriever] if parts["corpora"] else []
    ways = [*WAYS, *TUNED_WAYS * bool(parts["tuned"])] if uses_lms and parts["answered"] else []
    choices.sections["ways"], choices.notes["ways"] = ways, _of_ways(ways, retriever)
    _questions(choices, files)
    if parts["corpora"]:
        _corpora(choices, files, encoders, machine)
    if uses_lms:
        _language_models(choices, lms, machine)
    else:
        choices.sections["lms"], choices.sections["lsr"] = [], {"lm": None}
        why = "Passages are missing, so no language model is asked here. Import answers made elsewhere."
        choices.notes["lms"] = [why if parts["answered"] else "Nothing here asks a language model."]
    return choices


def _of_ways(ways: Sequence[str], retriever: str) -> list[str]:
    """The ways of answering, in plain words."""
    said = [
        "Every question is answered in each of these ways; take out what you do not need:",
        "  closed_book: the question alone",
        f"  bm25, dense: with the best passage, found by words (BM25) or by the encoder {retriever} (dense)",
        "  genread: the language model first writes a passage itself",
        "  replug: an ensemble of replug.top_k prompts, each with another passage",
    ]
    return [*said * bool(ways), *["  lsr, replug_lsr: as dense and replug, by the tuned encoder"] * ("lsr" in ways)]


def _explained(parts: dict, *, uses_lms: bool) -> list[str]:
    """How a run gets short, and what `passages` is not."""
    notes = []
    if parts["corpora"] and not parts["passages"]:
        notes.append("passages are question sets that come with passages, to measure recall on; datastore is searched.")
    if uses_lms:
        short = ["answer.max_questions: 60 (too few for thresholds, which need about 200)"] * bool(parts["answered"])
        short += ["ways without replug (no ensembles of passages)"] * bool(parts["answered"])
        short += ["logprobs.max_queries: 100 (fewer texts scored)"] * bool(parts["scored"])
        notes.append(f"For a short run: {', '.join(short)}.")
    return notes


def _parts(files: dict[str, list[Path]], retriever: str, *, lsr: bool) -> tuple[dict, dict[str, str]]:
    """The section `parts`, and the data sets that can't be used, with why."""
    aside: dict[str, str] = {}
    lacking = [key for key in ("wikidata", "pageviews", "c4") if key not in files]
    knowledge = [] if lacking else ["wikidata"]
    for key in ("wikidata", "pageviews", "c4") if lacking else ():
        if key in files:
            aside[key] = f"triples need {' and '.join(lacking)} too"
    sets = [key for key in ("popqa",) if key in files or knowledge]
    if "entityquestions" in files and knowledge:
        sets.append("entityquestions")
    elif "entityquestions" in files:
        aside["entityquestions"] = "its subjects are linked to Wikidata: it needs wikidata, pageviews and c4"
    answered = list(sets)
    sets += ["nq"] if knowledge and "nq" in files else []
    queries = [file for file in files.get("wikitext", []) if "test" in file.name]
    whole = len(queries) not in (0, len(files.get("wikitext", [])))
    if "wikitext" in files and not whole:
        aside["wikitext"] = "it takes a file named test, whose articles are queries, and another one, to retrieve from"
    corpora = [name for name in ("wikipedia", "pile") if name in files] + ["wikitext"] * whole
    datastore = next((name for name in corpora if name != "wikitext"), None)
    benchmarks = ["mmlu"] if "mmlu/test" in files else []
    benchmarks += [name for name in ("nq", "triviaqa") if name in files]
    if not datastore:
        for key in files:
            if key.partition("/")[0] in {*benchmarks, "retrieval"}:
                aside[key] = "needs passages to answer from (wikipedia or pile)"
    parts = {
        "knowledge": knowledge,
        "question_sets": sets,
        "answered": answered,
        "corpora": corpora,
        "datastore": datastore,
        "scored": [name for name in corpora if name != "wikipedia"],
        "benchmarks": benchmarks if datastore else [],
        "passages": ["retrieval"] if "retrieval" in files and datastore else [],
        "tokenizers": ["documents"] if corpora else [],
        "tuned": [retriever] if lsr and corpora else [],
        "rules": ["popularity"] if answered else [],
        "exposure": [name for name in (*["c4"] * bool(knowledge), *corpora) if answered and name != "wikitext"],
    }
    return parts, aside


def _needed(files: dict[str, list[Path]], parts: dict) -> list[str]:
    """The data sets that these parts read, in the order of `files`."""
    names = {*parts["question_sets"], *parts["corpora"], *parts["benchmarks"], *parts["passages"]}
    names |= {"wikidata", "pageviews", "redirects", "c4"} if parts["knowledge"] else set()
    return [key for key in files if key.partition("/")[0] in names]


def _machine(choices: Choices, lms: Sequence[LanguageModel], machine: Machine) -> None:
    """As many processes at once as have a language model each in memory; other cores become their threads."""
    largest = max((4 * lm.parameters for lm in lms), default=0)
    workers = max(1, min(machine.cores, int(0.5 * machine.memory // max(largest + GIB, 1))))
    compute = {"threads": max(1, machine.cores // workers), "workers": workers}
    if machine.gpu:
        compute["device"] = "cuda"
    memory = max(1.0, float(machine.memory // GIB // 4))
    choices.sections |= {"compute": compute, "ingest": {"memory_gb": memory}}
    shown = f"{machine.cores} cores and {machine.memory / GIB:.0f} GiB of memory{' and a GPU' * machine.gpu}"
    choices.notes["compute"] = [f"For {shown}: workers are processes at once, each with so many threads."]


def _questions(choices: Choices, files: dict[str, list[Path]]) -> None:
    parts, sections, notes = choices.parts, choices.sections, choices.notes
    if "popqa" in files:
        sections["popqa"] = {"source": "published", "sampling": "all"}
        notes["popqa"] = ["The questions and popularities of popQA.tsv, as published."]
        if parts["knowledge"]:
            notes["popqa"].append("source: both would add questions made from Wikidata.")
    elif parts["knowledge"]:
        sections["popqa"] = {"source": "wikidata"}
        notes["popqa"] = ["There is no popQA.tsv, so the questions are made from Wikidata."]
    if parts["answered"] and not parts["tuned"]:
        sections.setdefault("popqa", {})["train_share"] = 0.0
        notes["popqa"].append("No retriever is tuned, so no question is set aside to learn from (train_share).")
    if parts["knowledge"]:
        months = {named["month"] for file in files["pageviews"] if (named := pageviews.FILE.match(file.name))}
        if months:
            last, count = f"{max(months)[:4]}-{max(months)[4:]}", min(len(months), MOST_MONTHS)
            sections["popularity"] = {"month": last} | ({"months": count} if count > 1 else {})
            notes["popularity"] = ["The month of the page views, by the files' names."]
            if count > 1:
                notes["popularity"].append("Of several months the last one counts; the report compares their mean.")


def _corpora(choices: Choices, files: dict, encoders: Sequence[Encoder], machine: Machine) -> None:
    sections, notes = choices.sections, choices.notes
    sections["chunk"] = {"tokens": TOKENS, "min_tokens": SHORTEST}
    notes["chunk"] = ["Documents of about 100 words, as in the papers."]
    if any(map(is_psgs, files.get("wikipedia", ()))):
        notes["chunk"].append(
            "DPR's passages stay as they are; this cuts other texts, and `longtail plan` counts with it."
        )
    if choices.parts["scored"]:
        sections["queries"] = {"context_tokens": 128, "continuation_tokens": 128}
        sections["windows"] = {"context_tokens": 128, "stride_tokens": 128}
        if "pile" in choices.parts["corpora"]:
            sections["corpus"] = {"pile": {"query_share": 0.2}}
            notes["corpus"] = ["A fifth of the texts become queries; the others are retrieved."]
    memory = max(1.0, float(machine.memory // GIB // 4))
    sections["index"] = {"memory_gb": memory}
    for encoder in encoders:
        query_path = encoder.query_folder and str(encoder.query_folder.absolute())
        of_encoder = {
            "source": "pretrained", "path": str(encoder.folder.absolute()), "revision": None,
            "query_path": query_path, "query_revision": None, "pooling": encoder.pooling,
            "similarity": encoder.similarity, "query_prefix": encoder.query_prefix, "document": encoder.document,
            "dtype": "fp32", "batch_tokens": 65536 if machine.gpu else 4096, "max_tokens": encoder.max_tokens,
            "training": None,
        }  # fmt: skip
        sections["retriever"] = {encoder.name: of_encoder}
        notes["retriever"] = [reason for reason in encoder.reasons if reason]
    if choices.parts["tuned"]:
        parts = choices.parts
        learnt = "mixed" if parts["answered"] and parts["scored"] else "qa" if parts["answered"] else "lm"
        sections["lsr"] = {"queries": learnt}
        if encoders:
            sections["lsr"] |= {"learning_rate": 0.00002, "beta": 0.1, "micro_batch": 64}
            notes["lsr"] = ["REPLUG's learning rate and temperature. `longtail plan` estimates the hours."]


def _language_models(choices: Choices, lms: Sequence[LanguageModel], machine: Machine) -> None:
    sections, notes = choices.sections, choices.notes
    top_k = ENSEMBLE if machine.gpu else ENSEMBLE_ON_A_CPU
    sections["replug"] = {"top_k": top_k}
    notes["replug"] = ["REPLUG reads so many documents with each question, each in its own prompt; fewer save time."]
    if not lms:
        training = {"positions": 384, "phases": [{"until": 1.0, "weights": {}}]}
        sections["lm"], sections["lm_text"] = {"tiny": {"training": training}}, "corpus"
        sections["tokenizer"] = {"vocab_size": 4096, "text": [n for n in choices.parts["corpora"] if n != "wikitext"]}
        notes["lm"] = ["No language model was there: this small one is trained on your texts, to try the stages."]
        sections["answer"] = {"passage_tokens": WRITTEN}  # the small model reads 384 at once
        notes["answer"] = [PASSAGE_TOKENS]
        return
    main = lms[0]
    sections["tokenizer"] = {"source": "pretrained", "path": str(main.folder.absolute()), "vocab_size": None}
    notes["tokenizer"] = [f"{main.name}'s tokenizer cuts the corpora."]
    sections["lms"] = [lm.name for lm in lms]
    notes["lms"] = ["The first one is the main one."] if len(lms) > 1 else []
    sections["lm"] = {
        lm.name: {
            "source": "pretrained", "path": str(lm.folder.absolute()), "revision": None, "http": None,
            "dtype": "fp32" if 4 * lm.parameters < 0.4 * machine.memory else "bf16",
            "batch_tokens": 32768 if machine.gpu else 4096, "training": None, "chat": False, "n_shots": None,
        }
        for lm in lms
    }  # fmt: skip
    notes["lm"] = [
        f"{lm.name} has a chat template, which chat: false does not use: the papers have models complete plain "
        "prompts, and only such figures compare with theirs. Set chat: true to measure it as an assistant answers."
        for lm in lms
        if lm.chat
    ]
    positions = min(lm.positions for lm in lms)
    fits = (positions - NEW_TOKENS - PASSAGE - QUESTION) // (PASSAGE + QUESTION)
    n_shots = max(0, min(fits, SHOTS if machine.gpu else SHOTS_ON_A_CPU))
    written = min(WRITTEN, positions // 4)
    answer = {"n_shots": n_shots, "passage_tokens": written}

    def hours(questions: int) -> float:
        asked = answers(choices.parts, sections["ways"], {"max_questions": questions} | answer, top_k)
        return answer_hours(asked, lms, sections["compute"], machine)

    questions = next((n for n in QUESTIONS if hours(n) <= HOURS), QUESTIONS[-1])
    sections["answer"] = {"max_questions": questions} | answer
    if choices.parts["answered"]:
        sets = " of each set" * (len(choices.parts["answered"]) > 1)
        said = f"Answers to {questions:,} questions{sets} by all methods take about {shown(hours(questions))} here"
        said += ", by the speed of its matrix products."
        why = (
            "fit beside a passage"
            if n_shots == fits
            else "are the authors'"
            if machine.gpu
            else "keep a CPU's time short"
        )
        notes["answer"] = [
            said,
            f"n_shots: so many demonstrations {why}; PopQA's authors show {SHOTS}.",
            PASSAGE_TOKENS,
        ]
        choices.advice.append(said + " answer.max_questions changes that.")
    if choices.parts["benchmarks"]:
        sections["tasks"] = {"mmlu_shots": 5 if positions >= 4096 else 0}

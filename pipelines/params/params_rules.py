"""Which values of params.yaml may stand together: each rule names a key, and what its
value should be.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from pipelines import catalogue, methods, subsets
from pipelines.errors import LongtailError
from pipelines.language import language
from pipelines.methods import Method
from pipelines.params.params import LM, LSR, Params

CATALOGUE_USES = {  # part -> what its data sets are used for in the catalogue, where it differs
    "question_sets": "questions",
    "answered": "questions",
    "corpora": "documents",
}


VALIDATED_ON = {  # figure by which encoders are compared -> the queries that give it
    "recall_at_1": "questions (parts.answered, popqa.train_share)",
    "bits_per_byte": "texts (parts.scored, queries.validation_share)",
}


class RuleBroken(Exception):
    """A value that can't stand beside the others."""

    def __init__(self, key: str, problem: str) -> None:
        super().__init__(f"{key}: {problem}")
        self.key = key  # dotted, as thresholds.pairs.0.below
        self.problem = problem  # what the value should be, or what is wrong


def check_rules(params: Params) -> None:
    """Raise RuleBroken for the first rule that does not hold. A rule may rely on the rules before
    it.
    """
    _check_names(params)
    _check_sections(params)
    for name, lm in params.lm.items():
        _check_lm(f"lm.{name}", lm)
    for name, retriever in params.retriever.items():
        _require_listed(f"retriever.{name}.vectors", [*retriever.vectors], params.parts.corpora)

    _check_lsr(params.lsr)
    _check_language(params)
    _check_corpora(params)
    _check_questions(params)
    _check_parts(params)
    _check_ways(params)


def _require(holds: bool, key: str, problem: str) -> None:
    if not holds:
        raise RuleBroken(key, problem)


def _require_listed(key: str, names: Sequence[str], allowed: Collection[str]) -> None:
    are_distinct = len(set(names)) == len(names)
    are_allowed = set(names) <= set(allowed)
    _require(
        are_distinct and are_allowed, key, f"should be names, each once, of: {', '.join(allowed)}"
    )


def _check_names(params: Params) -> None:
    """Names are names of something, each once."""
    _require_listed("language", [params.language], language.codes())
    for part in ("question_sets", "answered", "corpora", "passages"):
        use = CATALOGUE_USES.get(part, part)
        _require_listed(f"parts.{part}", getattr(params.parts, part), catalogue.names(use))
    _require_listed("lms", params.lms, params.lm)
    _require_listed("retrievers", params.retrievers, params.retriever)
    _require_listed("answer.sets", [*params.answer.sets], catalogue.names("questions"))
    if params.popqa.subset:
        _require_listed("popqa.subset", [params.popqa.subset], subsets.read_subsets())
    of_files = methods.of_kinds(params.ways, *methods.GIVEN)
    _require_listed("answer.clipped", params.answer.clipped, [*methods.INDEXES, *of_files])


def _check_sections(params: Params) -> None:
    queries = params.queries
    _require(
        queries.test_share + queries.validation_share <= 1,
        "queries.test_share",
        f"should be at most 1 with queries.validation_share, {queries.validation_share}",
    )

    scored_documents = params.logprobs.top_k
    _require(
        params.replug.top_k <= scored_documents,
        "replug.top_k",
        f"should be at most logprobs.top_k, {scored_documents}",
    )

    for number, pair in enumerate(params.thresholds.pairs):
        key = f"thresholds.pairs.{number}.below"
        _require(pair.below != pair.above, key, "should be other answers than above's")


def _check_lm(key: str, lm: LM) -> None:
    """A language model's settings fit where it is."""
    if lm.http:
        _require(bool(lm.path), f"{key}.path", "should be the model's name on the server")
        if lm.http.max_cost:
            _require(
                lm.http.prompt_price > 0,
                f"{key}.http.max_cost",
                "should be null where prompt_price is 0: nothing would ever be counted",
            )

    if lm.chat:
        _require(
            lm.http is None or not lm.http.tokenizer,
            f"{key}.chat",
            "should be false where http.tokenizer is set: "
            "the chat interface takes texts, not tokens",
        )


def _check_lsr(lsr: LSR) -> None:
    for query_type, count in (("lm", lsr.lm_queries), ("qa", lsr.qa_queries)):
        if lsr.queries in (query_type, "mixed"):
            _require(
                count > 0,
                f"lsr.{query_type}_queries",
                f"should be at least 1 with lsr.queries: {lsr.queries}",
            )

    if lsr.likelihood in ("answer_right", "holds_answer"):
        _require(
            lsr.queries == "qa",
            "lsr.queries",
            f"should be qa with lsr.likelihood: {lsr.likelihood}, "
            "as a text's continuation has no right answer",
        )

    if lsr.keep == "best":
        _require(
            lsr.validation_queries > 0,
            "lsr.keep",
            "should be last with lsr.validation_queries: 0, which choose no encoder",
        )


def _check_language(params: Params) -> None:
    """Only PopQA from Wikidata can be had in other languages; published questions are English."""
    question_sets = params.parts.question_sets
    code = params.language
    if code != "en":
        english = ", ".join(name for name in question_sets if name != "popqa")
        _require(
            not english,
            "parts.question_sets",
            f"should be popqa alone with language: {code}; {english} is English",
        )

        if "popqa" in question_sets:
            _require(
                params.popqa.source == "wikidata",
                "popqa.source",
                f"should be wikidata with language: {code}",
            )

    if params.popqa.source == "wikidata":
        _require(
            params.popqa.subset is None,
            "popqa.subset",
            "should be null with popqa.source: wikidata, as only published questions have its ids",
        )


def _check_corpora(params: Params) -> None:
    parts = params.parts
    _require(
        set(parts.corpora) <= set(params.corpus),
        "parts.corpora",
        "has no settings in the section corpus for one of them",
    )

    for name, corpus in params.corpus.items():
        can_join = name in catalogue.names("joined_lines") and corpus.test_files is not None
        _require(
            corpus.test_lines is None or can_join,
            f"corpus.{name}.test_lines",
            "should be null: lines are joined in WikiText's test_files alone",
        )

    tested = []
    for name in parts.corpora:
        corpus = params.corpus[name]
        if corpus.test_files or (corpus.query_share > 0 and params.queries.test_share > 0):
            tested.append(name)

    _require(
        set(parts.scored) <= set(tested),
        "parts.scored",
        f"only {tested} have test texts "
        "(corpus.*.test_files, or query_share and queries.test_share)",
    )


def _check_questions(params: Params) -> None:
    """Question sets have the data that they are built from."""
    parts = params.parts
    _require(
        set(parts.answered) <= set(parts.question_sets),
        "parts.answered",
        "should be among question_sets",
    )

    popqa_is_published = params.popqa.source == "published" and not params.popqa.refresh
    from_triples = []
    for name in parts.question_sets:
        is_published = name == "popqa" and popqa_is_published
        if catalogue.DATASETS[name].triples and not is_published:
            from_triples.append(name)

    if from_triples:
        _require(
            bool(parts.knowledge),
            "parts.knowledge",
            f"should be [wikidata], which {from_triples} need",
        )


def _check_parts(params: Params) -> None:
    """Each part has the parts that it needs."""
    parts = params.parts
    has_answers = bool(parts.answered and params.lms)
    _check_models(params, has_answers)

    if parts.corpora or has_answers:
        should = "should be [documents], for corpora and lms"
        _require(bool(parts.tokenizers), "parts.tokenizers", should)
    if params.retrievers:
        problem = "retrievers search them, and there are none"
        _require(bool(parts.corpora), "parts.corpora", problem)
    if parts.tuned:
        problem = "a retriever is tuned on them, and there are none"
        _require(bool(parts.corpora), "parts.corpora", problem)

    if parts.rules:
        should = "should have a set, which thresholds need"
        _require(bool(parts.answered), "parts.answered", should)

    searches = any(Method.of_name(way).kind in methods.INDEXES for way in params.ways)
    if parts.passages or (has_answers and searches):
        should = "should be the one of corpora that answers questions"
        _require(parts.datastore in parts.corpora, "parts.datastore", should)


def _check_models(params: Params, has_answers: bool) -> None:
    """Each part has the language models and retrievers that it needs."""
    parts = params.parts
    has_scores = bool(parts.tuned or parts.scored)
    if parts.corpora and (has_scores or has_answers):
        should = "with parts.corpora, language models need at least one"
        _require(bool(params.retrievers), "retrievers", should)
    _require_listed("parts.tuned", parts.tuned, params.retrievers)
    if has_scores:
        problem = "parts tuned and scored need one of lms"
        _require(bool(params.lms), "lms", problem)
    if parts.tuned:
        should = f"should be one of lms, {', '.join(params.lms)}"
        _require(params.lsr.lm in params.lms, "lsr.lm", should)
        _check_best_by(params)


def _check_best_by(params: Params) -> None:
    """LSR compares encoders by a figure that the run can have."""
    lsr = params.lsr
    parts = params.parts
    if not lsr.validation_queries:
        return
    if lsr.best_by == "recall_at_1":
        learnt_sets = catalogue.with_train_split(parts.answered)
        has_figure = bool(learnt_sets) and params.popqa.train_share > 0
    else:
        has_figure = bool(parts.scored) and _has_validation(parts.scored[0], params)

    needs = VALIDATED_ON[lsr.best_by]
    problem = f"encoders are compared by {lsr.best_by}, which needs {needs}"
    _require(has_figure, "lsr.queries", problem)


def _has_validation(name: str, params: Params) -> bool:
    """Whether texts of a corpus are kept for validation."""
    corpus = params.corpus[name]
    has_share = corpus.query_share > 0 and params.queries.validation_share > 0
    return corpus.validation_files is not None or has_share


def _check_ways(params: Params) -> None:
    """Ways of answering are methods that have what they need."""
    has_answers = bool(params.parts.answered and params.lms)
    if has_answers:
        for way in params.ways:
            _check_way(way, params)

    _require(len(set(params.ways)) == len(params.ways), "ways", "should have each way once")
    if not has_answers:
        return

    for pair in params.thresholds.pairs:
        for way in (pair.above, pair.below):
            if Method.of_name(way).kind in methods.METHODS:  # others are imported
                _require(
                    way in params.ways,
                    "thresholds.pairs",
                    f"{way}: should be among ways; add it, or drop the pair",
                )


def _check_way(way: str, params: Params) -> None:
    try:
        method = Method.parse(way, params.retrievers)
    except LongtailError as error:
        raise RuleBroken("ways", str(error)) from None

    short_name = method.short_name(params.retrievers)
    _require(
        way == short_name,
        "ways",
        f"{way}: should be {short_name}, as the main retriever's ways have no name",
    )

    if methods.INDEXES.get(method.kind) == "lsr":
        _require(
            method.retriever in params.parts.tuned,
            "ways",
            f"{way}: needs {method.retriever} among parts.tuned; leave it out, or tune it",
        )

    if method.kind in methods.GIVEN:
        folder = f"retrieval/{method.retriever}" if method.retriever else "retrieval"
        _require(
            folder in params.fetch.files,
            f"fetch.files.{folder}",
            f"should name the file that has the passages of {way}",
        )

    if method.kind in methods.GIVEN:
        _require(
            "retrieval" in params.parts.given_passages,
            "parts.given_passages",
            f"should be [retrieval], as {way} answers from it",
        )

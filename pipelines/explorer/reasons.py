"""Why answers are wrong: whose page the model read, and whether a passage holds the answer."""

from collections.abc import Mapping

# What the best passage of an answer is, and its words. `page`: it is not known whose page it is.
READ = {
    "namesake": "the page of a namesake",
    "subject": "the subject\N{RIGHT SINGLE QUOTATION MARK}s own page",
    "another": "another page",
    "page": "a page",
    "written": "a passage that it wrote itself",
    "nothing": "no passage",
}
# SQL for one of READ, of the rows of predictions.
READ_OF = """CASE WHEN {answer}doc_is_subject THEN 'subject'
    WHEN {answer}doc_is_namesake THEN 'namesake'
    WHEN NOT ({answer}doc_is_subject OR {answer}doc_is_namesake) THEN 'another'
    WHEN {answer}passage IS NOT NULL THEN 'written'
    WHEN {answer}doc_title IS NOT NULL THEN 'page'
    ELSE 'nothing' END"""
# Reasons that the first page counts: what was read, one of COUNTED, and the end of its words.
REASONS = (
    ("namesake", "wrong", ""),
    ("subject", "wrong", ""),
    ("another", "wrong", ""),
    ("written", "wrong", ""),
    ("page", "holds", " that holds the answer"),
    ("page", "lacks", " that does not hold the answer"),
)
# Whether a passage that was read holds a right answer.
PASSAGES = {"holds": "a passage holds the answer", "lacks": "no passage holds the answer"}
# What is counted of wrong answers -> the fields of a slice that choose what is counted.
COUNTED: dict[str, Mapping[str, str]] = {
    "wrong": {},
    "holds": {"passage": "holds"},
    "lacks": {"passage": "lacks"},
    "base": {"cell": "base"},
}

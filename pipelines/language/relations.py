"""The relations that questions ask about, each with its template in a language (PopQA, appendix A,
Table 2).
"""

import json
import re
from dataclasses import dataclass
from pathlib import Path

from pipelines import yaml_files
from pipelines.errors import LongtailError
from pipelines.language.language import ENGLISH, Language

FILE = Path(__file__).with_name("relations.yaml")
PROPERTY = re.compile(r"P[1-9]\d*")  # a Wikidata property's id


@dataclass(frozen=True)
class Relation:
    """A relation with its template in a language."""

    pid: str  # Wikidata property, such as "P106"
    name: str  # in the published column `prop`
    template: str  # with one {} for the subject's label

    def question(self, subject: str) -> str:
        """The question about a subject's label."""
        return self.template.replace("{}", subject)


def read_relations(path: Path = FILE, language: Language = ENGLISH) -> dict[str, Relation]:
    """Relations by property id, in the file's order, with the language's templates; those without
    one are left out.

    English has all. Raises LongtailError with the name of a faulty entry.
    """
    names = yaml_files.read(path)
    _check_names(path, names)
    templates = language.templates
    without_name = sorted(templates.keys() - names.keys())
    if without_name:
        raise LongtailError(
            f"{path.name}: no name of {without_name[0]}, of which {language.name} has a template; "
            "add it"
        )
    without_template = [pid for pid in names if pid not in templates]
    if language == ENGLISH and without_template:
        raise LongtailError(
            f"languages/en.yaml: no template of {without_template[0]}, which {path.name} has; "
            "add one"
        )
    relations = {}
    for pid, name in names.items():
        if pid in templates:
            relations[pid] = Relation(pid, name, templates[pid])
    return relations


def _check_names(path: Path, names: dict) -> None:
    """Raise LongtailError with the first entry that is not a property with a name of its own."""
    values = [*names.values()]
    for pid, name in names.items():
        is_own = isinstance(name, str) and values.count(name) == 1
        if not PROPERTY.fullmatch(str(pid)) or not is_own:
            raise LongtailError(
                f"{path.name}: {pid!r} is {name!r}, expected P<number> and a name that no other has"
            )


def property_ids(templates: Path) -> list[str]:
    """The properties whose claims are read: PopQA's, and EntityQuestions' if its `templates` are
    fetched.
    """
    ids = set(RELATIONS)
    if templates.is_file():
        try:
            # "P106", but also unused wordings, "P19_similar"
            keys = json.loads(templates.read_bytes()).keys()
        except (ValueError, AttributeError, RecursionError):
            raise LongtailError(
                f"{templates}: no JSON object of templates by property; fetch it again"
            ) from None
        ids.update(key for key in keys if PROPERTY.fullmatch(key))
    return sorted(ids, key=_number)


def _number(pid: str) -> int:
    return int(pid[1:])


RELATIONS = read_relations()  # with English templates
BY_NAME = {relation.name: pid for pid, relation in RELATIONS.items()}


def name_of(relation: str) -> str:
    """The name of a relation by its property's id; any other text as it is."""
    if relation not in RELATIONS:
        return relation
    return RELATIONS[relation].name

"""Write what a reader sees of the templates that are part of a sentence, such as 5 km for
{{convert|5|km}}.

The tables of wikitext.yaml hold for every Wikipedia, those of a language's file for its own. A
template of neither is dropped. A table maps a form to the templates that are shown so.
wikitext.yaml says how a form is written.
"""

import re
from collections.abc import Mapping
from functools import lru_cache

from pipelines.corpus.template_forms import Named, Parameters, check, filled
from pipelines.corpus.template_kinds import KINDS, WIKITEXT, Field
from pipelines.language.language import MediaWiki

NAMES_KEPT = 1 << 14  # names of templates whose form is kept: the same few are everywhere


class Wiki:
    """What one Wikipedia shows of its templates, and which links it hides.

    Raises LongtailError for a form that can't be read.
    """

    def __init__(self, media: MediaWiki) -> None:
        self._media = media
        self.form = lru_cache(NAMES_KEPT)(self._form)
        self.variants = tuple(media.variants.split())
        prefixes = "|".join(map(re.escape, media.hidden_links.split()))
        self.hidden_link = re.compile(rf"\s*({prefixes})\s*:", re.IGNORECASE)

        self._forms = _by_name(WIKITEXT["shown"]) | _by_name(media.shown)
        self._forms_of_patterns: list[tuple[re.Pattern[str], str]] = []
        for table in (media.shown_patterns, WIKITEXT["shown_patterns"]):
            for form, patterns in table.items():
                pattern = re.compile("|".join(patterns))
                self._forms_of_patterns.append((pattern, form))
        forms = set(self._forms.values())
        forms.update(form for _, form in self._forms_of_patterns)
        for form in sorted(forms):
            check(form, KINDS)

    def _form(self, template: str) -> str | None:
        """How a template is shown, "" if it shows nothing of a sentence, None if it is not known.

        `template` is its name, or a function with its first parameter, as "formatnum:5".
        """
        name = _name(template)
        function, colon, _ = name.partition(":")
        form = self._forms.get(name)
        if form is None and colon:
            form = self._forms.get(function + colon)
        if form is not None:
            return form
        for pattern, form_of_pattern in self._forms_of_patterns:
            if pattern.fullmatch(name):
                return form_of_pattern
        return None

    def text(self, template: str, parameters: list[Named]) -> str | None:
        """The text that a reader sees of a template with these (name or None, value) parameters;
        None if it is not known or has no parameter that its form asks for.
        """
        form = self.form(template)
        if form is None:
            return None
        function, colon, first = template.partition(":")
        if colon and _name(template) not in self._forms:
            template = function
            parameters = [(None, first), *parameters]
        values = Parameters(" ".join(template.split()), parameters)

        def value(field: str, kind: str | None) -> str | None:
            if kind:
                return KINDS[kind](Field(self._media, values, field))
            return values.get(field) or None

        return filled(form, value)


@lru_cache(maxsize=4)
def read_wiki(media: MediaWiki) -> Wiki:
    """What a language's Wikipedia shows; its tables are read once."""
    return Wiki(media)


def _by_name(names_of: Mapping[str, list[str]]) -> dict[str, str]:
    """Each template of a table -> its form."""
    form_of: dict[str, str] = {}
    for form, names in names_of.items():
        form_of |= dict.fromkeys(names, form)
    return form_of


def _name(template: str) -> str:
    return " ".join(template.replace("_", " ").split()).lower()

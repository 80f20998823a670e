"""The sample world as Wikimedia's dumps: Wikidata's entities, page views and Wikipedia's pages."""

from collections.abc import Iterator
from typing import NamedTuple
from xml.sax.saxutils import escape

import msgspec

from pipelines import draws
from pipelines.language.relations import RELATIONS
from sample.make.facts import ALIASES, MAX_DRAW, OBJECTS, RELATION_IDS, World
from sample.make.text_corpora import page, subject_of

VIEWS_SPREAD = 0.2  # of log10 of an article's views, from month to month
WIKIS = {  # wiki -> views of English Wikipedia for one of its own
    "de.wikipedia": 7,
    "en.wikipedia": 1,
    "en.wiktionary": 11,
}
PAGE_IDS = 1000  # an item's page has this id plus the item
REDIRECT_IDS = 10**8  # page ids from here on are of redirects
TALK_IDS = 2 * 10**8
NAMELESS_ITEMS = 10**8  # numbers of items without an English label
XML_HEAD = """\
<mediawiki xmlns="http://www.mediawiki.org/xml/export-0.11/" version="0.11" xml:lang="en">
  <siteinfo>
    <sitename>Wikipedia</sitename>
    <dbname>enwiki</dbname>
    <base>https://en.wikipedia.org/wiki/Main_Page</base>
    <generator>MediaWiki 1.38</generator>
    <case>first-letter</case>
    <namespaces>
      <namespace key="0" case="first-letter" />
      <namespace key="1" case="first-letter">Talk</namespace>
    </namespaces>
  </siteinfo>
"""


class Claim(NamedTuple):
    """A statement of Wikidata about an item."""

    relation: str
    item: int | None  # None where the value is unknown
    rank: str = "normal"


def wikidata(world: World) -> Iterator[bytes]:
    """A Wikidata JSON dump: one entity a line within [ ], with what readers have to handle.

    Some claims are deprecated, outdated or unknown, some entities have no English label, and there
    are properties.
    """
    yield b"[\n"
    for relation in RELATION_IDS:
        labels = _text(RELATIONS[relation].name)
        prop = {"type": "property", "datatype": "wikibase-item", "id": relation, "labels": labels}
        yield _line(prop)

    for item, label in enumerate(world.value_labels):
        aliases = ALIASES.get(label, [])
        yield _line(_item(world, item, label, [], aliases))

    for block, rng in world.blocks("wikidata"):
        chances = rng.random((len(block), 4)).tolist()
        numbers = rng.integers(0, MAX_DRAW, len(block)).tolist()
        for entity, chance, number in zip(block, chances, numbers, strict=True):
            label = world.labels[entity]
            first, _, last = label.partition(" ")
            aliases = []
            if last and chance[1] < 0.3:
                aliases.append(f"{first[0]}. {last}")
            claims = _claims(world, entity, chance[0], number)
            item = world.item(entity)
            yield _line(_item(world, item, label, claims, aliases))

            if chance[2] < 0.01:
                yield _line(_nameless(entity, label))

    human = {
        "type": "item",
        "id": "Q5",
        "labels": _text("human"),
        "aliases": {},
        "descriptions": {},
        "claims": {},
        "sitelinks": _sitelinks("Human", "enwiki"),
    }
    yield _line(human).replace(b",\n", b"\n]\n")


def _line(entity: dict) -> bytes:
    return msgspec.json.encode(entity) + b",\n"


def _claims(world: World, entity: int, chance: float, number: int) -> list[Claim]:
    """The entity's facts, some with a further claim that is deprecated, outdated or unknown."""
    claims = [Claim(*fact) for fact in world.facts(entity)]
    first = claims[0]
    pool = world.pools[OBJECTS[first.relation]]
    wrong_item = int(pool[number % len(pool)])
    if wrong_item != first.item and chance < 0.05:
        return [*claims, Claim(first.relation, wrong_item, "deprecated")]
    if wrong_item != first.item and chance < 0.1:
        preferred = first._replace(rank="preferred")
        return [preferred, *claims[1:], Claim(first.relation, wrong_item)]
    if chance < 0.12:
        return [*claims, Claim(first.relation, None)]
    return claims


def _item(world: World, item: int, label: str, claims: list[Claim], aliases: list[str]) -> dict:
    qid = world.qid(item)
    statements: dict[str, list[dict]] = {}

    for number, claim in enumerate(claims):
        statement = {
            "mainsnak": _snak(world, claim),
            "type": "statement",
            "id": f"{qid}$world-{number}",
            "rank": claim.rank,
        }
        statements.setdefault(claim.relation, []).append(statement)

    external_id = {
        "snaktype": "value",
        "property": "P646",
        "datatype": "external-id",
        "datavalue": {"value": qid, "type": "string"},
    }
    statements["P646"] = [
        {"mainsnak": external_id, "type": "statement", "id": f"{qid}$world-id", "rank": "normal"}
    ]

    names = {}
    if aliases:
        names["en"] = [{"language": "en", "value": alias} for alias in aliases]
    return {
        "type": "item",
        "id": qid,
        "labels": _text(label) | _text(label, "de"),
        "descriptions": _text("of the sample world"),
        "aliases": names,
        "claims": statements,
        "sitelinks": _sitelinks(world.title(item), "dewiki", "enwiki"),
    }


def _snak(world: World, claim: Claim) -> dict:
    """A claim's relation and value in Wikidata's layout."""
    snak = {
        "snaktype": "somevalue" if claim.item is None else "value",
        "property": claim.relation,
        "datatype": "wikibase-item",
    }
    if claim.item is not None:
        qid = world.qid(claim.item)
        value = {"entity-type": "item", "numeric-id": int(qid[1:]), "id": qid}
        snak["datavalue"] = {"value": value, "type": "wikibase-entityid"}
    return snak


def _nameless(entity: int, label: str) -> dict:
    """An item without an English label."""
    return {
        "type": "item",
        "id": f"Q{NAMELESS_ITEMS + entity}",
        "labels": _text(label, "de"),
        "claims": {},
        "aliases": {},
        "descriptions": {},
        "sitelinks": {},
    }


def _text(value: str, language: str = "en") -> dict:
    return {language: {"language": language, "value": value}}


def _sitelinks(title: str, *wikis: str) -> dict:
    return {wiki: {"site": wiki, "title": title, "badges": []} for wiki in wikis}


def pageviews(world: World, months_before: int = 0) -> Iterator[bytes]:
    """A month's "pageview complete" dump, by wiki: wiki, title, page id, access method, views,
    views by day.

    A tenth of the views of an article with a redirect are of the redirect. In earlier months than
    the world's own, an article's views in log10 differ by a normal draw of VIEWS_SPREAD.
    """
    redirects = _redirects(world)
    rng = draws.generator(world.seed, f"world/views {months_before}")
    logs = rng.normal(0, VIEWS_SPREAD, len(world.items))
    if months_before == 0:
        logs[:] = 0
    factors = (10**logs).tolist()

    for wiki, divisor in WIKIS.items():
        for item, factor in enumerate(factors):
            title = world.title(item)
            views = int(world.views(item) * factor) // divisor
            redirect_views = views // 10 if item in redirects else 0
            yield from _requests(wiki, title, PAGE_IDS + item, views - redirect_views)
            redirect_id = redirects.get(item, 0)
            yield from _requests(wiki, _redirect_title(title), redirect_id, redirect_views)


def _requests(wiki: str, title: str, page_id: int, views: int) -> Iterator[bytes]:
    underscored = title.replace(" ", "_")
    desktop = views * 2 // 5
    counts = {"desktop": desktop, "mobile-web": views - desktop}
    for access, count in counts.items():
        if count == 0:
            continue
        days = f"C{count}"
        if count >= 9:
            days = f"C{count // 3}P{count - count // 3}"
        line = f"{wiki} {underscored} {page_id} {access} {count} {days}\n"
        yield line.encode()


def redirect_tables(world: World) -> dict[str, bytes]:
    """Name -> one line of the MySQL dumps of Wikipedia's tables of redirects and of pages."""
    redirect_rows = []
    page_rows = []
    for item in world.items:
        title = _quoted(world.title(item))
        page_rows.append(f"({PAGE_IDS + item},0,{title},0,0)")
    for item, page_id in _redirects(world).items():
        title = world.title(item)
        redirect_rows.append(f"({page_id},0,{_quoted(title)},'','')")
        redirect_title = _quoted(_redirect_title(title))
        page_rows.append(f"({page_id},0,{redirect_title},0,0)")

    tables = {}
    for name, rows in (("redirect", redirect_rows), ("page", page_rows)):
        if rows:
            statement = f"INSERT INTO `{name}` VALUES {','.join(rows)};\n"
            tables[name] = statement.encode()

    return tables


def _quoted(title: str) -> str:
    escaped = title.replace(" ", "_").replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"


def _redirects(world: World) -> dict[int, int]:
    """Item -> the page id of its redirect, of the items that have one."""
    redirects = {}
    for entity, numbers in world.page_draws("wikipedia"):
        if _has_redirect(numbers):
            redirects[world.item(entity)] = REDIRECT_IDS + entity
    return redirects


def _has_redirect(numbers: list[int]) -> bool:
    """Whether the draws of an entity's page say that a redirect leads to it."""
    return numbers[-1] % 20 == 0


def _redirect_title(title: str) -> str:
    return f"{title} of note"


def wikipedia(world: World) -> Iterator[bytes]:
    """A pages-articles XML export: articles with infobox, links, references and categories,
    redirects, talk pages.
    """
    yield XML_HEAD.encode()
    for item, class_name in enumerate(world.value_classes):
        title = world.title(item)
        text = f"'''{title}''' is a kind of {class_name}.\n\n[[Category:{class_name.title()}]]"
        yield _page(title, 0, PAGE_IDS + item, text)

    for entity, numbers in world.page_draws("wikipedia"):
        item = world.item(entity)
        title = world.title(item)
        article = _article(world, entity, numbers)
        yield _page(title, 0, PAGE_IDS + item, article)

        if _has_redirect(numbers):
            text = f"#REDIRECT [[{title}]]"
            page_id = REDIRECT_IDS + entity
            yield _page(_redirect_title(title), 0, page_id, text, redirect=title)

        if numbers[-1] % 50 == 1:
            text = f"Is {world.labels[entity]} well told here?"
            yield _page(f"Talk:{title}", 1, TALK_IDS + entity, text)

    yield b"</mediawiki>\n"


def _article(world: World, entity: int, numbers: list[int]) -> str:
    """The wikitext of an entity's article; each fact's object is a link with a reference."""
    subject = subject_of(world, entity)
    text = page("article", subject, iter(numbers))
    for _, item in world.facts(entity):
        target = world.title(item)
        value = world.item_label(item)
        link = f"[[{value}]]"
        if target != value:
            link = f"[[{target}|{value}]]"
        reference = f"<ref>{{{{cite web |title=On {value} |year=2020}}}}</ref>"
        referenced = f" {link}.{reference}"
        text = text.replace(f" {value}.", referenced, 1)

    text = text.replace(subject.label, f"'''{subject.label}'''", 1)

    rows = ""
    for relation, value in subject.facts:
        parameter = RELATIONS[relation].name.replace(" ", "_")
        rows += f"| {parameter} = {value}\n"
    return (
        f"{{{{Infobox {subject.type_name}\n| name = {subject.label}\n{rows}}}}}\n{text}\n\n"
        "== References ==\n{{reflist}}\n\n"
        f"[[Category:{subject.type_name.title()}]]"
    )


def _page(title: str, namespace: int, page_id: int, text: str, redirect: str = "") -> bytes:
    target = ""
    if redirect:
        target = f'    <redirect title="{escape(redirect)}" />\n'
    return (
        "  <page>\n"
        f"    <title>{escape(title)}</title>\n"
        f"    <ns>{namespace}</ns>\n"
        f"    <id>{page_id}</id>\n"
        f"{target}"
        "    <revision>\n"
        f"      <id>{page_id}</id>\n"
        "      <timestamp>2021-10-01T00:00:00Z</timestamp>\n"
        "      <contributor>\n        <username>World</username>\n        <id>1</id>\n"
        "      </contributor>\n"
        "      <model>wikitext</model>\n"
        "      <format>text/x-wiki</format>\n"
        f'      <text xml:space="preserve">{escape(text)}</text>\n'
        "    </revision>\n"
        "  </page>\n"
    ).encode()

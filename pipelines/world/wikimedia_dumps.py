"""The sample world as Wikimedia's dumps: Wikidata's entities, page views and Wikipedia's pages."""

from collections.abc import Iterator
from xml.sax.saxutils import escape

import msgspec

from pipelines import draws
from pipelines.language.relations import RELATIONS
from pipelines.world.facts import ALIASES, OBJECTS, RELATION_IDS, World
from pipelines.world.text_corpora import page

SPREAD = 0.2  # of log10 of an article's views, from month to month
WIKIS = {
    "de.wikipedia": 7,
    "en.wikipedia": 1,
    "en.wiktionary": 11,
}  # wiki -> English views for one of its own
XML_HEAD = """<mediawiki xmlns="http://www.mediawiki.org/xml/export-0.11/" version="0.11" xml:lang="en">
  <siteinfo>
    <sitename>Wikipedia</sitename>\n    <dbname>enwiki</dbname>
    <base>https://en.wikipedia.org/wiki/Main_Page</base>\n    <generator>MediaWiki 1.38</generator>
    <case>first-letter</case>
    <namespaces>
      <namespace key="0" case="first-letter" />\n      <namespace key="1" case="first-letter">Talk</namespace>
    </namespaces>
  </siteinfo>
"""


def wikidata(world: World) -> Iterator[bytes]:
    """A Wikidata JSON dump: one entity a line within [ ], with what readers have to handle.

    Some claims are deprecated, outdated or unknown, some entities have no English label, and there are properties.
    """

    yield b"[\n"
    for pid in RELATION_IDS:
        yield _line(
            {
                "type": "property",
                "datatype": "wikibase-item",
                "id": pid,
                "labels": _text(RELATIONS[pid].name),
            }
        )
    for item, label in enumerate(world.value_labels):
        yield _line(_item(world, item, label, [], ALIASES.get(label, [])))
    for block, rng in world.blocks("wikidata"):
        chances, others = rng.random((len(block), 4)), rng.integers(0, 1 << 30, len(block))
        for entity, chance, other in zip(block, chances.tolist(), others.tolist(), strict=True):
            label = world.labels[entity]
            first, _, last = label.partition(" ")
            aliases = [f"{first[0]}. {last}"] if last and chance[1] < 0.3 else []
            yield _line(
                _item(
                    world,
                    world.item(entity),
                    label,
                    _claims(world, entity, chance[0], other),
                    aliases,
                )
            )
            if chance[2] < 0.01:
                nameless = {
                    "type": "item",
                    "id": f"Q{10**8 + entity}",
                    "labels": _text(label, "de"),
                    "claims": {},
                }
                yield _line(nameless | {"aliases": {}, "descriptions": {}, "sitelinks": {}})
    human = {
        "type": "item",
        "id": "Q5",
        "labels": _text("human"),
        "aliases": {},
        "descriptions": {},
        "claims": {},
    }
    yield _line(human | {"sitelinks": _sitelinks("Human", "enwiki")}).replace(b",\n", b"\n]\n")


def _line(entity: dict) -> bytes:
    return msgspec.json.encode(entity) + b",\n"


def _claims(world: World, entity: int, chance: float, other: int) -> list[tuple[str, int, str]]:
    """(relation, object item or -1 for an unknown value, rank) of the entity."""
    claims = [(pid, item, "normal") for pid, item in world.facts(entity)]
    pid, item, _ = claims[0]
    pool = world.pools[OBJECTS[pid]]
    wrong = int(pool[other % len(pool)])
    if wrong != item and chance < 0.05:
        return [*claims, (pid, wrong, "deprecated")]
    if wrong != item and chance < 0.1:
        return [(pid, item, "preferred"), *claims[1:], (pid, wrong, "normal")]
    return [*claims, (pid, -1, "normal")] if chance < 0.12 else claims


def _item(
    world: World, number: int, label: str, claims: list[tuple[str, int, str]], aliases: list[str]
) -> dict:
    qid, title, statements = world.qid(number), world.title(number), {}
    for i, (pid, value, rank) in enumerate(claims):
        snak = {
            "snaktype": "somevalue" if value < 0 else "value",
            "property": pid,
            "datatype": "wikibase-item",
        }
        if value >= 0:
            target = {
                "entity-type": "item",
                "numeric-id": int(world.qid(value)[1:]),
                "id": world.qid(value),
            }
            snak["datavalue"] = {"value": target, "type": "wikibase-entityid"}
        statement = {"mainsnak": snak, "type": "statement", "id": f"{qid}$world-{i}", "rank": rank}
        statements.setdefault(pid, []).append(statement)
    external_id = {"snaktype": "value", "property": "P646", "datatype": "external-id"}
    external_id["datavalue"] = {"value": qid, "type": "string"}
    statements["P646"] = [
        {"mainsnak": external_id, "type": "statement", "id": f"{qid}$world-id", "rank": "normal"}
    ]
    names = {"en": [{"language": "en", "value": alias} for alias in aliases]} if aliases else {}
    item = {"type": "item", "id": qid, "labels": _text(label) | _text(label, "de")}
    item |= {"descriptions": _text("of the sample world"), "aliases": names, "claims": statements}
    return item | {"sitelinks": _sitelinks(title, "dewiki", "enwiki")}


def _text(value: str, language: str = "en") -> dict:
    return {language: {"language": language, "value": value}}


def _sitelinks(title: str, *wikis: str) -> dict:
    return {wiki: {"site": wiki, "title": title, "badges": []} for wiki in wikis}


def pageviews(world: World, months_before: int = 0) -> Iterator[bytes]:
    """A month's "pageview complete" dump, by wiki: wiki, title, page id, access method, views, views by day.

    A tenth of the views of an article with a redirect are of the redirect. In earlier months than the world's own, an
    article's views in log10 differ by a normal draw of SPREAD.
    """
    redirects, n = _redirects(world), len(world.value_labels) + len(world.labels)
    drawn = draws.generator(world.seed, f"world/views {months_before}").normal(0, SPREAD, n)
    factors = 10 ** (drawn * (months_before > 0))
    for wiki, divisor in WIKIS.items():
        for item, factor in enumerate(factors.tolist()):
            views = int(world.views(item) * factor) // divisor
            title, by_redirect = world.title(item), views // 10 if item in redirects else 0
            yield from _requests(wiki, title, 1000 + item, views - by_redirect)
            yield from _requests(wiki, f"{title} of note", redirects.get(item, 0), by_redirect)


def _requests(wiki: str, title: str, page_id: int, views: int) -> Iterator[bytes]:
    desktop = views * 2 // 5
    for access, count in (("desktop", desktop), ("mobile-web", views - desktop)):
        if count:
            days = f"C{count}" if count < 9 else f"C{count // 3}P{count - count // 3}"
            yield f"{wiki} {title.replace(' ', '_')} {page_id} {access} {count} {days}\n".encode()


def redirect_tables(world: World) -> dict[str, bytes]:
    """Name -> one line of the MySQL dumps of Wikipedia's tables of redirects and of pages."""
    redirects = _redirects(world)
    pages = [
        (1000 + item, world.title(item))
        for item in range(len(world.value_labels) + len(world.labels))
    ]
    pages += [(number, f"{world.title(item)} of note") for item, number in redirects.items()]
    rows = {
        "redirect": [
            f"({number},0,{_quoted(world.title(item))},'','')" for item, number in redirects.items()
        ],
        "page": [f"({number},0,{_quoted(title)},0,0)" for number, title in pages],
    }
    return {
        name: f"INSERT INTO `{name}` VALUES {','.join(of)};\n".encode()
        for name, of in rows.items()
        if of
    }


def _quoted(title: str) -> str:
    return "'" + title.replace(" ", "_").replace("\\", "\\\\").replace("'", "\\'") + "'"


def _redirects(world: World) -> dict[int, int]:
    """Item -> the page id of its redirect, of the items that have one."""
    return {
        world.item(e): 10**8 + e
        for e, numbers in world.page_draws("wikipedia")
        if numbers[-1] % 20 == 0
    }


def wikipedia(world: World) -> Iterator[bytes]:
    """A pages-articles XML export: articles with infobox, links, references and categories, redirects, talk pages."""
    yield XML_HEAD.encode()
    for item, kind in enumerate(world.value_classes):
        body = f"'''{world.title(item)}''' is a kind of {kind}.\n\n[[Category:{kind.title()}]]"
        yield _page(world.title(item), 0, 1000 + item, body)
    for entity, numbers in world.page_draws("wikipedia"):
        item, label = world.item(entity), world.labels[entity]
        title = world.title(item)
        yield _page(title, 0, 1000 + item, _article(world, entity, numbers))
        if numbers[-1] % 20 == 0:
            yield _page(
                f"{title} of note", 0, 10**8 + entity, f"#REDIRECT [[{title}]]", redirect=title
            )
        if numbers[-1] % 50 == 1:
            yield _page(f"Talk:{title}", 1, 2 * 10**8 + entity, f"Is {label} well told here?")
    yield b"</mediawiki>\n"


def _article(world: World, entity: int, numbers: list[int]) -> str:
    """The wikitext of the article about an entity; each fact's object is a link with a reference."""
    label, kind, facts = world.labels[entity], world.type_name(entity), world.labelled_facts(entity)
    rows = "".join(f"| {RELATIONS[pid].name.replace(' ', '_')} = {value}\n" for pid, value in facts)
    body = page("article", kind, label, facts, iter(numbers))
    for _, item in world.facts(entity):
        target, value = world.title(item), world.item_label(item)
        link = f"[[{value}]]" if target == value else f"[[{target}|{value}]]"
        body = body.replace(
            f" {value}.", f" {link}.<ref>{{{{cite web |title=On {value} |year=2020}}}}</ref>", 1
        )
    body = body.replace(label, f"'''{label}'''", 1)
    return (
        f"{{{{Infobox {kind}\n| name = {label}\n{rows}}}}}\n{body}\n\n== References ==\n{{{{reflist}}}}\n\n"
        f"[[Category:{kind.title()}]]"
    )


def _page(title: str, namespace: int, number: int, body: str, redirect: str = "") -> bytes:
    target = f'    <redirect title="{escape(redirect)}" />\n' if redirect else ""
    return (
        f"  <page>\n    <title>{escape(title)}</title>\n    <ns>{namespace}</ns>\n    <id>{number}</id>\n{target}"
        f"    <revision>\n      <id>{number}</id>\n      <timestamp>2021-10-01T00:00:00Z</timestamp>\n"
        "      <contributor>\n        <username>World</username>\n        <id>1</id>\n      </contributor>\n"
        "      <model>wikitext</model>\n      <format>text/x-wiki</format>\n"
        f'      <text xml:space="preserve">{escape(body)}</text>\n    </revision>\n  </page>\n'
    ).encode()

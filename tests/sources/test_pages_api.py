"""Pages come from the API as from a dump: each once, under their titles of today; what has no
page is named.
"""

import bz2
from pathlib import Path
from urllib.parse import urlsplit

import pyarrow.parquet as pq
import pytest
from fetching import PAGES, QUESTIONS, RAW, ask_about, asking, manifest, pages, run
from profile_values import values_of
from wikimedia_server import Wikimedia, Wikipedia

from pipelines.errors import LongtailError
from pipelines.params import params, params_file
from pipelines.questions.published import COLUMNS, read_published
from pipelines.sources.fetch import DOWNLOADS
from pipelines.sources.rejects import Rejects
from pipelines.sources.streams import source_files

URLS = {"popqa": "popQA.tsv", "nq": "nq.jsonl"}

pytestmark = pytest.mark.usefixtures("workplace")


def titles_asked_about() -> list[str]:
    (file,) = source_files(QUESTIONS.parent)  # the next stage refuses any other file there
    return read_published(file, Rejects(0.0))["s_wiki_title"].to_pylist()


def rejected() -> list[tuple[int, str, str]]:
    return [
        (row["row"], row["reason"], row["detail"])
        for row in pq.read_table(RAW / "rejects.parquet").to_pylist()
    ]


def played(server: Wikimedia, texts: dict[str, str], **more) -> Wikipedia:
    world = Wikipedia(texts, **more)
    server.pages["/api"] = world.api
    return world


def test_pages_come_under_unusual_titles_too(wikimedia: Wikimedia) -> None:
    titles = [
        "DC vs. Marvel",
        "'71 (film)",
        'AT&T & "Me" + 100% 3',
        "Naughty @ 40",
        "Who Am I? / Was I?",
        "Kurt Gödel",
    ]
    # the last one not in Unicode's form C
    titles += ["日本語 ・ ę", "Film_with_underscores", "iPod", "Cafe\u0301"]
    texts = {
        title: f"'''{title}''' is &lt;odd&gt; <ref>a & b</ref> </page> [[x]]"
        for title in titles[:7]
    }
    texts |= {"Film with underscores": "a", "IPod": "b", "Café": "c"}
    played(wikimedia, texts)
    ask_about(titles)
    metrics = run(asking(wikimedia))
    assert pages() == texts
    assert sorted(titles_asked_about()) == sorted(texts)  # as the corpus has them
    assert metrics | {"pages": 10, "subjects": 10, "questions": 10, "rejected": 0} == metrics
    entries = manifest()
    assert entries["wikipedia/pages-articles.xml.bz2"]["source"] == f"{wikimedia.address}/api"
    assert (
        entries["popqa/popQA.tsv"]["source"]
        == "popQA.tsv: questions whose subject's page was fetched"
    )
    xml = bz2.decompress(PAGES.read_bytes()).decode()
    # the revision
    assert "<id>101000</id>\n      <timestamp>2026-10-01T12:00:00Z</timestamp>" in xml


def test_a_moved_page_is_the_subjects(wikimedia: Wikimedia) -> None:
    """Titles of 2021 lead to something else today: by Wikidata's item one sees whether it is
    the same subject.
    """
    texts = {
        "New name": "moved",
        "List of dogs": "merged",
        "John (writer)": "written about later",
        "Plain": "no item",
    }
    redirects = {"Old name": "Older name", "Older name": "New name", "Rex": "List of dogs"}
    items = {"New name": "Q1", "List of dogs": "Q50", "John (writer)": "Q3", "John": "Q77"}
    played(wikimedia, texts | {"John": "may refer to"}, redirects=redirects, items=items)
    ask_about(["Old name", "Rex", "John (writer)", "Plain", "John", "New name"])
    metrics = run(asking(wikimedia))
    assert titles_asked_about() == ["New name", "John (writer)", "Plain"]
    assert rejected() == [
        (3, "page_of_another", "Rex: List of dogs is about Q50"),
        (6, "page_of_another", "John: John is about Q77"),
        (7, "page_of_another", "New name: New name is about Q1"),
    ]
    assert metrics["rejected.page_of_another"] == 3
    assert (pages()["New name"], len(pages())) == ("moved", 5)


def test_a_subject_of_two_titles_has_the_page_of_each(wikimedia: Wikimedia) -> None:
    """Its page was moved between two questions."""
    played(wikimedia, {"New name": "moved", "Other": "text"}, redirects={"Old name": "New name"})
    ask_about(["Old name", "New name", "Other"])
    file = Path("root/popQA.tsv")
    file.write_text(file.read_text().replace("entity/Q2", "entity/Q1"))
    counts = run(asking(wikimedia))
    assert titles_asked_about() == ["New name", "New name", "Other"]
    assert (counts["subjects"], counts["questions"], rejected()) == (2, 3, [])


def test_a_downloaded_popqa_stays_for_the_next_fetch(wikimedia: Wikimedia) -> None:
    played(wikimedia, {"Here": "text"})
    ask_about(["Here"])
    wikimedia.pages["/popQA.tsv"] = Path("root/popQA.tsv").read_bytes()
    wikimedia.pages["/nq.jsonl"] = b"{}\n"
    files = {name: [f"{wikimedia.address}/{file}"] for name, file in URLS.items()}
    run(asking(wikimedia).model_copy(update={"files": files}))
    assert titles_asked_about() == ["Here"]
    assert len(list(DOWNLOADS.glob("*-popQA.tsv"))) == 1


def test_what_has_no_page_is_named(wikimedia: Wikimedia) -> None:
    here = ["Here", "There", "Elsewhere", "Somewhere", "Far", "Near"]
    gone = ["Gone", "Bad [title]", "Rules", "fr:Ici", "Circle", ""]
    redirects = {"Rules": "Wikipedia:Rules", "Circle": "Round", "Round": "Circle"}
    played(wikimedia, dict.fromkeys([*here, "Wikipedia:Rules"], "text"), redirects=redirects)
    ask_about([*here, *gone])
    metrics = run(asking(wikimedia))
    assert [row[1:] for row in rejected()] == [("no_page", title) for title in gone]
    assert sorted(pages()) == sorted(titles_asked_about()) == sorted(here)
    assert metrics | {"rejected.no_page": 6, "questions": 6, "subjects": 12} == metrics
    ask_about(["Here", "Gone", "Lost"])
    with pytest.raises(
        LongtailError, match=r"/api: 2 of 3 questions of popQA\.tsv have no page .*'Gone'"
    ):
        run(asking(wikimedia))


def test_the_laptop_profile_fetches_by_address_and_from_the_api(wikimedia: Wikimedia) -> None:
    profile = params_file.parse(values_of("laptop"))
    subjects = [f"Page {n} (film)" for n in range(5)]
    ask_about(subjects)
    addresses = [address for entries in profile.fetch.files.values() for address in entries]
    for address in addresses:
        wikimedia.pages[urlsplit(address).path] = b" = Title = \n text \n"
    wikimedia.pages[urlsplit(addresses[0]).path] = Path("root/popQA.tsv").read_bytes()
    texts = {f"Page {n}": f"about {n}" for n in range(1000)} | {
        f"Page {n} (film)": "x" for n in range(9)
    }
    wikimedia.pages["/w/api.php"] = Wikipedia(texts).api
    text = profile.fetch.model_dump_json()
    for host in ("https://raw.githubusercontent.com", "https://en.wikipedia.org"):
        text = text.replace(host, wikimedia.address)
    metrics = run(params.Fetch.model_validate_json(text))
    assert metrics | {"questions": 5, "pages": 5 + 5 + 300} == metrics
    assert {*subjects, "Page 0", "Page 4"} <= {*pages()}
    assert QUESTIONS.read_bytes() == Path("root/popQA.tsv").read_bytes()


def test_fifty_titles_are_asked_for_at_once(wikimedia: Wikimedia) -> None:
    """Long ones fit into an address."""
    texts = {f"Page {n:03}": f"text {n}" for n in range(101)}
    played(wikimedia, texts, redirects={"Page 200": "Page 000"})
    wikimedia.hold = 0.01
    ask_about([*texts, "Page 200"])
    run(asking(wikimedia))
    asked = wikimedia.asked("/api")
    assert [len(params["titles"].split("|")) for params in asked] == [50, 50, 2]
    assert all(params["maxlag"] == "5" for params in asked)
    assert wikimedia.most == 1
    assert pages() == texts  # the one that two titles lead to, once
    titles = [f"{n:02} {'語' * 80}" for n in range(40)]
    played(wikimedia, dict.fromkeys(titles, "text"))
    ask_about(titles)
    run(asking(wikimedia))
    assert len(pages()) == 40
    assert all(0 < len(params["titles"].encode()) * 3 < 8000 for params in wikimedia.asked("/api"))


def test_namesakes_are_the_pages_that_differ_by_a_qualifier(wikimedia: Wikimedia) -> None:
    texts = dict.fromkeys(
        ["Mercury", "Mercury (god)", "Mercury (planet)", "Mercury Records", "Mercurys (x)"], "text"
    )
    texts |= {f"Mercury (film {n})": "text" for n in range(7)} | {"Alone": "text"}
    played(wikimedia, texts, redirects={"Mercury (car)": "Mercury Records"}, listed=3)
    ask_about(["Mercury (planet)", "Alone"])
    run(asking(wikimedia, namesakes=True))
    assert {*texts} - {*pages()} == {"Mercury Records", "Mercurys (x)"}
    listed = [
        params.get("apcontinue")
        for params in wikimedia.asked("/api")
        if params.get("apprefix") == "Mercury ("
    ]
    assert listed == [None, "Mercury_(film_3)", "Mercury_(film_6)"]


def test_other_pages_follow_subjects_drawn_by_hash(wikimedia: Wikimedia) -> None:
    texts = {f"Page {n:04}": f"text {n}" for n in range(300)}
    played(
        wikimedia,
        texts,
        redirects={f"Page {n:04}a": "Page 0000" for n in range(0, 300, 7)},
        listed=15,
    )
    subjects = [f"Page {n:04}" for n in range(0, 300, 50)]
    ask_about(subjects)
    metrics = run(asking(wikimedia, others=25))
    drawn = pages()
    assert metrics["pages"] == len(drawn) == 31
    assert {*subjects} <= {*drawn}
    starts = [params["apfrom"] for params in wikimedia.asked("/api") if "list" in params]
    assert len(starts) == 3
    assert {f"Page {int(start[5:9]) + n:04}" for start in starts[:2] for n in range(11)} <= {*drawn}
    first = PAGES.read_bytes()
    run(asking(wikimedia, others=25), seed=1)
    assert PAGES.read_bytes() != first
    run(asking(wikimedia, others=600))
    assert len(pages()) > 240  # all that follow the subjects


def test_subjects_are_drawn_by_hash_with_all_their_questions(wikimedia: Wikimedia) -> None:
    texts = {f"Page {n:02}": "text" for n in range(40)}
    played(wikimedia, texts)
    ask_about(list(texts), per_subject=2)
    assert run(asking(wikimedia, max_subjects=7))["questions"] == 14
    few, asked = {*pages()}, titles_asked_about()
    assert sorted(asked) == sorted([*few] * 2)
    run(asking(wikimedia, max_subjects=9))
    assert few < {*pages()}


def test_a_file_that_is_not_popqa_is_named(wikimedia: Wikimedia) -> None:
    for text, message in [
        ("id\tsubj\n1\tx\n", "no column s_uri or s_wiki_title"),
        ("\t".join(COLUMNS) + "\n", "line 2 has no question in 17 columns"),
        ("\t".join(COLUMNS) + "\n1\tx\n", "line 2 has no question in 17 columns"),
    ]:
        Path("root").mkdir(exist_ok=True)
        Path("root/popQA.tsv").write_text(text)
        with pytest.raises(LongtailError, match=message):
            run(asking(wikimedia))
        assert not wikimedia.requests

"""Pages come from the API as from a dump: each once, under their titles of today; what has no page is named."""

import bz2
import json
from pathlib import Path
from urllib.parse import urlsplit

import pyarrow.parquet as pq
import pytest
import yaml
from asked_pages import PAGES, QUESTIONS, REJECTS, ask_about, pages, run, settings
from wikimedia_server import Wikimedia, Wikipedia

from flows.profiles import compose
from pipelines import params, params_file
from pipelines.errors import LongtailError
from pipelines.questions.published import read_published
from pipelines.sources.rejects import Rejects
from pipelines.sources.streams import source_files

pytestmark = pytest.mark.usefixtures("workplace")


def titles_asked_about() -> list[str]:
    (file,) = source_files(QUESTIONS.parent)  # the next stage refuses any other file there
    return read_published(file, Rejects(0.0))["s_wiki_title"].to_pylist()


def rejected() -> list[tuple[int, str, str]]:
    return [(row["row"], row["reason"], row["detail"]) for row in pq.read_table(REJECTS).to_pylist()]


# What comes


def test_pages_come_under_unusual_titles_too(wikimedia: Wikimedia) -> None:
    titles = [
        "DC vs. Marvel",
        "'71 (film)",
        'AT&T & "Me" + 100% 3',
        "Naughty @ 40",
        "Who Am I? / Was I?",
        "Kurt Gödel",
        "日本語 ・ ę",
        "Film_with_underscores",
        "iPod",
        "Cafe\u0301",  # not in Unicode's form C
    ]
    texts = {title: f"'''{title}''' is &lt;odd&gt; <ref>a & b</ref> </page> [[x]]" for title in titles[:7]}
    texts |= {"Film with underscores": "a", "IPod": "b", "Café": "c"}
    wikimedia.pages["/api"] = Wikipedia(texts).api
    ask_about(titles)
    metrics = run(settings(wikimedia))
    assert pages() == texts
    assert sorted(titles_asked_about()) == sorted(texts)  # as the corpus has them
    assert metrics | {"pages": 10, "subjects": 10, "questions": 10, "rejected": 0} == metrics


def test_a_moved_page_is_the_subjects_and_a_page_of_another_is_not(wikimedia: Wikimedia) -> None:
    """Titles of 2021 lead to something else today: by Wikidata's item one sees whether it is the same subject."""
    world = Wikipedia(
        {"New name": "moved", "List of dogs": "merged", "John (writer)": "written about later", "Plain": "no item yet"},
        redirects={"Old name": "Older name", "Older name": "New name", "Rex": "List of dogs"},
        items={"New name": "Q1", "List of dogs": "Q50", "John (writer)": "Q3"},
    )
    world.texts["John"] = "may refer to"
    world.items["John"] = "Q77"
    wikimedia.pages["/api"] = world.api
    ask_about(["Old name", "Rex", "John (writer)", "Plain", "John", "New name"])
    metrics = run(settings(wikimedia))
    assert titles_asked_about() == ["New name", "John (writer)", "Plain"]
    assert rejected() == [
        (3, "page_of_another", "Rex: List of dogs is about Q50"),
        (6, "page_of_another", "John: John is about Q77"),
        (7, "page_of_another", "New name: New name is about Q1"),
    ]
    assert metrics["rejected.page_of_another"] == 3
    assert pages()["New name"] == "moved"
    assert len(pages()) == 5


def test_what_has_no_page_is_named(wikimedia: Wikimedia) -> None:
    here = ["Here", "There", "Elsewhere", "Somewhere", "Far", "Near"]
    world = Wikipedia(
        dict.fromkeys([*here, "Wikipedia:Rules"], "text"),
        redirects={"Rules": "Wikipedia:Rules", "Circle": "Round", "Round": "Circle"},
    )
    wikimedia.pages["/api"] = world.api
    ask_about([*here, "Gone", "Bad [title]", "Rules", "fr:Ici", "Circle", ""])
    metrics = run(settings(wikimedia))
    assert [detail for _, _, detail in rejected()] == ["Gone", "Bad [title]", "Rules", "fr:Ici", "Circle", ""]
    assert {reason for _, reason, _ in rejected()} == {"no_page"}
    assert sorted(pages()) == sorted(titles_asked_about()) == sorted(here)
    assert metrics | {"rejected.no_page": 6, "questions": 6, "subjects": 12} == metrics


def test_a_wiki_that_knows_few_subjects_is_not_the_one(wikimedia: Wikimedia) -> None:
    wikimedia.pages["/api"] = Wikipedia({"Here": "a"}).api
    ask_about(["Here", "Gone", "Lost"])
    with pytest.raises(LongtailError, match=r"/api: 2 of 3 questions of popQA\.tsv have no page .*'Gone'"):
        run(settings(wikimedia))
    assert not Path("data").exists()


def test_questions_stay_as_they_were_published(wikimedia: Wikimedia) -> None:
    wikimedia.pages["/api"] = Wikipedia({f"Page {n}": "text" for n in range(5)}).api
    ask_about([f"Page {n}" for n in range(5)], per_subject=2)
    run(settings(wikimedia))
    assert QUESTIONS.read_bytes() == Path("root/popQA.tsv").read_bytes()


def test_the_files_say_where_they_are_from(wikimedia: Wikimedia) -> None:
    wikimedia.pages["/api"] = Wikipedia({"Here": "a"}).api
    ask_about(["Here"])
    metrics = run(settings(wikimedia))
    manifest = {entry["path"]: entry for entry in json.loads(Path("data/raw/manifest.json").read_text())}
    assert manifest["wikipedia/pages-articles.xml.bz2"]["source"] == f"{wikimedia.address}/api"
    assert manifest["wikipedia/pages-articles.xml.bz2"]["licence"].startswith("CC-BY-SA")
    assert manifest["popqa/popQA.tsv"]["source"] == "popQA.tsv: questions whose subject's page was fetched"
    assert metrics["files"] == 2
    xml = bz2.decompress(PAGES.read_bytes()).decode()
    assert "<id>101000</id>\n      <timestamp>2026-10-01T12:00:00Z</timestamp>" in xml  # the revision


def test_every_published_title_finds_its_page(wikimedia: Wikimedia, real: Path) -> None:
    published = read_published(real / "popqa/popQA.tsv", Rejects(0.0))
    titles = {*published["s_wiki_title"].to_pylist()}
    wikimedia.pages["/api"] = Wikipedia({title: f"about {title}" for title in sorted(titles)}).api
    assert run(settings(wikimedia, root=str(real), files={"popqa": ["popqa/popQA.tsv"]}))["pages"] == len(titles)
    assert QUESTIONS.read_bytes() == (real / "popqa/popQA.tsv").read_bytes()
    assert {*pages()} == titles


def test_the_laptop_profile_fetches_by_address_and_from_the_api(wikimedia: Wikimedia, root: Path) -> None:
    profile = params_file.parse(yaml.safe_load(compose("laptop", root)))
    with pytest.raises(LongtailError, match="contact is null"):
        run(profile.fetch, contact=profile.contact)
    texts = {f"Page {n}": f"about {n}" for n in range(3000)} | {f"Page {n} (film)": "x" for n in range(9)}
    subjects = [f"Page {n} (film)" for n in range(5)]
    ask_about(subjects)
    addresses = [address for entries in profile.fetch.files.values() for address in entries]
    for address in addresses:
        wikimedia.pages[urlsplit(address).path] = b" = Title = \n text \n"
    wikimedia.pages[urlsplit(addresses[0]).path] = Path("root/popQA.tsv").read_bytes()
    wikimedia.pages["/w/api.php"] = Wikipedia(texts).api
    text = profile.fetch.model_dump_json()
    for host in ("https://raw.githubusercontent.com", "https://en.wikipedia.org"):
        text = text.replace(host, wikimedia.address)
    metrics = run(params.Fetch.model_validate_json(text))
    assert metrics | {"questions": 5, "pages": 5 + 5 + 300} == metrics
    assert {*subjects, "Page 0", "Page 4"} <= {*pages()}
    assert QUESTIONS.read_bytes() == Path("root/popQA.tsv").read_bytes()
    assert {file.name for file in Path("data/raw/wikitext").glob("[!.]*")} == {"valid.txt", "test.txt"}


# What is asked


def test_fifty_titles_are_asked_for_at_once_one_request_after_another(wikimedia: Wikimedia) -> None:
    texts = {f"Page {n:03}": f"text {n}" for n in range(101)}
    wikimedia.pages["/api"] = Wikipedia(texts, redirects={"Page 200": "Page 000"}).api
    wikimedia.hold = 0.01
    ask_about([*texts, "Page 200"])
    run(settings(wikimedia))
    asked = wikimedia.asked("/api")
    assert [len(params["titles"].split("|")) for params in asked] == [50, 50, 2]
    assert all(params["maxlag"] == "5" for params in asked)
    assert wikimedia.most == 1
    assert wikimedia.agents == {"longtail/0.1 (someone@example.org)"}
    assert pages() == texts  # the one that two titles lead to, once


def test_long_titles_fit_into_an_address(wikimedia: Wikimedia) -> None:
    titles = [f"{n:02} {'語' * 80}" for n in range(40)]
    wikimedia.pages["/api"] = Wikipedia(dict.fromkeys(titles, "text")).api
    ask_about(titles)
    run(settings(wikimedia))
    assert len(pages()) == 40
    assert all(0 < len(params["titles"].encode()) * 3 < 8000 for params in wikimedia.asked("/api"))


def test_namesakes_are_the_pages_that_differ_by_a_qualifier(wikimedia: Wikimedia) -> None:
    texts = dict.fromkeys(["Mercury", "Mercury (god)", "Mercury (planet)", "Mercury Records", "Mercurys (x)"], "text")
    texts |= {f"Mercury (film {n})": "text" for n in range(7)} | {"Alone": "text"}
    world = Wikipedia(texts, redirects={"Mercury (car)": "Mercury Records"}, listed=3)
    wikimedia.pages["/api"] = world.api
    ask_about(["Mercury (planet)", "Alone"])
    run(settings(wikimedia, namesakes=True))
    assert {*texts} - {*pages()} == {"Mercury Records", "Mercurys (x)"}
    listed = [params.get("apcontinue") for params in wikimedia.asked("/api") if params.get("apprefix") == "Mercury ("]
    assert listed == [None, "Mercury_(film_3)", "Mercury_(film_6)"]


def test_other_pages_follow_subjects_drawn_by_hash(wikimedia: Wikimedia) -> None:
    texts = {f"Page {n:04}": f"text {n}" for n in range(1000)}
    world = Wikipedia(texts, redirects={f"Page {n:04}a": "Page 0000" for n in range(0, 1000, 7)}, listed=15)
    wikimedia.pages["/api"] = world.api
    subjects = [f"Page {n:04}" for n in range(0, 1000, 100)]
    ask_about(subjects)
    metrics = run(settings(wikimedia, others=25))
    drawn = pages()
    assert metrics["pages"] == len(drawn) == 35
    assert {*subjects} <= {*drawn}
    starts = [params["apfrom"] for params in wikimedia.asked("/api") if "list" in params]
    assert len(starts) == 3
    assert {f"{start[:-2]}{n:02}" for start in starts[:2] for n in range(11)} <= {*drawn}
    first = PAGES.read_bytes()
    run(settings(wikimedia, others=25))
    assert PAGES.read_bytes() == first
    run(settings(wikimedia, others=25), seed=1)
    assert PAGES.read_bytes() != first
    run(settings(wikimedia, others=2000))
    assert pages() == {title: texts[title] for title in pages()}
    assert len(pages()) > 800  # all that follow the subjects


def test_subjects_are_drawn_by_hash_with_all_their_questions(wikimedia: Wikimedia) -> None:
    texts = {f"Page {n:02}": "text" for n in range(40)}
    wikimedia.pages["/api"] = Wikipedia(texts).api
    ask_about(list(texts), per_subject=2)
    assert run(settings(wikimedia, max_subjects=7))["questions"] == 14
    few, asked = {*pages()}, titles_asked_about()
    assert sorted(asked) == sorted([*few] * 2)
    run(settings(wikimedia, max_subjects=9))
    assert few < {*pages()}

"""Stage `fetch`: the sources in their own formats under data/raw, from the sample world, local files or Wikimedia."""

import hashlib
import os
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import nullcontext, suppress
from pathlib import Path
from types import SimpleNamespace
from urllib.parse import urlsplit

from pipelines import catalogue
from pipelines.catalogue import DATASETS
from pipelines.errors import LongtailError
from pipelines.language import language
from pipelines.language.relations import property_ids
from pipelines.params import params
from pipelines.sources import mediawiki_pages, query_service, snapshots
from pipelines.sources.download import download, name_of, note_of
from pipelines.sources.streams import check_start
from pipelines.sources.wikimedia_client import open_client
from pipelines.storage.atomic import SCRATCH, atomic, write_json
from pipelines.work import stage

OUT = Path("data/raw")
ABOUT = ".about.md"  # hidden: no reader takes it for data
DOWNLOADS = SCRATCH / "downloads"
ANSWERS = SCRATCH / "wikimedia" / "fetch"
TEMPLATES = Path("entityquestions/relation_query_templates.json")
POPQA = Path("popqa/popQA.tsv")
REJECTS = Path(
    "rejects.parquet"
)  # not in a data set's folder, because all files there are its source
PAGES = Path("wikipedia/pages-articles.xml.bz2")
STATEMENTS = Path("wikidata/query-service.json.gz")

GENERATED = "CC0-1.0 (generated)"


def fetch(chosen: SimpleNamespace, out: Path = OUT) -> dict[str, float]:
    """Write `out`: a folder for each of DATASETS, which ABOUT describes, and manifest.json; return counts.

    `popularity.month` says which dump `latest` in an address means; page views are of `popularity.months` months up to
    it. What is downloaded is kept in DOWNLOADS until the next fetch, which downloads only what the server has changed.
    Raises LongtailError, before anything is written, on a glob without a file, a damaged file, a failed download, or a
    server that gives no answer.
    """
    _check(chosen.fetch, chosen.wikidata)
    months = snapshots.months_until(chosen.popularity.month, chosen.popularity.months)
    spoken = language.read_language(chosen.language)
    sources: dict[Path, tuple[str, str | None]] = {}
    counts: dict[str, float] = {}
    manifest = []
    with atomic(out) as folder:
        folder.mkdir()
        if chosen.fetch.source == "world":
            from pipelines.world.generator import write_world

            write_world(folder, chosen.seed, chosen.world, months)
        else:
            sources, counts = _collect(folder, chosen, months)
        for name, dataset in DATASETS.items():
            (folder / name).mkdir(exist_ok=True)
            of_set = sorted(file for file in (folder / name).rglob("*") if file.is_file())
            for file in of_set:
                path = file.relative_to(folder)
                source, day = sources.get(
                    path, (f"generated: sample world, seed {chosen.seed}", None)
                )
                with file.open("rb") as stream:
                    digest = hashlib.file_digest(stream, "sha256").hexdigest()
                licence = dataset.licence if path in sources else GENERATED
                entry = {
                    "path": path.as_posix(),
                    "dataset": name,
                    "source": source,
                    "licence": licence,
                }
                entry |= {"bytes": file.stat().st_size, "sha256": digest}
                manifest.append(entry | ({"date": day} if day and name in snapshots.DATED else {}))
            about = (
                f"{len(of_set)} files; sources, licences and checksums: ../manifest.json."
                if of_set
                else "None."
            )
            title = dataset.title.format(language=spoken.name)
            (folder / name / ABOUT).write_text(
                f"# {title}\n{about}\n", encoding="utf-8"
            )  # DVC drops empty folders
        write_json(folder / "manifest.json", manifest)
    shutil.rmtree(ANSWERS, ignore_errors=True)
    return counts | {
        "files": float(len(manifest)),
        "bytes": float(sum(entry["bytes"] for entry in manifest)),
    }


def _check(settings: params.Fetch, wikidata: params.Wikidata) -> None:
    source, named, pages = settings.source, settings.files, settings.pages
    queried, asked, urls = wikidata.source == "query_service", source == "wikimedia", _urls(named)
    empty = source != "world" and not (queried or any(named.values()))
    unknown = sorted({name.split("/")[0] for name in named} - set(DATASETS))
    faults = [
        (
            unknown,
            f"fetch.files has {''.join(unknown[:1])}, expected some of {', '.join(DATASETS)}",
        ),
        (
            queried and not asked,
            f"wikidata.source is query_service and fetch.source {source}, expected wikimedia",
        ),
        (
            queried and named.get("wikidata"),
            "fetch.files names a dump under wikidata, with query_service; drop one",
        ),
        (
            pages and not asked,
            "fetch.pages asks for pages of Wikipedia, expected fetch.source: wikimedia",
        ),
        (
            pages and not named.get("popqa"),
            "fetch.pages is given, expected popQA.tsv under fetch.files.popqa",
        ),
        (
            pages and named.get("wikipedia"),
            "fetch.pages is given and fetch.files names a dump; leave the dump out",
        ),
        (empty, "fetch.files is empty, expected globs or addresses by data set"),
        (
            source == "files" and urls,
            f"fetch.files has {''.join(urls[:1])}; addresses need fetch.source: wikimedia",
        ),
    ]
    if said := next((said for wrong, said in faults if wrong), ""):
        raise LongtailError(f"params.yaml: {said}")


def _collect(
    folder: Path, chosen: SimpleNamespace, months: Sequence[str]
) -> tuple[dict[Path, tuple[str, str | None]], dict[str, float]]:
    """Bring local files, downloads and what servers answer into `folder`; local files are checked first.

    Returns path below `folder` -> (where the file is from, the date of its facts or None), and counts.
    """
    settings: params.Fetch = chosen.fetch
    views = snapshots.views_files(settings.files.get("pageviews", []), months)
    named = settings.files | ({"pageviews": views} if views else {})
    files: dict[
        Path, tuple[Path, str]
    ] = {}  # path below `folder` -> (file that is here now, where it is from)

    def add(name: str, file: Path, file_name: str, source: str) -> None:
        known = files.setdefault(target := Path(name) / file_name, (file, source))
        if known != (file, source):
            raise LongtailError(
                f"{source}: would be data/raw/{target} as {known[1]} is; leave one out of fetch.files"
            )

    for name, entries in named.items():
        found = {
            source: file
            for entry in entries
            if "://" not in entry
            for file, source in _matches(settings, entry)
        }
        for source, place in _places(name, found).items():
            add(name, found[source], place, source)
    urls, queried = _urls(named), chosen.wikidata.source == "query_service"
    asked: dict[Path, str] = {}  # path below `folder` -> the server whose answers are in it
    counts: dict[str, float] = {}
    with (
        open_client(chosen.contact, ANSWERS)
        if urls or queried or settings.pages
        else nullcontext() as client
    ):
        if urls:
            client.session.hosts = hosts(settings)
            try:
                dated = snapshots.resolve(
                    urls, chosen.popularity.month, settings.days_apart, DOWNLOADS, client
                )
            except snapshots.Late as late:
                raise LongtailError(
                    f"{late}; run again another day, or name a date in place of `latest`"
                ) from None
            addresses = list(dict.fromkeys(dated.get(url, url) for url in urls))
            downloaded = dict(zip(addresses, download(addresses, DOWNLOADS, client), strict=True))
            for name, entries in named.items():
                for address in (dated.get(entry, entry) for entry in entries if "://" in entry):
                    add(name, downloaded[address], name_of(address), address)
        sources = {
            target: (source, snapshots.day_of(source)) for target, (_, source) in files.items()
        }
        if queried:
            (folder / STATEMENTS).parent.mkdir()
            pids = property_ids(files.get(TEMPLATES, (folder / TEMPLATES, ""))[0])
            spoken = language.read_language(chosen.language)
            counts |= query_service.write_statements(
                client, folder / STATEMENTS, chosen.wikidata, pids, spoken
            )
            asked[STATEMENTS] = f"{chosen.wikidata.query_service} and {chosen.wikidata.api}"
        if settings.pages:
            published, origin = files.pop(POPQA, (None, ""))
            if not published:
                raise LongtailError(
                    "params.yaml: fetch.files.popqa has no popQA.tsv, expected it with fetch.pages"
                )
            written = [folder / target for target in (PAGES, POPQA, REJECTS)]
            for file in written:
                file.parent.mkdir(exist_ok=True)
            counts |= mediawiki_pages.write_api_pages(
                client, settings.pages, chosen.seed, published, *written
            )
            asked[PAGES] = settings.pages.api
            sources[POPQA] = f"{origin}: questions whose subject's page was fetched", None
        sources |= {path: (server, client.asked_from()) for path, server in asked.items()}
    for target, (file, _) in files.items():
        (folder / target).parent.mkdir(parents=True, exist_ok=True)
        if file.is_relative_to(DOWNLOADS):
            with suppress(OSError):  # a file system without hard links
                os.link(file, folder / target)  # a full dump is not copied
        if not (folder / target).exists():
            shutil.copyfile(file, folder / target)
    if kept := {file for file, _ in files.values() if file.is_relative_to(DOWNLOADS)}:
        for file in (
            {*DOWNLOADS.glob("*")}
            - kept
            - {note_of(file) for file in kept}
            - {DOWNLOADS / snapshots.PINS}
        ):
            file.unlink()
    return sources, counts


def _places(name: str, files: Mapping[str, Path]) -> dict[str, str]:
    """Path below fetch.root -> path below the data set's folder: the file's name.

    Where files of one name lie in several folders, each file's folder comes before its name.
    """
    names = {source: source.rpartition("/")[2] for source in files}
    if len({*names.values()}) == len(files) or not catalogue.has_many_files(name.partition("/")[0]):
        return names
    above = os.path.commonpath([os.path.dirname(source) for source in files])
    return {source: os.path.relpath(source, above or ".") for source in files}


def _matches(settings: params.Fetch, pattern: str) -> Iterator[tuple[Path, str]]:
    """Files below fetch.root that a glob names, each with its path below the root; nothing outside the root."""
    if not settings.root:
        raise LongtailError(
            "params.yaml: fetch.root is null, expected the folder that fetch.files' globs lie in"
        )
    root = Path(settings.root)
    if not root.is_dir():
        raise LongtailError(f"{root}: no such folder (params.yaml: fetch.root)")
    if Path(pattern).is_absolute() or ".." in Path(pattern).parts:
        raise LongtailError(
            f"params.yaml: fetch.files has {pattern}, expected a glob below fetch.root"
        )
    files = [
        file
        for file in root.glob(pattern)
        if not file.name.startswith(".") or file.name == Path(pattern).name
    ]
    files = [file for file in files if "**" not in pattern or not file.is_dir()]
    if not files:
        raise LongtailError(f"{root / pattern}: no such file (params.yaml: fetch.files)")
    for file in sorted(files):
        if not file.is_file():
            raise LongtailError(
                f"{file}: a folder, or a link to nothing, expected a file; name files in fetch.files"
            )
        if not file.resolve().is_relative_to(root.resolve()):
            raise LongtailError(
                f"{file}: is a link to outside {root}; copy it there, or point fetch.root at it"
            )
        check_start(file)
        yield file, file.relative_to(root).as_posix()


def hosts(settings: params.Fetch) -> frozenset[str]:
    """The hosts that downloads may be sent on to."""
    return frozenset(
        {urlsplit(url).hostname for url in _urls(settings.files)} | set(settings.redirects)
    )


def _urls(files: Mapping[str, Sequence[str]]) -> list[str]:
    return [entry for entries in files.values() for entry in entries if "://" in entry]


if __name__ == "__main__":
    sections = ("seed", "contact", "fetch", "language", "popularity", "wikidata", "world")
    stage.run("fetch", sections, fetch, out=str(OUT))

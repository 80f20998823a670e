"""Stage `fetch`: the sources in their own formats under data/raw, from local files or Wikimedia."""

import hashlib
import os
import shutil
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from pipelines.catalogue import DATASETS
from pipelines.errors import LongtailError
from pipelines.language import language
from pipelines.language.relations import property_ids
from pipelines.params import params
from pipelines.params.param_types import Section
from pipelines.sources import mediawiki_pages, named_files, query_service, raw_files, snapshots
from pipelines.sources.download import download, name_of, note_of
from pipelines.sources.named_files import Files, LocalFile
from pipelines.sources.wikimedia_client import Client, open_client
from pipelines.sources.wikipedia import language_of
from pipelines.storage.atomic import SCRATCH, atomic, write_json
from pipelines.work import stage

OUT = Path("data/raw")
ABOUT = ".about.md"  # hidden: no reader takes it for data
DOWNLOADS = SCRATCH / "downloads"
ANSWERS = SCRATCH / "wikimedia" / "fetch"
GENERATED = "Apache-2.0 (generated)"  # the licence of the sample's files

# below data/raw
TEMPLATES = Path("entityquestions/relation_query_templates.json")
POPQA = Path("popqa/popQA.tsv")
REJECTS = Path("rejects.parquet")  # in no data set's folder, because all files there are its source
PAGES = Path("wikipedia/pages-articles.xml.bz2")
STATEMENTS = Path("wikidata/query-service.json.gz")


class Settings(Section):
    """The sections of params.yaml that this stage reads."""

    seed: int
    contact: str | None
    fetch: params.Fetch
    language: str
    popularity: params.Popularity
    wikidata: params.Wikidata


class Origin(NamedTuple):
    """Where a file of data/raw is from."""

    source: str
    day: str | None  # of its facts, YYYY-MM-DD


Origins = dict[Path, Origin]  # path below data/raw -> origin


def fetch(settings: Settings, out: Path = OUT) -> dict[str, float]:
    """Write `out`: a folder for each of DATASETS, which ABOUT describes, and manifest.json; return
    counts.

    `popularity.month` says which dump `latest` in an address means. What is downloaded is kept in
    DOWNLOADS until the next fetch, which downloads only what the server has changed. Raises
    LongtailError, before anything is written, on a glob without a file, a damaged file, a failed
    download, or a server that gives no answer.
    """
    named_files.check(settings.fetch, settings.wikidata)

    with atomic(out) as folder:
        folder.mkdir()
        origins, counts = _collect(folder, settings)

        manifest = []
        for name in DATASETS:
            (folder / name).mkdir(exist_ok=True)
            digests = _digests(folder / name)
            entries = _describe(folder, name, digests, settings, origins)
            _write_about(folder / name, name, len(entries), settings.language)
            manifest += entries
        write_json(folder / "manifest.json", manifest)

    shutil.rmtree(ANSWERS, ignore_errors=True)

    counts["files"] = float(len(manifest))
    counts["bytes"] = float(sum(entry["bytes"] for entry in manifest))
    return counts


def _digests(folder: Path) -> dict[Path, str]:
    """The SHA-256 of each file below a folder, by its path."""
    digests = {}
    for file in sorted(folder.rglob("*")):
        if file.is_file():
            with file.open("rb") as stream:
                digests[file] = hashlib.file_digest(stream, "sha256").hexdigest()
    return digests


def _describe(
    folder: Path,
    name: str,
    digests: Mapping[Path, str],
    settings: Settings,
    origins: Origins,
) -> list[dict]:
    """The manifest's entries of a data set; `folder` is data/raw."""
    licence = DATASETS[name].licence
    if settings.fetch.is_fictional:
        licence = GENERATED
    entries = []
    for file, digest in digests.items():
        path = file.relative_to(folder)
        origin = origins[path]
        entry = {
            "path": path.as_posix(),
            "dataset": name,
            "source": origin.source,
            "licence": licence,
            "bytes": file.stat().st_size,
            "sha256": digest,
        }
        if origin.day and name in raw_files.DATED:
            entry["date"] = origin.day
        entries.append(entry)

    return entries


def _write_about(folder: Path, name: str, files: int, code: str) -> None:
    """Describe a data set in its folder. The description also keeps an empty folder, which DVC
    would drop.
    """
    title = DATASETS[name].title.format(language=language.read_language(code).name)
    about = "None."
    if files:
        about = f"{files} files; sources, licences and checksums: ../manifest.json."
    (folder / ABOUT).write_text(f"# {title}\n{about}\n", encoding="utf-8")


def _collect(folder: Path, settings: Settings) -> tuple[Origins, dict[str, float]]:
    """Bring local files, downloads and what servers answer into `folder`; local files are checked
    first.

    Returns where each file is from, and counts.
    """
    fetch = settings.fetch
    files = named_files.local_files(fetch)

    answers: Origins = {}
    counts: dict[str, float] = {}
    queried = settings.wikidata.source == "query_service"
    has_urls = bool(named_files.urls_of(fetch.files))
    if has_urls or queried or fetch.pages:
        with open_client(settings.contact, ANSWERS) as client:
            if has_urls:
                _add_downloads(files, settings, client)
            if queried:
                counts |= _query_statements(folder, settings, files, client)
                servers = f"{settings.wikidata.query_service} and {settings.wikidata.api}"
                answers[STATEMENTS] = Origin(servers, client.day_of_oldest_answer())
            if fetch.pages:
                counts |= _ask_pages(folder, settings, files, client)
                source = f"{files[POPQA].source}: questions whose subject's page was fetched"
                answers[POPQA] = Origin(source, None)
                answers[PAGES] = Origin(fetch.pages.api, client.day_of_oldest_answer())

    origins = {}
    own_language = language.read_language(settings.language).wiki
    for target, file in files.items():
        code = language_of(file.path) if target.parts[0] == "wikipedia" else ""
        if code not in ("", own_language):
            print(
                f"warning: {file.source} is in the language {code}, and is read by the templates, "
                f"words and relations of {settings.language} (params.yaml: language)"
            )
        origins[target] = Origin(file.source, raw_files.day_of(file.source))
        if target not in answers:
            _copy(file.path, folder / target)

    _remove_old_downloads(files)
    return origins | answers, counts


def _add_downloads(files: Files, settings: Settings, client: Client) -> None:
    """Download the files with addresses; `latest` in an address means a dump of the month."""
    fetch = settings.fetch
    urls = named_files.urls_of(fetch.files)
    client.session.hosts = named_files.hosts(fetch)
    try:
        dated = snapshots.resolve(
            urls, settings.popularity.month, fetch.days_apart, DOWNLOADS, client
        )
    except snapshots.Late as late:
        raise LongtailError(
            f"{late}; run again another day, or name a date in place of `latest`"
        ) from None

    addresses = list(dict.fromkeys(dated.get(url, url) for url in urls))
    downloads = download(addresses, DOWNLOADS, client)
    path_by_address = dict(zip(addresses, downloads, strict=True))

    for name, entries in fetch.files.items():
        for entry in entries:
            if named_files.is_url(entry):
                address = dated.get(entry, entry)
                file = LocalFile(path_by_address[address], address)
                named_files.add(files, Path(name) / name_of(address), file)


def _query_statements(
    folder: Path, settings: Settings, files: Files, client: Client
) -> dict[str, int]:
    """Write statements of the run's relations from Wikidata's query service; return counts."""
    (folder / STATEMENTS).parent.mkdir()
    own_templates = files.get(TEMPLATES)
    return query_service.write_statements(
        client,
        folder / STATEMENTS,
        settings.wikidata,
        property_ids(own_templates.path if own_templates else folder / TEMPLATES),
        language.read_language(settings.language),
    )


def _ask_pages(folder: Path, settings: Settings, files: Files, client: Client) -> dict[str, float]:
    """Write Wikipedia's pages about PopQA's subjects, and the questions that have one; return
    counts.
    """
    if POPQA not in files:
        raise LongtailError(
            "params.yaml: fetch.files.popqa has no popQA.tsv, expected it with fetch.pages"
        )

    for target in (PAGES, POPQA, REJECTS):
        (folder / target).parent.mkdir(exist_ok=True)
    return mediawiki_pages.write_api_pages(
        client,
        settings.fetch.pages,
        settings.seed,
        published=files[POPQA].path,
        dump=folder / PAGES,
        questions=folder / POPQA,
        rejected=folder / REJECTS,
    )


def _copy(file: Path, target: Path) -> None:
    """Copy a file, or link it if it was downloaded: a full dump is not copied."""
    target.parent.mkdir(parents=True, exist_ok=True)
    if file.is_relative_to(DOWNLOADS):
        with suppress(OSError):  # a file system without hard links
            os.link(file, target)
    if not target.exists():
        shutil.copyfile(file, target)


def _remove_old_downloads(files: Files) -> None:
    """Remove what was downloaded for other runs, if this one has downloads."""
    downloads = {file.path for file in files.values() if file.path.is_relative_to(DOWNLOADS)}
    if not downloads:
        return
    needed = downloads | {note_of(file) for file in downloads} | {DOWNLOADS / snapshots.PINS}
    for file in set(DOWNLOADS.glob("*")) - needed:
        file.unlink()


if __name__ == "__main__":
    stage.run("fetch", Settings, fetch, out=str(OUT))

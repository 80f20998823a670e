"""Stage `fetch`: the sources in their own formats under data/raw, from the sample world, local files or Wikimedia."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path
from urllib.parse import urlsplit

from pipelines.catalogue import DATASETS
from pipelines.errors import LongtailError
from pipelines.language import language
from pipelines.language.relations import property_ids
from pipelines.params import params
from pipelines.sources import query_service, snapshots
from pipelines.sources.download import download, name_of, note_of
from pipelines.sources.pages_api import write_api_pages
from pipelines.sources.streams import check_start
from pipelines.sources.wikimedia import open_client
from pipelines.storage import shards
from pipelines.work import stage

OUT = Path("data/raw")
ABOUT = ".about.md"  # hidden: no reader takes it for data
DOWNLOADS = shards.SCRATCH / "downloads"
ANSWERS = shards.SCRATCH / "wikimedia" / "fetch"
TEMPLATES = Path("entityquestions/relation_query_templates.json")
POPQA = Path("popqa/popQA.tsv")
REJECTS = Path("rejects.parquet")  # not in a data set's folder, whose files are its source
PAGES = Path("wikipedia/pages-articles.xml.bz2")

GENERATED = "CC0-1.0 (generated)"


def main() -> None:
    sections = ("seed", "contact", "fetch", "language", "popularity", "wikidata", "world")
    stage.run("fetch", sections, work, out=str(OUT))


def work(chosen) -> dict[str, float]:
    month, months, spoken = chosen.popularity.month, chosen.popularity.months, language.read_language(chosen.language)
    return fetch(OUT, chosen.seed, chosen.contact, chosen.fetch, chosen.wikidata, chosen.world, month, spoken, months)


def fetch(
    out: Path,
    seed: int,
    contact: str | None,
    settings: params.Fetch,
    wikidata: params.Wikidata,
    world: params.World,
    month: str,
    spoken: language.Language = language.ENGLISH,
    months: int = 1,
) -> dict[str, float]:
    """Write `out`: a folder for each of DATASETS, which ABOUT describes, and manifest.json; return counts.

    `month` (YYYY-MM) says which dump `latest` in an address means. Page views are of `months` months up to it, whose
    files are named as those of the month under `settings.files`. What is downloaded is kept in DOWNLOADS until the
    next fetch, which downloads only what the server has changed. Raises LongtailError, before anything is written, on a
    glob without a file, a damaged file, a failed download, or a server that gives no answer.
    """
    _check(settings, wikidata)
    of_months = snapshots.months_until(month, months)
    views = snapshots.views_files(settings.files.get("pageviews", []), of_months)
    settings = settings.model_copy(update={"files": settings.files | ({"pageviews": views} if views else {})})
    counts: dict[str, float] = {}
    files: dict[Path, tuple[Path, str]] = {}
    sources: dict[Path, str] = {}  # path below `out` -> where the file is from
    asked = ""  # the day on which servers were asked for answers in place of files
    with shards.atomic(out) as folder:
        folder.mkdir()
        if settings.source == "world":
            from pipelines.world.generator import write_world

            write_world(folder, seed, world, of_months)
        else:
            files, sources, counts, asked = _collect(folder, seed, contact, settings, wikidata, month, spoken)
        manifest = _describe(folder, sources, f"generated: sample world, seed {seed}", asked, spoken.name)
        _keep_downloads(files, {Path(entry["path"]): entry["sha256"] for entry in manifest})
    shutil.rmtree(ANSWERS, ignore_errors=True)
    return counts | {"files": float(len(manifest)), "bytes": float(sum(entry["bytes"] for entry in manifest))}


def _check(settings: params.Fetch, wikidata: params.Wikidata) -> None:
    """Raise LongtailError where the params can't go together."""
    unknown = sorted({name.split("/")[0] for name in settings.files} - set(DATASETS))
    if unknown:
        raise LongtailError(f"params.yaml: fetch.files has {unknown[0]}, expected some of {', '.join(DATASETS)}")
    queried = wikidata.source == "query_service"
    if queried and settings.source != "wikimedia":
        raise LongtailError(
            f"params.yaml: wikidata.source is query_service and fetch.source {settings.source}, expected wikimedia"
        )
    if queried and settings.files.get("wikidata"):
        raise LongtailError(
            "params.yaml: fetch.files names a dump under wikidata and wikidata.source is query_service; "
            "leave the files out, or set wikidata.source: dump"
        )
    if settings.pages and (settings.source != "wikimedia" or not settings.files.get("popqa")):
        raise LongtailError(
            "params.yaml: fetch.pages asks for the pages of PopQA's subjects, expected fetch.source: wikimedia and "
            "popQA.tsv under fetch.files.popqa"
        )
    if settings.pages and settings.files.get("wikipedia"):
        raise LongtailError(
            "params.yaml: fetch.files names a dump under wikipedia and fetch.pages asks for pages; leave the dump out, "
            "or set fetch.pages: null"
        )
    if settings.source == "world":
        return
    if not queried and not any(settings.files.values()):
        raise LongtailError("params.yaml: fetch.files is empty, expected globs or addresses by data set")
    urls = _urls(settings)
    if urls and settings.source != "wikimedia":
        raise LongtailError(f"params.yaml: fetch.files has {urls[0]}; addresses need fetch.source: wikimedia")


def _collect(
    folder: Path,
    seed: int,
    contact: str | None,
    settings: params.Fetch,
    wikidata: params.Wikidata,
    month: str,
    spoken: language.Language,
) -> tuple[dict[Path, tuple[Path, str]], dict[Path, str], dict[str, float], str]:
    """Bring local files, downloads and what servers answer into `folder`.

    Returns the files that were brought, where each file is from, the counts of fetch.pages, and the day on which
    servers were asked for answers ("" if none was). What is checked on this machine is checked before anything is asked
    of another.
    """
    entries = [(name, entry) for name, patterns in settings.files.items() for entry in patterns]
    files: dict[Path, tuple[Path, str]] = {}  # target below `folder` -> (file that is here now, where it is from)
    for name, entry in entries:
        if not _is_url(entry):
            for file, source in _matches(settings, entry):
                _add(files, Path(name) / file.name, file, source)
    urls, queried, counts, asked = _urls(settings), wikidata.source == "query_service", {}, ""
    with open_client(contact, ANSWERS) if urls or queried or settings.pages else nullcontext() as client:
        if urls:
            client.session.hosts = hosts(settings)
            try:
                dated = snapshots.resolve(urls, month, settings.days_apart, DOWNLOADS, client)
            except snapshots.Late as late:
                raise LongtailError(f"{late}; run again another day, or name a date in place of `latest`") from None
            addresses = list(dict.fromkeys(dated.get(url, url) for url in urls))
            downloaded = dict(zip(addresses, download(addresses, DOWNLOADS, client), strict=True))
        for name, entry in entries:
            if _is_url(entry):
                address = dated.get(entry, entry)
                _add(files, Path(name) / name_of(address), downloaded[address], address)
        sources = {target: source for target, (_, source) in files.items()}
        if queried:
            (folder / "wikidata").mkdir()
            templates, _ = files.get(TEMPLATES, (folder / TEMPLATES, ""))
            pages = query_service.write_statement_pages(
                client, folder / "wikidata", wikidata, property_ids(templates), spoken
            )
            sources |= {Path("wikidata", name): source for name, source in pages.items()}
        if settings.pages:
            published, origin = files.pop(POPQA, (None, ""))
            if not published:
                raise LongtailError("params.yaml: fetch.files.popqa has no popQA.tsv, expected it with fetch.pages")
            written = [folder / target for target in (PAGES, POPQA, REJECTS)]
            for file in written:
                file.parent.mkdir(exist_ok=True)
            counts = write_api_pages(client, settings.pages, seed, published, *written)
            sources[PAGES] = settings.pages.api
            sources[POPQA] = f"{origin}: questions whose subject's page was fetched"
        if queried or settings.pages:
            asked = client.asked_from()
    for target, (file, _) in files.items():
        (folder / target).parent.mkdir(parents=True, exist_ok=True)
        _bring(file, folder / target)
    return files, sources, counts, asked


def _add(files: dict[Path, tuple[Path, str]], target: Path, file: Path, source: str) -> None:
    if target in files and files[target] != (file, source):
        other = files[target][1]
        raise LongtailError(f"{source}: would be data/raw/{target} as {other} is; leave one out of fetch.files")
    files[target] = (file, source)


def _matches(settings: params.Fetch, pattern: str) -> Iterator[tuple[Path, str]]:
    """Files below fetch.root that a glob names, each with its path below the root; nothing outside the root."""
    if not settings.root:
        raise LongtailError("params.yaml: fetch.root is null, expected the folder that fetch.files' globs lie in")
    root = Path(settings.root)
    if not root.is_dir():
        raise LongtailError(f"{root}: no such folder (params.yaml: fetch.root)")
    if Path(pattern).is_absolute() or ".." in Path(pattern).parts:
        raise LongtailError(f"params.yaml: fetch.files has {pattern}, expected a glob below fetch.root")
    files = [file for file in root.glob(pattern) if not file.name.startswith(".") or file.name == Path(pattern).name]
    if "**" in pattern:
        files = [file for file in files if not file.is_dir()]
    if not files:
        raise LongtailError(f"{root / pattern}: no such file (params.yaml: fetch.files)")
    for file in sorted(files):
        if not file.is_file():
            what = "a folder" if file.is_dir() else "a link to nothing" if file.is_symlink() else "no plain file"
            raise LongtailError(f"{file}: {what}, expected a file; name files under fetch.files")
        if not file.resolve().is_relative_to(root.resolve()):
            raise LongtailError(f"{file}: is a link to outside {root}; copy it there, or point fetch.root at it")
        check_start(file)
        yield file, file.relative_to(root).as_posix()


def _bring(file: Path, target: Path) -> None:
    """Put a file at `target`: a download by a second name (a full dump is not copied), a local file by copy."""
    if file.is_relative_to(DOWNLOADS):
        try:
            os.link(file, target)
            return
        except OSError:  # a file system without hard links
            pass
    shutil.copyfile(file, target)


def _describe(folder: Path, sources: dict[Path, str], generated: str, asked: str, spoken: str) -> list[dict]:
    """Write each data set's ABOUT (DVC's cache would lose an empty folder) and manifest.json; return the manifest."""
    manifest = []
    for name, dataset in DATASETS.items():
        (folder / name).mkdir(exist_ok=True)
        files = sorted(file for file in (folder / name).rglob("*") if file.is_file())
        for file in files:
            path = file.relative_to(folder)
            with file.open("rb") as stream:
                digest = hashlib.file_digest(stream, "sha256").hexdigest()
            entry = {
                "path": path.as_posix(),
                "dataset": name,
                "source": sources.get(path, generated),
                "licence": dataset.licence if path in sources else GENERATED,
                "bytes": file.stat().st_size,
                "sha256": digest,
            }
            of_server = query_service.is_statement_page(path) if name == "wikidata" else path == PAGES
            day = asked if asked and of_server else snapshots.day_of(entry["source"])
            if name in snapshots.DATED and path in sources and day:
                entry["date"] = day
            manifest.append(entry)
        origin = f"{len(files)} files; sources, licences and checksums: ../manifest.json." if files else "None."
        (folder / name / ABOUT).write_text(f"# {dataset.title.format(language=spoken)}\n{origin}\n", encoding="utf-8")
    shards.write_json(folder / "manifest.json", manifest)
    return manifest


def _keep_downloads(files: dict[Path, tuple[Path, str]], sums: dict[Path, str]) -> None:
    """Note the sums of this fetch's downloads, and, where it has some, remove those of others from DOWNLOADS.

    Raises LongtailError where a file that an earlier fetch has downloaded is damaged; it is removed.
    """
    kept = {DOWNLOADS / snapshots.PINS}
    for target, (file, source) in files.items():
        if file.is_relative_to(DOWNLOADS):
            note = json.loads(note_of(file).read_text(encoding="utf-8"))
            if note.setdefault("sha256", sums[target]) != sums[target]:
                file.unlink()
                raise LongtailError(f"{source}: the file that was fetched before is damaged; it is removed, run again")
            shards.write_json(note_of(file), note)
            kept |= {file, note_of(file)}
    for file in DOWNLOADS.glob("*") if len(kept) > 1 else ():
        if file not in kept:
            file.unlink()


def hosts(settings: params.Fetch) -> frozenset[str]:
    """The hosts that downloads may be sent on to."""
    return frozenset({urlsplit(url).hostname for url in _urls(settings)} | set(settings.redirects))


def _urls(settings: params.Fetch) -> list[str]:
    return [entry for entries in settings.files.values() for entry in entries if _is_url(entry)]


def _is_url(entry: str) -> bool:
    return entry.startswith(("https://", "http://"))


if __name__ == "__main__":
    main()

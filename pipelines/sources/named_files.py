"""The files that fetch.files names: globs of files on this machine, and addresses."""

import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple
from urllib.parse import urlsplit

from pipelines import catalogue
from pipelines.catalogue import DATASETS
from pipelines.errors import LongtailError
from pipelines.params import params
from pipelines.sources.streams import check_start


class LocalFile(NamedTuple):
    """A file on this machine that is copied to data/raw."""

    path: Path
    source: str  # where it is from: its path below fetch.root, or its address


Files = dict[Path, LocalFile]  # path below data/raw -> file


def check(fetch: params.Fetch, wikidata: params.Wikidata) -> None:
    """Raise LongtailError for settings that don't fit together."""
    from_wikimedia = fetch.source == "wikimedia"
    queried = wikidata.source == "query_service"
    has_files = any(fetch.files.values())
    urls = urls_of(fetch.files)
    unknown = sorted({name.split("/")[0] for name in fetch.files} - set(DATASETS))
    problem = ""
    if unknown:
        problem = f"fetch.files has {unknown[0]}, expected some of {', '.join(DATASETS)}"
    elif queried and not from_wikimedia:
        problem = (
            f"wikidata.source is query_service and fetch.source {fetch.source}, expected wikimedia"
        )
    elif queried and fetch.files.get("wikidata"):
        problem = "fetch.files names a dump under wikidata, with query_service; drop one"
    elif fetch.pages and not from_wikimedia:
        problem = "fetch.pages asks for pages of Wikipedia, expected fetch.source: wikimedia"
    elif fetch.pages and fetch.files.get("wikipedia"):
        problem = "fetch.pages is given and fetch.files names a dump; leave the dump out"
    elif not queried and not has_files:
        problem = "fetch.files is empty, expected globs or addresses by data set"
    elif fetch.source == "files" and urls:
        problem = f"fetch.files has {urls[0]}; addresses need fetch.source: wikimedia"

    if problem:
        raise LongtailError(f"params.yaml: {problem}")


def local_files(fetch: params.Fetch) -> Files:
    """The files on this machine that fetch.files names.

    Raises LongtailError on a glob without a file, and on two files for one place.
    """
    files: Files = {}
    for name, entries in fetch.files.items():
        path_by_source: dict[str, Path] = {}
        for entry in entries:
            if not is_url(entry):
                for file in _matches(fetch, entry):
                    path_by_source[file.source] = file.path
        for source, place in _places(name, list(path_by_source)).items():
            add(files, Path(name) / place, LocalFile(path_by_source[source], source))

    return files


def add(files: Files, target: Path, file: LocalFile) -> None:
    """Add a file, unless another one has its place, which is a LongtailError."""
    present = files.setdefault(target, file)
    if present != file:
        raise LongtailError(
            f"{file.source}: would be data/raw/{target} as {present.source} is; "
            "leave one out of fetch.files"
        )


def _places(name: str, sources: Sequence[str]) -> dict[str, str]:
    """Path below fetch.root -> path below the data set's folder: the file's name.

    Where files of one name lie in several folders, each file's folder comes before its name.
    """
    names = {source: source.rpartition("/")[2] for source in sources}
    are_different = len(set(names.values())) == len(sources)
    dataset, _, _ = name.partition("/")
    if are_different or not catalogue.has_many_files(dataset):
        return names
    above = os.path.commonpath([os.path.dirname(source) for source in sources]) or "."
    return {source: os.path.relpath(source, above) for source in sources}


def _matches(fetch: params.Fetch, pattern: str) -> Iterator[LocalFile]:
    """Files below fetch.root that a glob names, each with its path below the root; nothing outside
    the root.
    """
    if not fetch.root:
        raise LongtailError(
            "params.yaml: fetch.root is null, expected the folder that fetch.files' globs lie in"
        )

    root = Path(fetch.root)
    if not root.is_dir():
        raise LongtailError(f"{root}: no such folder (params.yaml: fetch.root)")
    if Path(pattern).is_absolute() or ".." in Path(pattern).parts:
        raise LongtailError(
            f"params.yaml: fetch.files has {pattern}, expected a glob below fetch.root"
        )

    files = []
    for file in sorted(root.glob(pattern)):
        is_hidden = file.name.startswith(".") and file.name != Path(pattern).name
        is_folder_between = "**" in pattern and file.is_dir()
        if not is_hidden and not is_folder_between:
            files.append(file)

    if not files:
        raise LongtailError(f"{root / pattern}: no such file (params.yaml: fetch.files)")

    for file in files:
        if not file.is_file():
            raise LongtailError(
                f"{file}: a folder, or a link to nothing, expected a file; "
                "name files in fetch.files"
            )
        if not file.resolve().is_relative_to(root.resolve()):
            raise LongtailError(
                f"{file}: is a link to outside {root}; copy it there, or point fetch.root at it"
            )
        check_start(file)
        yield LocalFile(file, file.relative_to(root).as_posix())


def hosts(fetch: params.Fetch) -> frozenset[str]:
    """The hosts that downloads may be sent on to."""
    own_hosts = [urlsplit(url).hostname for url in urls_of(fetch.files)]
    return frozenset([*own_hosts, *fetch.redirects])


def is_url(entry: str) -> bool:
    """Whether an entry of fetch.files is an address."""
    return "://" in entry


def urls_of(entries_by_dataset: Mapping[str, Sequence[str]]) -> list[str]:
    urls = []
    for entries in entries_by_dataset.values():
        urls += [entry for entry in entries if is_url(entry)]
    return urls

"""Stage `local_files`: hashes of the files and folders of this machine that a run reads.

They lie outside of the project and may change in place: a damaged file is mended, a folder gets one
more file. DVC runs this stage each time, and the stages that read such files depend on its hashes.
"""

from collections.abc import Iterator, Sequence
from pathlib import Path

from tqdm import tqdm

from pipelines.errors import LongtailError
from pipelines.params import params, params_file
from pipelines.params.param_types import LMName, RetrieverName, Section
from pipelines.sources import named_files
from pipelines.storage.atomic import read_json, write_json
from pipelines.storage.work_store import content_hash
from pipelines.work import stage

OUT = Path("data/local")
# Below data/local, one file of hashes for each group of stages: for `fetch`, for those that open
# language models, and for those that open retrievers.
SOURCES = Path("sources/files.json")
LMS = Path("lm/files.json")
RETRIEVERS = Path("retriever/files.json")
PATIENCE = 2.0  # seconds before a bar shows that hashes take longer

Hashes = dict[str, str]  # the place or path of a file or folder -> the hash of its content


class Settings(Section):
    """The sections of params.yaml that this stage reads."""

    fetch: params.Fetch
    wikidata: params.Wikidata
    tokenizer: params.Tokenizer
    lm: dict[LMName, params.LM]
    retriever: dict[RetrieverName, params.Retriever]


def write_hashes(settings: Settings) -> dict[str, float]:
    """Write SOURCES, LMS and RETRIEVERS below OUT: hashes of files and of models' folders.

    What is not on this machine keeps its hash, as in a clone that pulled the data of a run. Returns
    counts. Raises LongtailError on a glob of fetch.files without a file.
    """
    counts = {}
    for file, hashes in _hash_all(settings).items():
        write_json(OUT / file, hashes)
        counts[file.parent.name] = float(len(hashes))
    return counts


def are_as_hashed() -> bool:
    """Whether the files and folders that params.yaml names are those whose hashes OUT has."""
    settings = params_file.load_settings(Settings)
    try:
        hashes = _hash_all(settings)
    except LongtailError:  # the stage says what is wrong
        return False
    return all(_read(file) == hashes_now for file, hashes_now in hashes.items())


def _hash_all(settings: Settings) -> dict[Path, Hashes]:
    lms = [settings.tokenizer, *settings.lm.values()]
    return {
        SOURCES: _hash_sources(settings, _read(SOURCES)),
        LMS: _hash_models(lms, _read(LMS)),
        RETRIEVERS: _hash_models([*settings.retriever.values()], _read(RETRIEVERS)),
    }


def _read(file: Path) -> Hashes:
    path = OUT / file
    return read_json(path) if path.is_file() else {}


def _hash_sources(settings: Settings, recorded: Hashes) -> Hashes:
    """The hashes of the files that the stage `fetch` copies, by their places below data/raw."""
    root = settings.fetch.root
    if root and recorded and not Path(root).is_dir():
        print(f"{root} is not on this machine; its files count as unchanged")
        return recorded

    named_files.check(settings.fetch, settings.wikidata)
    files = named_files.local_files(settings.fetch)
    hashes = {}
    for place, file in tqdm(files.items(), desc="hashes", unit="file", delay=PATIENCE):
        hashes[place.as_posix()] = content_hash(file.path)
    return hashes


def _hash_models(models: Sequence[Section | None], recorded: Hashes) -> Hashes:
    """The hashes of the models' folders, and of published vectors, by their paths.

    Other paths are names on the Hub.
    """
    hashes = {}
    for path in _paths(models):
        if Path(path).exists():
            hashes[path] = content_hash(Path(path))
        elif path in recorded:
            print(f"{path} is not on this machine; it counts as unchanged")
            hashes[path] = recorded[path]
    return hashes


def _paths(models: Sequence[Section | None]) -> Iterator[str]:
    for model in models:
        for name in ("path", "query_path"):
            path = getattr(model, name, None)
            if path:
                yield path
        yield from getattr(model, "vectors", {}).values()


def main() -> None:
    stage.run("local_files", Settings, write_hashes, out=str(OUT))


if __name__ == "__main__":
    main()

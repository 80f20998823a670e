"""Read the texts that the language model is trained on."""

from collections.abc import Iterable, Iterator
from pathlib import Path
from urllib.parse import urlsplit

import msgspec

from pipelines.errors import LongtailError
from pipelines.sources.streams import open_lines, source_files

Documents = Iterable[tuple[str, str]]  # (kind, text)


class _C4Document(msgspec.Struct):
    text: str
    url: str


def read_c4(folder: Path) -> Iterator[tuple[str, str]]:
    """(kind, text) of the C4 documents in `folder`. The kind is the first label of the URL's host.

    Raises LongtailError with the file and line of a document that is not a JSON object with a text
    and a url.
    """
    decoder = msgspec.json.Decoder(_C4Document)
    for file in source_files(folder):
        for row, line in enumerate(open_lines(file), start=1):
            try:
                document = decoder.decode(line)
            except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
                raise LongtailError(
                    f"{file}: line {row}: {error}, expected a JSON object with text and url; "
                    "fetch it again"
                ) from None
            kind, _, _ = urlsplit(document.url).netloc.partition(".")
            yield kind, document.text

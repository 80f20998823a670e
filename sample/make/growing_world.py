"""The sample's world as Wikimedia's dumps of several months: from one month to the next it has some
entities more, some articles are changed, and all have other page views.
"""

import bz2
import gzip
import json
import re
from collections.abc import Sequence
from pathlib import Path

from sample.make.generator import write_world
from sample.make.sizes import WorldSizes

ARTICLES_PER_EDIT = 20  # of so many articles one changes in a month
PAGE = re.compile(r"  <page>\n.*?  </page>\n", re.DOTALL)
TITLE = re.compile(r"<title>(?:Talk:)?(.*?)(?: of note)?</title>")
END_OF_ARTICLE = "== References =="


class GrowingWorld:
    """The dumps of `months`, which are numbered from 0 on.

    The world has `sizes.entities` entities in the last month, and in each month `growth` entities
    more than in the month before. `folder` gets the data sets of the whole world, whose C4 and
    views are those of each month.
    """

    def __init__(
        self, folder: Path, seed: int, sizes: WorldSizes, months: Sequence[str], growth: int
    ) -> None:
        self.folder = folder
        self.months = months
        self.growth = growth
        write_world(folder, seed, sizes, months)
        dump = gzip.decompress((folder / "wikidata/world.json.gz").read_bytes())
        self._lines = dump.decode().splitlines(keepends=True)
        pages = (folder / "wikipedia/world-pages-articles.xml.bz2").read_bytes()
        self._pages = bz2.decompress(pages).decode()
        self._titles = [title for title in map(_title_of_entity, self._lines) if title]

    def titles(self, month: int) -> list[str]:
        """The titles of the entities that there are in a month."""
        months_left = len(self.months) - 1 - month
        return self._titles[: len(self._titles) - self.growth * months_left]

    def wikidata(self, titles: list[str]) -> bytes:
        """The dump of Wikidata that has the entities with these titles."""
        lines = [line for line in self._lines if _title_of_entity(line) in (None, *titles)]
        return gzip.compress("".join(lines).encode(), mtime=0)

    def wikipedia(self, month: int) -> bytes:
        """A month's dump of Wikipedia."""
        unknown = set(self._titles) - set(self.titles(month))
        edited = set()
        for position, title in enumerate(self._titles):
            if position % ARTICLES_PER_EDIT <= month:
                edited.add(title)

        def of_month(page: re.Match) -> str:
            title = TITLE.search(page[0])[1]
            if title in unknown:
                return ""
            if title in edited:
                return page[0].replace(END_OF_ARTICLE, f"Much is said of it.\n\n{END_OF_ARTICLE}")
            return page[0]

        return bz2.compress(PAGE.sub(of_month, self._pages).encode())

    def views(self, month: str) -> bytes:
        """The page views of a month, YYYY-MM."""
        name = f"pageviews-{month.replace('-', '')}-user.bz2"
        return (self.folder / "pageviews" / name).read_bytes()


def _title_of_entity(line: str) -> str | None:
    """The title of the entity that a line of Wikidata's dump is about; None for other items."""
    if not line.startswith('{"type":"item"'):
        return None
    item = json.loads(line.rstrip(",\n"))
    if len(item["claims"]) < 2:
        return None  # a value of facts, which has no facts of its own
    return item["sitelinks"]["enwiki"]["title"]

"""Write the sample's data: the sources' files, with the dumps of two months."""

import shutil
from pathlib import Path
from tempfile import TemporaryDirectory

from sample.make.growing_world import GrowingWorld
from sample.make.sizes import Recipe

DUMPS_OF_MONTHS = ("wikidata", "wikipedia", "redirects")  # other data sets are of no month


def write_data(folder: Path, recipe: Recipe) -> None:
    """Write the data sets to `folder`, with the dumps and views of the recipe's last two months."""
    if folder.exists():
        shutil.rmtree(folder)
    with TemporaryDirectory() as temporary:
        world = GrowingWorld(
            Path(temporary), recipe.seed, recipe.world, recipe.months, growth=recipe.growth
        )
        views_before = [f"pageviews-{month.replace('-', '')}-*" for month in recipe.months[:-2]]
        left_out = shutil.ignore_patterns("popqa", *DUMPS_OF_MONTHS, *views_before)
        shutil.copytree(world.folder, folder, ignore=left_out)
        for name in DUMPS_OF_MONTHS:
            (folder / name).mkdir()
        for number in (len(recipe.months) - 2, len(recipe.months) - 1):
            month = recipe.months[number].replace("-", "")
            wikidata = world.wikidata(world.titles(number))
            wikipedia = world.wikipedia(number)
            (folder / f"wikidata/wikidata-{month}25-all.json.gz").write_bytes(wikidata)
            dump = f"enwiki-{month}20"
            (folder / f"wikipedia/{dump}-pages-articles.xml.bz2").write_bytes(wikipedia)
            for table in ("redirect", "page"):
                source = world.folder / f"redirects/world-{table}.sql.gz"
                shutil.copyfile(source, folder / f"redirects/{dump}-{table}.sql.gz")

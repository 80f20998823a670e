"""Redirects and pages: which page leads to which article, and titles, from MediaWiki's tables as MySQL dumps them."""

import gzip

import pytest

from pipelines.errors import LongtailError
from pipelines.sources.pageviews import PAGES, read_pages, read_redirects

HEAD = """-- MySQL dump 10.19
DROP TABLE IF EXISTS `redirect`;
CREATE TABLE `redirect` (
  `rd_from` int(8) unsigned NOT NULL DEFAULT 0,
  PRIMARY KEY (`rd_from`)
) ENGINE=InnoDB;
"""
ROWS = r"""(10,0,'Computer_accessibility','',''),(13,0,'History_of_Afghanistan','',''),(14,4,'Village_pump','',''),"""
ODD = [
    r"(20,0,'Ain\'t_I_a_Woman?','','Speech'),(21,0,'\"Weird_Al\"_Yankovic',NULL,NULL)",
    r"(22,0,'Elsewhere','wikt',''),(23,0,'Sets_((a),(b))','','see_(a),(b)'),(24,0,'AC\\DC','','')",
    r"(25,0,'Comma,_Texas','',''),(26,-1,'Search','',''),(27,0,'NULL','','')",
]
SQL = (
    HEAD + "INSERT INTO `redirect` VALUES " + ROWS + ",".join(ODD) + ";\n/*!40000 ALTER TABLE */;\n-- Dump completed\n"
)
EXPECTED = {
    10: "Computer accessibility",
    13: "History of Afghanistan",
    20: "Ain't I a Woman?",
    21: '"Weird Al" Yankovic',
    23: "Sets ((a),(b))",
    24: "AC\\DC",
    25: "Comma, Texas",
    27: "NULL",
}


def redirects(path, text: str | bytes) -> dict[int, str]:
    path.write_bytes(gzip.compress(text.encode() if isinstance(text, str) else text))
    return {row["page_id"]: row["target"] for table in read_redirects(path) for row in table.to_pylist()}


def test_redirects_to_articles_of_this_wiki_are_read_from_one_line_or_many(tmp_path):
    assert redirects(tmp_path / "enwiki-20211101-redirect.sql.gz", SQL) == EXPECTED
    lines = "".join(f"INSERT INTO `redirect` VALUES {row};\n" for row in [ROWS.rstrip(","), *ODD])
    assert redirects(tmp_path / "redirect.sql.gz", HEAD + lines) == EXPECTED


def test_a_fragment_cut_within_a_character_does_no_harm(tmp_path):
    row = b"INSERT INTO `redirect` VALUES (1,0,'Caf\xc3\xa9','','cut_\xc3'),(2,0,'B','','');\n"
    assert redirects(tmp_path / "redirect.sql.gz", row) == {1: "Café", 2: "B"}


@pytest.mark.parametrize(
    "text",
    [
        HEAD,
        "INSERT INTO `page` VALUES (10,0,'AccessibleComputing','',1);\n",
        "INSERT INTO `redirect` VALUES (10,0,'A','','');\nINSERT INTO `redirect` VALUES (11,0,'B','','),(12,0,'C'\n",
        "INSERT INTO `redirect` VALUES (10,0,'A',''),(11,0,'B','');\n",
        "INSERT INTO `redirect` VALUES (ten,0,'A','','');\n",
        b"INSERT INTO `redirect` VALUES (10,0,'\xff','','');\n",
        "INSERT INTO `redirect` VALUES (10,NULL,'A','','');\n",
        "INSERT INTO `redirect` VALUES (99999999999999999999,0,'A','','');\n",
        HEAD + "INSERT INTO `redirect` VALUES (1,0,'A','','');\nNSERT INTO `redirect` VALUES (10,0,'B','','');\n",
        HEAD + "INSERT INTO `redirect` VALUES (1,0,'A','','');\nINSERT INTO `redirect`  VALUES (10,0,'B','','');\n",
    ],
)
def test_a_damaged_table_or_another_is_an_error_of_one_line(tmp_path, text):
    with pytest.raises(LongtailError, match=r"redirect\.sql\.gz: .*expected") as error:
        redirects(tmp_path / "redirect.sql.gz", text)
    assert "\n" not in str(error.value)


PAGE_ROWS = [
    r"(10,0,'AccessibleComputing',1,0,0.33167112649574,'20231019064200','20231019064200',1002250816,111,'wikitext',NULL)",
    r"(12,0,'Ain\'t_I_(a),(b)',0,0,0.5,'20231019064200',NULL,7,9,'wikitext','en')",
    r"(13,1,'Talk_of_it',0,0,0.5,'20231019064200',NULL,7,9,'wikitext',NULL)",
    r"(14,0,'NULL',0,0,0.5,'20231019064200',NULL,7,9,'wikitext',NULL)",
]
OLD_PAGE = (
    r"(15,0,'X_(social_network)','edit=autoconfirmed:move=sysop',0,0,0.9,'20200101000000',NULL,7,9,'wikitext',NULL)"
)


def pages(path, text: str) -> dict[int, str]:
    path.write_bytes(gzip.compress(text.encode()))
    return {row["page_id"]: row["title"] for table in read_pages(path) for row in table.to_pylist()}


def test_the_titles_of_articles_and_redirects_are_read_from_tables_of_any_year(tmp_path):
    text = f"{HEAD}INSERT INTO `page` VALUES {','.join(PAGE_ROWS)};\n-- Dump completed\n"
    expected = {10: "AccessibleComputing", 12: "Ain't I (a),(b)", 14: "NULL"}
    assert pages(tmp_path / "enwiki-20231101-page.sql.gz", text) == expected
    old = f"INSERT INTO `page` VALUES {OLD_PAGE};\n"
    assert pages(tmp_path / "page.sql.gz", old) == {15: "X (social network)"}


@pytest.mark.parametrize(
    "text", [HEAD, SQL, "INSERT INTO `page` VALUES (10,0);\n", "INSERT INTO `page` VALUES (1,0,'A'\n"]
)
def test_what_is_no_table_of_pages_is_an_error_of_one_line(tmp_path, text):
    with pytest.raises(LongtailError, match=r"page\.sql\.gz: .*expected") as error:
        pages(tmp_path / "page.sql.gz", text)
    assert "\n" not in str(error.value)


def test_tables_are_told_by_their_names():
    names = ("enwiki-20231101-page.sql.gz", "page.sql", "enwiki-20231101-redirect.sql.gz", "homepage.sql.gz")
    assert [bool(PAGES.search(name)) for name in names] == [True, True, False, False]

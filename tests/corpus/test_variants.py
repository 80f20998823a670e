"""Of a word's variants a reader sees one."""

from pipelines.corpus.clean import wikitext_to_text
from pipelines.language.language import read_language

CHINESE = read_language("zh").media


def test_the_first_variant_of_a_mark_is_shown():
    for wikitext, text in [
        ("用-{zh-hans:软件; zh-hant:軟體;}-写", "用软件写"),
        ("用-{zh-tw:軟體;zh-cn:软件}-写", "用软件写"),
        ("在-{zh-hk:的士}-上", "在的士上"),
        ("用-{软件}-写-{R|甲}-", "用软件写甲"),
        ("-{H|zh-cn:软件;zh-tw:軟體}--{T|zh-cn:甲;zh-tw:乙}-丙", "丙"),
        ("-{A|zh-cn:软件;zh-tw:軟體}-、-{zh-hans;zh-hant|丁}-", "软件、丁"),
        ("[[-{zh-hans:软件;zh-hant:軟體}-|-{zh-hans:程序;zh-hant:程式}-]]好", "程序好"),
        ("-{[[软件|甲]]}-在-{zh-cn:{{lang|en|ok}};zh-tw:{{lang|en|no}}}-", "甲在ok"),
        ("-{zh-hans:甲-{zh-hant:乙;zh-hans:丙}-;zh-hant:丁}-完", "甲丙完"),
        ("-{甲=>zh-cn:乙;甲=>zh-tw:丙}-完", "乙完"),
        ("-{zh-tw:甲&nbsp;;zh-cn:乙&nbsp;}-完", "乙 完"),
        ("-{{{lang|en|x}}}-、甲 -{{nowrap|b}}- 乙-{", "x、甲 -b- 乙-{"),
    ]:
        assert wikitext_to_text(wikitext, CHINESE) == text


def test_other_languages_have_no_variants():
    assert wikitext_to_text("the set -{a; b}-") == "the set -{a; b}-"


def test_time_follows_the_length_of_unclosed_marks():
    for unit in ("-{", "-{zh-cn:a;", "-{{{", "-{a|", "}-"):
        wikitext_to_text(unit * 90, CHINESE)
        wikitext_to_text((unit + " text\n") * 90, CHINESE)

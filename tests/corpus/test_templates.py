"""Templates within sentences become the text that a reader sees; what is dropped is counted."""

# ruff: noqa: RUF001 - the texts have the signs of their languages
import re
from collections import Counter
from pathlib import Path

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from pipelines.corpus import templates
from pipelines.corpus.clean import wikitext_to_text
from pipelines.errors import LongtailError
from pipelines.language import language

SHOWN = {
    "en": {
        "{{ship||Merrow}}, {{track gauge|1435mm}}": "Merrow, 1435mm",
        # names
        "{{ill|Ada Rook|de|Ada Rook (Malerin)}} and {{illm|A|is|lt=Bo Finn}}": "Ada Rook and Bo Finn",
        "{{HMS|Heron|1902|6}}, {{ship|SS|Wren|1911}}": "HMS Heron, SS Wren",
        "{{sclass|Heron|frigate}} {{nihongo|Inn|宿|Yado}}": "Heron-class frigate Inn (宿, Yado)",
        "{{flag|Velmark}}{{flagicon|Velmark}} {{sortname|Jo|Mell}}": "Velmark Jo Mell",
        "{{zh|t=北|p=běi}}": "traditional Chinese: 北; pinyin: běi",
        "{{langx|ru|Нева}} {{tlit|ru|Neva}} {{script/Arabic|نهر}}": "Нева Neva نهر",
        # numbers and units
        "{{formatnum:1234567.5}} {{formatnum:480}} {{formatnum: 9000}}": "1,234,567.5 480 9,000",
        "{{formatnum:9,000|R}} {{formatnum:many}}": "9,000 many",
        "{{val|4.5|u=km2}}, {{val|3|0.2|e=8|u=m/s}}": "4.5 km², 3±0.2×10^8 m/s",
        "{{convert|3|e6acre|km2}} {{cvt|4+1/2|mi}}": "3 million acre 4+1/2 mi",
        "{{convert|2|by|3|by|4|m}} {{convert|6-7|km}}": "2 by 3 by 4 m 6-7 km",
        "{{frac|3}}, {{frac|2|3}}, {{sfrac|1|2|3}}, {{1/2}}": "1/3, 2/3, 1 2/3, 1/2",
        "{{percentage|1|8|1}} {{height|ft=6|in=1}} {{height|m=1.85}} {{ordinal|12}} {{ord|32}}": "12.5% 6 ft 1 in 1.85 m 12th 32nd",
        "{{US$|5 million|2011}}, {{£|7}}, {{INRConvert|4|c}}": "US$5 million, £7, ₹4 crore",
        "{{coord|59|54|N|10|45.5|E|region:NO}}": "59°54′N 10°45.5′E",
        "{{coord|-9.5|147.2}} at{{coord|1|N|2|E|display=title}}": "-9.5° 147.2° at",
        # dates
        "{{birth date|1931|05|04}} {{Birth_date and age|df=y|1931|5|4}}": "May 4, 1931 4 May 1931",
        "{{dda|2001|5|3|1931|5|4}} {{dda|2001|5|4|1931|5|4}}": "May 3, 2001 (aged 69) May 4, 2001 (aged 70)",
        "{{start date|2011|5}}, {{start date|2011}}, {{date|2011-05-04}}": "May 2011, 2011, May 4, 2011",
        "{{as of|2011|5}}; {{As of|2012|lc=y}}; {{as of|2|alt=by now}}": "As of May 2011; as of 2012; by now",
        "{{circa|1850|1860}} {{fl.|1200}} {{reign|1204}}": "c. 1850 – c. 1860 fl. 1200 r. 1204",
        "{{OldStyleDate|14 May|1801|2 May}}": "14 May [O.S. 2 May] 1801",
        "{{age|1950|7|1|2000|6|30}} years": "49 years",
        # signs
        "a{{snd}}b{{=}}c{{'}}s {{sic|teh}} {{sic}}": "a – b=c's teh [sic]",
        "{{nowrap|[[Ada|A.]] ''Rook'' {{nbsp}}x}} y": "A. Rook x y",
    },
    "fr": {
        "{{XXe s}}, {{1er janvier}}, {{Nom|Hans|Dorvik}}": "XXe siècle, 1er janvier, Hans Dorvik",
        "{{unité|25|km|2}}, {{unité|9,8|m||s|-2}}, {{unité|3|à=5|m}}": "25 km², 9,8 m·s⁻², 3 à 5 m",
        "{{nombre|1500|voix}} {{formatnum:1500.25}}": "1500 voix 1 500,25",
        "{{date|1|avril|1850}}, {{date|2 mai 1850|en sport}}, {{date-|3|5|1850}}": "1er avril 1850, 2 mai 1850, 3 mai 1850",
        "{{date de décès|3|5|2001|4|5|1931}}": "3 mai 2001 (à 69 ans)",
        "{{s|I|er}}, {{s-|XII}}, {{-s|II|e}}, {{sp|V|e|au|VI|e}}": "Ier siècle, XIIe siècle, IIe siècle av. J.-C., Ve au VIe siècle",
        "{{XVIIe siècle}}, {{Ier siècle av. J.-C.}}, {{-52}}": "XVIIe siècle, Ier siècle av. J.-C., 52 av. J.-C.",
        "XX{{e}}, 1{{er}}, {{n°|7}}, {{Mme|Roux}}": "XXe, 1er, no 7, Mme Roux",
        "{{lien|trad=Jo Mell|texte=Mell|lang=en|fr=Jo Mell (poète)}} {{citation|oui}}": "Mell « oui »",
        "a {{refnec|fut prince}} b{{refnec}} c": "a fut prince b c",
    },
    "de": {
        "{{Währung|250|EUR}}, {{SUI|Schweiz}}": "250 EUR, Schweiz",
        "{{Höhe|438|DE-NHN}}, {{formatnum:1500.25}}, {{Datum|4|5|1931}}": "438 m, 1.500,25, 4. Mai 1931",
        '{{frS|la ville}} „x“ {{"|ja}} {{DEU|Deutschland}} {{FRA|#}}': "la ville „x“ „ja“ Deutschland FRA",
        "{{§|242|BGB}} {{SortKey|a|Bea}}": "§ 242 BGB Bea",
    },
    "es": {
        "{{moneda|250|€}}": "250 €",
        "{{unidad|20|km}} {{formatnum:4821}} {{formatnum:48213.5}}": "20 km 4821 48 213,5",
        "{{siglo|XIX||s}}, {{siglo|V|a|s}}, {{fecha|4|5|1931}}, {{cita|ya}}": "siglo XIX, siglo V a. C., 4 de mayo de 1931, «ya»",
        "{{convertir|5|km|mi}}, {{esd|a b}}, {{versalita|Xo}}": "5 km, a b, Xo",
    },
    "ru": {
        "{{конвертировать|10|km|mi}}": "10 km",
        "{{число|48213}} {{s|кг}}, {{дата|4|5|1931}}": "48 213 кг, 4 мая 1931",
        "{{не переведено 5|Юн|Юну|en|Jon}}, {{нп3|Ада}}, {{не переведено|надо=Бо|текст=}}": "Юну, Ада, Бо",
        "{{lang-en|Rook}} {{lang-de2|Ruhk}} {{флагификация|Мелия}}{{Флаг Мелии}}": "Rook Ruhk Мелия",
    },
    "ja": {
        "{{読み|鳥居|とりい}}": "鳥居(とりい)",
        "{{仮リンク|エイダ|en|Ada}}と{{仮リンク|B|en|Bo|label=ボー}}": "エイダとボー",
        "{{読み仮名|宿|やど}}{{生年月日|1931|5|4}}": "宿（やど）1931年5月4日",
        "{{死亡年月日と没年齢|1931|5|4|2001|2|3}}{{要出典|date=1}}": "2001年2月3日（69歳没）",
    },
    "zh": {
        "{{le|艾达|Ada}}{{link-en|波|Bo|阿波}}{{tsl|en|Jon|约恩}}": "艾达阿波约恩",
        "（{{bd|1931年|5月4日|2001年|2月3日|catIdx=A}}）": "（1931年5月4日－2001年2月3日）",
    },
}
FORMS = [
    Path(templates.__file__).with_name("wikitext.yaml"),
    *sorted(language.FOLDER.glob("*.yaml")),
]

COMMON = yaml.safe_load(FORMS[0].read_text(encoding="utf-8"))


@pytest.mark.parametrize("code", SHOWN)
def test_templates_show_what_a_reader_sees(code):
    media = language.read_language(code).media
    for wikitext, text in SHOWN[code].items():
        dropped: Counter[str] = Counter()
        assert wikitext_to_text(f"x {wikitext} y", media, dropped) == f"x {text} y"
        assert not dropped


@pytest.mark.parametrize("code", language.codes())
def test_every_language_shows_names_numbers_and_dates(code):
    wiki = language.read_language(code)
    wikitext = "a {{ill|Ada|xx}} {{formatnum:48213}} {{birth date|1931|5|4}} {{lang|fr|là}} z"
    text = wikitext_to_text(wikitext, wiki.media)
    number = f"48{wiki.media.thousands}213"
    for shown in ("Ada", number, "1931", "là"):
        assert shown in text


@pytest.mark.parametrize("file", FORMS, ids=[file.stem for file in FORMS])
def test_no_template_has_two_forms(file):
    text = file.read_text(encoding="utf-8")
    shown = re.split(r"\n +shown_patterns:|\nbetween:|\nshown_patterns:", text)[0]
    keys = re.findall(r'^ +("(?:[^"\\]|\\.)*"):', shown, re.MULTILINE)
    content = yaml.safe_load(text)
    names = [name for names in content.get("media", content)["shown"].values() for name in names]
    assert len(keys) == len(set(keys))
    assert len(names) == len(set(names))
    assert all(isinstance(name, str) and name == name.lower() for name in names)


def test_a_hole_in_a_sentence_is_counted_by_name():
    for wikitext, expected in {
        "The town has {{UN pop|X}} people and {{age|1950|5|4}} mills.": ["UN pop", "age"],
        "It fell in {{unknown\n|a=b}}.": ["unknown"],
        "Here ({{IPA|x}}) is <math>y</math> and <math name='a'>z</math>.": ["IPA", "<math>", "<math>"],
        "[[Ada|Ada {{one}} Rook]] {{two}} {{three}} x": ["one", "two", "three"],
        "It has {{convert|many|km}} of {{lang}} roads.": ["convert", "lang"],
        # between sentences or lines, and what shows nothing of the sentence
        "One.{{a}} Two! {{b}} Three{{sfn|x}} is{{efn|y}} here.{{c}}\n{{d}}\n{{e}} Four": [],
        "[[File:a.jpg|thumb|Seen {{a}} from here]]One<ref>a {{b}} c</ref> two {{#tag:ref|x}} y": [],
    }.items():  # fmt: skip
        dropped: Counter[str] = Counter()
        wikitext_to_text(wikitext, dropped=dropped)
        assert dropped == Counter(expected)


def test_time_follows_the_length_of_a_line_of_holes():
    for unit in (" ", "{{a}}", "{{a}} ", "x {{a}}"):
        dropped: Counter[str] = Counter()
        wikitext_to_text(f"x{{{{b}}}}{unit * 40_000}x", dropped=dropped)
        assert dropped["b"] == 1


@pytest.mark.parametrize("code", language.codes())
@settings(max_examples=30, deadline=None)
@given(st.data())
def test_no_parameters_are_too_strange(code, data):
    media = language.read_language(code).media
    names = [
        name for table in (COMMON["shown"], media.shown) for ns in table.values() for name in ns
    ]
    numbers = ["", "0", "00", "1", "12", "3.5", "-7", "9" * 5000, "٣", "²", "1e9", "e3" * 2000]
    others = ["N", "E", "km", "e6km", "to", "a", " ", "x y", "4 May 1931", "2011-13-45"]
    others += ["\x04\ue000"]
    keys = ["", "", "", "1=", "-1=", "0=", "5=", "999=", "9999=", "df=", "lt=", "u=", "display="]
    value = st.tuples(st.sampled_from(keys), st.sampled_from(numbers + others)).map("".join)
    values = data.draw(st.lists(value, max_size=8))
    for name in data.draw(st.lists(st.sampled_from(names), min_size=20, max_size=20)):
        wikitext = "{{" + "|".join([name, *values]) + "}}"
        assert isinstance(wikitext_to_text(f"x {wikitext} y", media), str)


def test_a_form_that_cannot_be_read_is_refused():
    for form in ("{1:unknown}", "{1} <{2}", "{1"):
        media = language.MediaWiki("file", "m " * 12, "{day}", ",", ".", shown={form: ["a"]})
        with pytest.raises(LongtailError, match=re.escape(repr(form))):
            templates.Wiki(media)

"""The report shows controls of the ensemble, and settings chosen on other texts beside the setting in use."""

import small_results

from pipelines.intervals import interval
from pipelines.report import controls_section


def test_chosen_settings_stand_beside_the_setting_in_use():
    figures = small_results.language_modelling(1.0)
    _, table = controls_section.settings("pile", {"tiny": figures})
    rows = {(row[1], row[2]): row for row in table.rows}
    assert len(rows) == len(table.rows) == 4 * 3
    row = rows["LSR", "both"]
    assert row[0] == "tiny"
    assert row[3:5] == ["0.1, 0.3", "0, 0.2"], "of the first and the second half"
    assert row[5] == interval(figures["bpb_lsr_k10"])
    written = next(w for w in figures["settings"] if (w["retriever"], w["chosen"]) == ("lsr", "both"))
    assert row[6:] == [interval(written[name]) for name in ("bits_per_byte", "saved", "saved_over_fixed")]


def test_a_control_says_how_many_documents_fit_where_it_has_any():
    figures = small_results.language_modelling(1.0)
    _, table = controls_section.controls("pile", {"tiny": figures})
    one_prompt, longer = table.rows
    assert one_prompt[:6] == ["tiny", "all in one prompt", "dense", 10, 1.5, 200]
    assert longer[:6] == ["tiny", "more of the text", "dense", 10, None, 200]
    against = ("bits_per_byte", "saved", "saved_over_same", "saved_over_ensemble")
    assert one_prompt[6:] == [interval(figures["controls"][0][name]) for name in against]


def test_a_run_without_controls_shows_none():
    assert controls_section.controls("pile", {"tiny": {}}) == controls_section.settings("pile", {"tiny": {}}) == []

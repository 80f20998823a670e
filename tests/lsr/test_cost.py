"""LSR with a server's scores: what they may cost is said first, and is never less than what they do cost."""

import re

import completions_server
import pytest

from pipelines.errors import LongtailError
from pipelines.lsr import train_lsr


@pytest.fixture
def server(project):
    folder = project.folder / "data/models/lm" / project.params.lms[0]
    with completions_server.running(folder) as server:
        served = completions_server.settings(server.url, folder, prompt_price=1.0)
        project.params.lm = {project.params.lms[0]: served}
        yield server


def test_the_cost_is_said_before_it_is_made_and_is_an_upper_estimate(project, server, capsys):
    project.params.lsr = project.params.lsr.model_copy(update={"keep_scores": True})
    metrics = train_lsr.train(project.params)
    out = capsys.readouterr().out
    assert "asked for 324 pairs at most" in out  # 2 rounds x 12 queries x (5 + none), 3 validations x 6 x 10
    said = float(re.search(r"tokens: ([\d.]+)", out)[1])
    assert 0.3 * said < metrics["lm_cost"] <= said
    assert metrics["lm_prompt_tokens"] == pytest.approx(1000 * metrics["lm_cost"])
    train_lsr.train(project.params)
    assert float(re.search(r"tokens: ([\d.]+)", capsys.readouterr().out)[1]) < said, "what is kept costs nothing"


def test_too_dear_is_an_error_before_any_request_but_the_probes(project, server):
    project.params.lsr = project.params.lsr.model_copy(update={"max_cost": 0.5})
    with pytest.raises(LongtailError, match=r"lsr\.max_cost is 0\.5, but .* may cost .*raise it, or lower"):
        train_lsr.train(project.params)
    assert len(server.requests) == 3
    assert not train_lsr.METRICS.exists()

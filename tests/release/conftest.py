"""Two releases of the small world, which tests leave as they are."""

from pathlib import Path

import pytest
from releases import FACTS, VIEWS, questions, release, write_data


@pytest.fixture(scope="session")
def made(tmp_path_factory) -> Path:
    """A folder with the releases 1.0.0 and 1.1.0, in which a question is gone and the others'
    month is another.
    """
    home = tmp_path_factory.mktemp("made")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(home)
        release(write_data(home / "data"), home / "out")
        release(
            write_data(home / "data", questions(FACTS[1:], VIEWS | {2: 100}, "2021-11")),
            home / "out",
        )
    return home / "out"


@pytest.fixture(scope="session")
def first(made) -> Path:
    return made / "1.0.0"

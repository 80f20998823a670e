"""No secret and no path of the machine gets into a release: params leave them out, every text
is looked through.
"""

from pathlib import Path

import pytest
from releases import release, write_data

from pipelines.errors import LongtailError
from pipelines.release import contents
from pipelines.storage.atomic import write_json

pytestmark = pytest.mark.usefixtures("workplace")


def test_params_are_shown_without_the_machine():
    given = {
        "contact": "ada@example.org",
        "compute": {"dask": "tcp://node7:8786", "threads": 2},
        "fetch": {
            "root": "../real",
            "files": {"pile": ["pile/*.zst", "/data/x.zst", "https://example.org/a/b"]},
        },
        "lm": {"big": {"path": "/models/big", "revision": None}, "hub": {"path": "openai/gpt2"}},
        "retriever": {"path": "~/models/r"},
    }
    files = ["pile/*.zst", "(outside the project)/x.zst", "https://example.org/a/b"]
    assert contents.public_params(given) == {
        "compute": {"threads": 2},
        "fetch": {"root": "(outside the project)/real", "files": {"pile": files}},
        "lm": {
            "big": {"path": "(outside the project)/big", "revision": None},
            "hub": {"path": "openai/gpt2"},
        },
        "retriever": {"path": "(outside the project)/r"},
    }


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("see /home/ada/notes", "a path of a machine"),
        ("https://ada:pass@example.org/", "an address with a password"),
        ("hf_" + "a1" * 17, "a Hugging Face token"),
        ("AKIA" + "A1" * 8, "an AWS key"),
        ("-----BEGIN RSA PRIVATE KEY-----", "a private key"),
        ("correct horse", r"\$MY_API_TOKEN"),
        ("in /srv7/ada/longtail/data", "the folder longtail"),
        ("in /srv7/ada/longtail.", "the folder longtail"),
    ],
)
def test_what_gives_the_machine_away_is_found(tmp_path, text, what):
    environment = {
        "MY_API_TOKEN": "correct horse",
        "TOKENIZERS_PARALLELISM": "false",
        "EDITOR": "vi",
    }
    machine = contents.machine_patterns(environment, [Path("/srv7/ada/longtail"), Path("/")])
    file = "release/difference/some.json"
    write_json(file, ["fine", f"a\n{text}"])
    with pytest.raises(
        LongtailError, match=rf"^difference/some\.json: {what} in line 3, expected nothing"
    ) as caught:
        contents.check_no_secrets(tmp_path / "release", machine)
    assert text not in str(caught.value)
    write_json(
        file, ["fine", "https://example.org/home/ada", "and/or", "false", "/srv7/ada/longtails"]
    )
    contents.check_no_secrets(tmp_path / "release", machine)


def test_a_release_with_something_of_the_machine_is_refused(tmp_path):
    machine = contents.machine_patterns({"API_KEY": "cleaner, first"}, [])
    with pytest.raises(
        LongtailError, match=r"^popqa\.tsv: \$API_KEY in line 5, expected nothing of the machine"
    ):
        release(write_data(tmp_path / "data"), tmp_path / "out", machine=machine)
    assert not (tmp_path / "out").exists()

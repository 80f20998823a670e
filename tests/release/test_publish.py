"""A release is published on the Hub, in a store and in a folder: whole, once and for good, and no token is shown."""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import fsspec
import played_hub
import pyarrow.parquet as pq
import pytest
from releases import FACTS, VIEWS, files_of, questions, release, write_data

from pipelines.errors import LongtailError
from pipelines.release import contents, publish

pytestmark = pytest.mark.usefixtures("workplace")


@pytest.fixture(scope="module")
def made(tmp_path_factory) -> Path:
    """A folder with the releases 1.0.0 and 1.1.0; 1.1.0 has `difference/`, and other questions."""
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(tmp_path_factory.mktemp("made"))
        release(write_data(Path("data")), Path("out"))
        release(write_data(Path("data"), questions(FACTS[1:], VIEWS | {2: 100}, "2021-11")), Path("out"))
        return Path("out").resolve()


@dataclass
class Place:
    to: str
    where: str
    hub: played_hub.Hub | None = None

    def files(self, version: str) -> dict[str, bytes]:
        """What another program finds there of a version."""
        if self.hub:
            found = self.hub.files("ada/popqa", version)
            return {name: body for name, body in found.items() if name != ".gitattributes"}
        system, root = fsspec.url_to_fs(self.to, use_listings_cache=False)
        names = [path.removeprefix(f"{root}/{version}/") for path in system.find(f"{root}/{version}")]
        return {name: system.cat_file(f"{root}/{version}/{name}") for name in sorted(names)}


@pytest.fixture
def hub(monkeypatch, tmp_path) -> Iterator[played_hub.Hub]:
    with played_hub.running() as server:
        monkeypatch.setenv("HF_ENDPOINT", server.address)
        monkeypatch.setenv("HF_TOKEN", played_hub.TOKEN)
        for name, value in (("HF_HUB_DISABLE_XET", True), ("HF_HUB_CACHE", str(tmp_path / "hf"))):
            monkeypatch.setattr(f"huggingface_hub.constants.{name}", value)
        yield server


@pytest.fixture(scope="module")
def s3_server() -> Iterator[str]:
    from moto.server import ThreadedMotoServer

    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    yield "http://{}:{}".format(*server.get_host_and_port())
    server.stop()


@pytest.fixture
def s3(s3_server, monkeypatch, tmp_path) -> str:
    monkeypatch.setenv("AWS_ENDPOINT_URL", s3_server)
    access = {"ACCESS_KEY_ID": "a", "SECRET_ACCESS_KEY": "a secret of S3", "DEFAULT_REGION": "us-east-1"}
    for name, value in access.items():
        monkeypatch.setenv(f"AWS_{name}", value)
    fsspec.get_filesystem_class("s3").clear_instance_cache()  # they hold the environment of their time
    bucket = "b" + hashlib.md5(str(tmp_path).encode()).hexdigest()
    fsspec.filesystem("s3").mkdir(bucket)
    return f"s3://{bucket}/popqa"


@pytest.fixture(params=["hub", "s3", "folder"])
def place(request, tmp_path) -> Place:
    if request.param == "hub":
        hub = request.getfixturevalue("hub")
        return Place("hub:ada/popqa", f"the dataset ada/popqa at {hub.address}", hub)
    to = request.getfixturevalue("s3") if request.param == "s3" else str(tmp_path / "there")
    return Place(to, to)


def send(to: str, folder: Path) -> list[str] | None:
    """Send a release; what the plan said, None where it is there."""
    with publish.opened(to) as target:
        plan = publish.plan(target, folder)
        if plan:
            target.send(plan.folder, [*plan.files], plan.others)
        return plan and list(plan.lines(target.where))


def test_each_version_is_sent_whole_and_stays_as_it_was(place, made):
    with publish.opened(place.to) as target:
        assert target.versions() == []
    said = send(place.to, made / "1.1.0")
    files = files_of(made / "1.1.0")
    total = sum(map(len, files.values()))
    assert said[0] == f"1.1.0 for {place.where}: {len(files)} files, {total:,} bytes"
    assert {line.split()[1]: int(line.split()[0].replace(",", "")) for line in said[1:]} == {
        name: len(body) for name, body in files.items()
    }
    assert said[-1].endswith(contents.SUMS)
    assert place.files("1.1.0") == files
    assert send(place.to, made / "1.1.0") is None
    later = Path("1.2.0")
    shutil.copytree(made / "1.0.0", later)  # it has fewer files
    send(place.to, later)
    assert place.files("1.2.0") == files_of(later)
    assert place.files("1.1.0") == files
    with publish.opened(place.to) as target:
        assert target.versions() == ["1.1.0", "1.2.0"]


def test_a_version_with_other_bytes_is_refused(place, made):
    send(place.to, made / "1.1.0")
    other = Path("1.1.0")
    shutil.copytree(made / "1.0.0", other)
    with pytest.raises(LongtailError, match=r"^1\.1\.0: .* has another 1\.1\.0, expected the same bytes"):
        send(place.to, other)
    assert place.files("1.1.0") == files_of(made / "1.1.0")
    (other / "popqa.tsv").write_text("")
    with pytest.raises(LongtailError, match=r"not as it was released: popqa\.tsv is changed"):
        send(place.to, other)


def test_planning_sends_nothing(place, made):
    with publish.opened(place.to) as target:
        assert publish.plan(target, made / "1.0.0").files
    if place.hub:
        assert {method for method, _ in place.hub.requests} == {"GET"}
        assert place.hub.refs == {}
    else:
        system, root = fsspec.url_to_fs(place.to, use_listings_cache=False)
        assert not system.exists(root)


def test_the_last_version_there_is_brought_here_to_be_compared_with(place, made):
    send(place.to, made / "1.1.0")
    out = Path("here").resolve()
    with publish.opened(place.to) as target:
        publish.bring_last(target, out)
        publish.bring_last(target, out)
        assert files_of(out) == {f"1.1.0/{name}": body for name, body in files_of(made / "1.1.0").items()}
        shutil.rmtree(out / "1.1.0")
        shutil.copytree(made / "1.0.0", out / "1.1.0")
        with pytest.raises(LongtailError, match=r"here/1\.1\.0: .* has another 1\.1\.0; use another folder"):
            publish.bring_last(target, out)


def test_what_was_cut_short_is_no_version_and_is_sent_again(place, made):
    with publish.opened(place.to) as target, pytest.MonkeyPatch.context() as patch:
        owner, cut, at = (target.api, "create_tag", 1) if place.hub else (target.system, "put_file", 5)
        real, calls = getattr(owner, cut), []

        def fail(*args, **words):
            calls.append(args)
            if len(calls) == at:
                raise OSError("the line is cut")
            return real(*args, **words)

        patch.setattr(owner, cut, fail)
        plan = publish.plan(target, made / "1.1.0")
        with pytest.raises(OSError, match="the line is cut"):
            target.send(plan.folder, [*plan.files], plan.others)
    with publish.opened(place.to) as target:
        assert target.versions() == []
    send(place.to, made / "1.1.0")
    assert place.files("1.1.0") == files_of(made / "1.1.0")


@pytest.mark.parametrize("place", ["hub"], indirect=True)
def test_a_token_is_in_no_message_whatever_the_server_says(place, made, monkeypatch):
    place.hub.failing = "/api/repos/create"
    with pytest.raises(LongtailError) as caught:
        send(place.to, made / "1.0.0")
    said = str(caught.value)
    assert said.startswith("--to hub:ada/popqa: ")
    assert "not with Bearer (secret)" in said
    assert played_hub.TOKEN not in said
    assert "\x1b" not in said
    place.hub.failing = ""
    monkeypatch.setenv("HF_TOKEN", "hf_another" + "x" * 30)
    with pytest.raises(LongtailError, match="401"):
        send(place.to, made / "1.0.0")
    monkeypatch.delenv("HF_TOKEN")
    monkeypatch.setattr("huggingface_hub.constants.HF_TOKEN_PATH", "no file")
    with pytest.raises(LongtailError, match=r"^--to hub:ada/popqa: no token; `hf auth login` keeps one"):
        send(place.to, made / "1.0.0")
    assert place.hub.commits == {}


@pytest.mark.parametrize(
    ("to", "why"),
    [
        ("hub:popqa", "no dataset repository, expected hub:OWNER/NAME"),
        ("hub:https://example.org/a", "no dataset repository"),
        ("nosuch://place", "ValueError: Protocol not known: nosuch"),
    ],
)
def test_a_place_that_is_none_is_named(to, why):
    with pytest.raises(LongtailError, match=f"^--to {to}: {why}"), publish.opened(to):
        pass


@pytest.mark.parametrize("place", ["hub"], indirect=True)
def test_the_hubs_viewer_finds_every_configuration_and_others_load_a_tag(place, made, monkeypatch, tmp_path):
    """By the library that the viewer loads data sets with."""
    import datasets
    import yaml

    send(place.to, made / "1.0.0")
    send(place.to, made / "1.1.0")
    files = place.files("main")
    assert place.hub.messages == ["1.0.0", "1.1.0"]
    front = yaml.safe_load(files["README.md"].decode().split("---\n")[1])
    for one in front["configs"]:
        assert all(split["path"] in files for split in one["data_files"])
    monkeypatch.setattr("datasets.config.HF_ENDPOINT", place.hub.address)
    monkeypatch.setattr("datasets.config.HF_DATASETS_CACHE", tmp_path / "datasets")
    for version in ("1.0.0", "1.1.0"):
        for table in contents.present(made / version):
            loaded = datasets.load_dataset("ada/popqa", table.name, split=table.split, revision=version)
            assert loaded.to_list() == pq.read_table(made / version / table.parquet).to_pylist()

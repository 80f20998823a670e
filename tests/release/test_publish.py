"""A release is published on the Hub, in a store and in a folder: whole, once and for good, and no token is shown."""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import fsspec
import played_hub
import pytest
from releases import files_of

from pipelines.errors import LongtailError
from pipelines.release import contents, publish

pytestmark = pytest.mark.usefixtures("workplace")


@dataclass
class Place:
    to: str
    where: str
    hub: played_hub.Hub | None = None

    def files(self, version: str) -> dict[str, bytes]:
        """What another program finds there of a version."""
        if self.hub:
            found = self.hub.files("ada/popqa", version) or {}
            return {name: body for name, body in found.items() if name != ".gitattributes"}
        system, root = fsspec.url_to_fs(self.to, use_listings_cache=False)
        names = [path.removeprefix(f"{root}/{version}/") for path in system.find(f"{root}/{version}")]
        return {name: system.cat_file(f"{root}/{version}/{name}") for name in sorted(names)}


@pytest.fixture
def hub(monkeypatch, tmp_path) -> Iterator[Place]:
    with played_hub.running() as server:
        monkeypatch.setenv("HF_ENDPOINT", server.address)
        monkeypatch.setenv("HF_TOKEN", played_hub.TOKEN)
        for name, value in (("HF_HUB_DISABLE_XET", True), ("HF_HUB_CACHE", str(tmp_path / "hf"))):
            monkeypatch.setattr(f"huggingface_hub.constants.{name}", value)
        yield Place("hub:ada/popqa", f"the dataset ada/popqa at {server.address}", server)


@pytest.fixture
def s3(monkeypatch, tmp_path) -> Iterator[Place]:
    from moto.server import ThreadedMotoServer

    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://{}:{}".format(*server.get_host_and_port()))
    access = {"ACCESS_KEY_ID": "a", "SECRET_ACCESS_KEY": "a secret of S3", "DEFAULT_REGION": "us-east-1"}
    for name, value in access.items():
        monkeypatch.setenv(f"AWS_{name}", value)
    fsspec.get_filesystem_class("s3").clear_instance_cache()  # they hold the environment of their time
    bucket = "b" + hashlib.md5(str(tmp_path).encode()).hexdigest()
    fsspec.filesystem("s3").mkdir(bucket)
    yield Place(f"s3://{bucket}/popqa", f"s3://{bucket}/popqa")
    server.stop()


@pytest.fixture
def folder(tmp_path) -> Place:
    return Place(str(tmp_path / "there"), str(tmp_path / "there"))


def send(to: str, folder: Path) -> list[str] | None:
    """Send a release; what the plan said, None where it is there."""
    with publish.opened(to) as target:
        plan = publish.plan(target, folder)
        if plan:
            target.send(plan.folder, [*plan.files], plan.others)
        return plan and list(plan.lines(target.where))


@pytest.mark.parametrize("kind", ["hub", "s3", "folder"])
def test_each_version_is_sent_whole_and_stays_as_it_was(kind, request, made, monkeypatch):
    """Planning sends nothing, and what was cut short is no version and is sent again."""
    place, newest = request.getfixturevalue(kind), made / "1.1.0"
    files = files_of(newest)
    with publish.opened(place.to) as target, monkeypatch.context() as patch:
        plan = publish.plan(target, newest)
        assert (target.versions(), place.files("1.1.0")) == ([], {})
        assert not place.hub or {method for method, _ in place.hub.requests} == {"GET"}
        owner, cut, at = (target.api, "create_tag", 1) if place.hub else (target.system, "put_file", 5)
        real, calls = getattr(owner, cut), []

        def fail(*args, **words):
            calls.append(args)
            if len(calls) == at:
                raise OSError("the line is cut")
            return real(*args, **words)

        patch.setattr(owner, cut, fail)
        with pytest.raises(OSError, match="the line is cut"):
            target.send(plan.folder, [*plan.files], plan.others)
        assert target.versions() == []
    first, *others = send(place.to, newest)
    assert first == f"1.1.0 for {place.where}: {len(files)} files, {sum(map(len, files.values())):,} bytes"
    said = {line.split()[1]: int(line.split()[0].replace(",", "")) for line in others}
    assert said == {name: len(body) for name, body in files.items()}
    assert others[-1].endswith(contents.SUMS)
    assert place.files("1.1.0") == files
    assert send(place.to, newest) is None
    later = shutil.copytree(made / "1.0.0", "1.2.0")  # it has fewer files
    send(place.to, Path(later))
    assert place.files("1.2.0") == files_of(Path(later))
    assert place.files("1.1.0") == files
    with publish.opened(place.to) as target:
        assert target.versions() == ["1.1.0", "1.2.0"]
    assert not place.hub or place.hub.messages[-1] == "1.2.0"


@pytest.mark.parametrize("kind", ["hub", "folder"])
def test_other_bytes_are_refused_and_the_last_version_is_brought_here(kind, request, made):
    place, newest, out = request.getfixturevalue(kind), made / "1.1.0", Path("here").resolve()
    send(place.to, newest)
    other = Path(shutil.copytree(made / "1.0.0", "1.1.0"))
    with pytest.raises(LongtailError, match=r"^1\.1\.0: .* has another 1\.1\.0, expected the same bytes"):
        send(place.to, other)
    assert place.files("1.1.0") == files_of(newest)
    with publish.opened(place.to) as target:
        for _ in range(2):
            publish.bring_last(target, out)
        assert files_of(out) == {f"1.1.0/{name}": body for name, body in files_of(newest).items()}
        shutil.rmtree(out)
        shutil.copytree(other, out / "1.1.0")
        with pytest.raises(LongtailError, match=r"here/1\.1\.0: .* has another 1\.1\.0; use another folder"):
            publish.bring_last(target, out)


def test_a_token_is_in_no_message_whatever_the_server_says(hub, made, monkeypatch):
    hub.hub.failing = "/api/repos/create"
    with pytest.raises(LongtailError, match=r"^--to hub:ada/popqa: .*not with Bearer \(secret\)") as caught:
        send(hub.to, made / "1.0.0")
    assert played_hub.TOKEN not in str(caught.value)
    assert "\x1b" not in str(caught.value)
    hub.hub.failing = ""
    monkeypatch.setenv("HF_TOKEN", "hf_another" + "x" * 30)
    with pytest.raises(LongtailError, match="401"):
        send(hub.to, made / "1.0.0")
    monkeypatch.delenv("HF_TOKEN")
    monkeypatch.setattr("huggingface_hub.constants.HF_TOKEN_PATH", "no file")
    with pytest.raises(LongtailError, match=r"^--to hub:ada/popqa: no token; `hf auth login` keeps one"):
        send(hub.to, made / "1.0.0")
    assert hub.hub.commits == {}


def test_a_place_that_is_none_is_named():
    for to, why in (
        ("hub:popqa", "no dataset repository, expected hub:OWNER/NAME"),
        ("hub:https://example.org/a", "no dataset repository"),
        ("nosuch://place", "ValueError: Protocol not known: nosuch"),
    ):
        with pytest.raises(LongtailError, match=f"^--to {to}: {why}"), publish.opened(to):
            pass

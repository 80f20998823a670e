"""A release is published on the Hub: whole, once and for good, and no token is shown."""

import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import played_hub
import pytest
from releases import files_of

from flows import releases
from pipelines.errors import LongtailError
from pipelines.release import contents, publish

pytestmark = pytest.mark.usefixtures("workplace")


@dataclass
class Place:
    to: str
    where: str
    hub: played_hub.Hub

    def files(self, version: str) -> dict[str, bytes]:
        """What another program finds there of a version."""
        return self.of("ada/popqa", version)

    def of(self, repository: str, version: str) -> dict[str, bytes]:
        found = self.hub.files(repository, version) or {}
        return {name: body for name, body in found.items() if name != ".gitattributes"}


@pytest.fixture
def hub(monkeypatch, tmp_path) -> Iterator[Place]:
    with played_hub.running() as server:
        monkeypatch.setenv("HF_ENDPOINT", server.address)
        monkeypatch.setenv("HF_TOKEN", played_hub.TOKEN)
        for name, value in (("HF_HUB_DISABLE_XET", True), ("HF_HUB_CACHE", str(tmp_path / "hf"))):
            monkeypatch.setattr(f"huggingface_hub.constants.{name}", value)
        yield Place("hub:ada/popqa", f"the dataset ada/popqa at {server.address}", server)


def send(to: str, folder: Path) -> list[str] | None:
    """Send a release; what the plan said, None where it is there."""
    with publish.opened(publish.Place(to)) as target:
        plan = target.plan(folder)
        if plan:
            target.send(folder)
        return plan


def test_each_version_is_sent_whole_and_stays_as_it_was(hub, made, monkeypatch):
    """Planning sends nothing, and what was cut short is no version and is sent again."""
    place, newest = hub, made / "1.1.0"
    files = files_of(newest)
    with publish.opened(publish.Place(place.to)) as target, monkeypatch.context() as patch:
        target.plan(newest)
        assert (target.versions(), place.files("1.1.0")) == ([], {})
        assert {method for method, _ in place.hub.requests} == {"GET"}

        def fail(*args, **words):
            raise OSError("the line is cut")

        patch.setattr(target.api, "create_tag", fail)
        with pytest.raises(OSError, match="the line is cut"):
            target.send(newest)
        assert target.versions() == []
    first, *others = send(place.to, newest)
    assert (
        first
        == f"1.1.0 for {place.where}: {len(files)} files, {sum(map(len, files.values())):,} bytes"
    )
    said = {line.split()[1]: int(line.split()[0].replace(",", "")) for line in others}
    assert said == {name: len(body) for name, body in files.items()}
    assert others[-1].endswith(contents.SUMS)
    assert place.files("1.1.0") == files
    assert send(place.to, newest) is None
    later = shutil.copytree(made / "1.0.0", "1.2.0")  # it has fewer files
    send(place.to, Path(later))
    assert place.files("1.2.0") == files_of(Path(later))
    assert place.files("1.1.0") == files
    with publish.opened(publish.Place(place.to)) as target:
        assert target.versions() == ["1.1.0", "1.2.0"]
    assert place.hub.messages[-1] == "1.2.0"


def test_a_retriever_is_a_model_of_its_own(hub, made):
    """It has the version of the release, and is sent once, as the data set is."""
    first = [*releases.publish(hub.to, made / "1.1.0")]
    assert [line for line in first if line.startswith("sent")] == ["sent: 1.1.0"] * 2
    model = "the model ada/popqa-dense at"
    assert any(line.startswith(f"1.1.0 for {model}") for line in first)
    assert hub.of("ada/popqa-dense", "1.1.0") == files_of(made / "1.1.0/retriever/dense")
    assert hub.files("1.1.0") == files_of(made / "1.1.0")
    again = releases.publish(hub.to, made / "1.1.0")
    assert [line.startswith("1.1.0 is there already") for line in again] == [True, True]
    there = releases.publish(hub.to, Path("another machine/1.1.0"))
    assert [*there] == [f"1.1.0 is there already: {hub.where}"]
    with pytest.raises(LongtailError, match=r"^another machine/1\.2\.0: no SHA256SUMS in it"):
        next(releases.publish(hub.to, Path("another machine/1.2.0")))


def test_other_bytes_are_refused(hub, made):
    place, newest = hub, made / "1.1.0"
    send(place.to, newest)
    other = Path(shutil.copytree(made / "1.0.0", "1.1.0"))
    with pytest.raises(
        LongtailError, match=r"^1\.1\.0: .* has another 1\.1\.0, expected the same bytes"
    ):
        send(place.to, other)
    assert place.files("1.1.0") == files_of(newest)


def test_a_release_that_is_not_gated_is_not_sent(hub, made):
    folder = Path(shutil.copytree(made / "1.1.0", "1.1.0-not-gated"))
    with pytest.raises(
        LongtailError, match=r"^1\.1\.0-not-gated: not gated, expected a release of"
    ):
        next(releases.publish(hub.to, folder))
    assert hub.hub.requests == []


def test_a_token_is_in_no_message_whatever_the_server_says(hub, made, monkeypatch):
    hub.hub.failing = "/api/repos/create"
    with pytest.raises(
        LongtailError, match=r"^--to hub:ada/popqa: .*not with Bearer \(secret\)"
    ) as caught:
        send(hub.to, made / "1.0.0")
    assert played_hub.TOKEN not in str(caught.value)
    assert "\x1b" not in str(caught.value)
    hub.hub.failing = ""
    monkeypatch.setenv("HF_TOKEN", "hf_another" + "x" * 30)
    with pytest.raises(LongtailError, match="401"):
        send(hub.to, made / "1.0.0")
    monkeypatch.delenv("HF_TOKEN")
    monkeypatch.setattr("huggingface_hub.constants.HF_TOKEN_PATH", "no file")
    with pytest.raises(
        LongtailError, match=r"^--to hub:ada/popqa: no token; `hf auth login` keeps one"
    ):
        send(hub.to, made / "1.0.0")
    assert hub.hub.commits == {}


def test_a_place_that_is_none_is_named():
    for to, why in (
        ("hub:popqa", "no repository, expected hub:OWNER/NAME"),
        ("hub:https://example.org/a", "no repository"),
        ("s3://bucket/a", "no repository"),
    ):
        with (
            pytest.raises(LongtailError, match=f"^--to {to}: {why}"),
            publish.opened(publish.Place(to)),
        ):
            pass


def test_what_fails_before_sending_says_that_nothing_was_sent() -> None:
    message = "OSError: offline; nothing was sent$"
    with (
        pytest.raises(LongtailError, match=message),
        publish.opened(publish.Place("hub:ada/popqa")),
    ):
        raise OSError("offline")

"""A server on loopback that plays the Hugging Face Hub, as far as data sets and models are
published and read there.
"""

import base64
import hashlib
import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from urllib.parse import unquote, urlsplit

from http_faults import Handler, Server, serving

TOKEN = "hf_" + "playedToken" * 4
EMPTY = "0" * 40  # the first commit of each repository


class Hub:
    """Its repositories: commits by id, each with all files, and where main and the tags point."""

    def __init__(self) -> None:
        self.commits: dict[str, dict[str, bytes]] = {}
        self.refs: dict[str, dict[str, str]] = {}  # repository -> main or a tag -> commit
        self.messages: list[str] = []
        self.large: dict[str, bytes] = {}
        self.requests: list[tuple[str, str]] = []
        # a request whose path has this in it is answered with 400, and the token that was sent
        self.failing = ""
        self.address = ""

    def files(self, repository: str, revision: str) -> dict[str, bytes] | None:
        refs = self.refs.get(repository, {})
        return self.commits.get(refs.get(revision, revision))

    def commit(self, repository: str, lines: list[dict]) -> str:
        files = dict(self.files(repository, "main") or {})
        for line in lines:
            value = line["value"]
            if line["key"] == "header":
                self.messages.append(value["summary"])
            elif line["key"] == "file":
                files[value["path"]] = base64.b64decode(value["content"])
            elif line["key"] == "lfsFile":
                files[value["path"]] = self.large[value["oid"]]
            else:
                assert line["key"] == "deletedFile"
                del files[value["path"]]
        made = hashlib.sha1(repr((sorted(files.items()), len(self.commits))).encode()).hexdigest()
        self.commits[made] = files
        self.refs[repository]["main"] = made
        return made


def git_oid(body: bytes) -> str:
    return hashlib.sha1(b"blob %d\0" % len(body) + body).hexdigest()


def _handler(hub: Hub) -> type[Handler]:
    class OfHub(Handler):
        def answer(self, status: int, body: object = None, **headers: str) -> None:
            data = body if isinstance(body, bytes) else json.dumps(body).encode()
            self.send_response(status)
            for name, value in headers.items():
                self.send_header(name.replace("_", "-"), value)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(data)

        def work(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            path = unquote(urlsplit(self.path).path)
            hub.requests.append((self.command, path))
            authorised = self.headers.get("Authorization") == f"Bearer {TOKEN}"
            if hub.failing and hub.failing in path:
                return self.answer(
                    400, {"error": f"no\x1b[31m, not with {self.headers.get('Authorization')}"}
                )
            if path.startswith("/store/"):
                hub.large[path.removeprefix("/store/")] = body
                return self.answer(200, {})
            if path == "/api/validate-yaml":
                return self.answer(200, {"errors": [], "warnings": []})
            if self.command in ("POST", "PUT") and not authorised:
                return self.answer(401, {"error": "Invalid username or password."})
            if path == "/api/repos/create":
                asked = json.loads(body)
                name = f"{asked['organization']}/{asked['name']}"
                known = name in hub.refs
                if not known:
                    hub.commits[EMPTY] = {".gitattributes": b"*.parquet lfs\n"}
                    hub.refs[name] = {"main": EMPTY}
                return self.answer(409 if known else 200, {"url": f"{hub.address}/datasets/{name}"})
            kinds = "/api/datasets|/datasets|/api/models|"  # a model's files have no word before
            match = re.fullmatch(rf"(?:{kinds})/([^/]+/[^/]+?)(\.git/.*|/.*)?", path)
            if not match or match[1] not in hub.refs:
                return self.answer(
                    404, {"error": "Repository not found"}, X_Error_Code="RepoNotFound"
                )
            return self.of_repository(match[1], match[2] or "", body)

        def of_repository(self, name: str, rest: str, body: bytes) -> None:
            verb, _, last = rest.lstrip("/").partition("/")
            refs = hub.refs[name]
            if verb == "refs":
                tags = [
                    {"name": tag, "ref": f"refs/tags/{tag}", "targetCommit": of}
                    for tag, of in refs.items()
                ]
                return self.answer(200, {"branches": tags[:1], "converts": [], "tags": tags[1:]})
            if verb == "preupload":
                there = hub.files(name, "main") or {}
                files = []
                for at in (file["path"] for file in json.loads(body)["files"]):
                    mode = "lfs" if at.endswith(".parquet") else "regular"
                    oid = git_oid(there[at]) if at in there else None
                    files.append(
                        {"path": at, "uploadMode": mode, "shouldIgnore": False, "oid": oid}
                    )
                return self.answer(200, {"files": files})
            if rest == ".git/info/lfs/objects/batch":
                objects = json.loads(body)["objects"]
                for one in objects:
                    one["actions"] = {"upload": {"href": f"{hub.address}/store/{one['oid']}"}}
                return self.answer(200, {"transfer": "basic", "objects": objects})
            if verb == "commit":
                made = hub.commit(name, [json.loads(line) for line in body.splitlines()])
                url = f"{hub.address}/datasets/{name}/commit/{made}"
                return self.answer(200, {"commitUrl": url, "commitOid": made})
            if verb == "tag":
                tag = json.loads(body)["tag"]
                if tag in refs:
                    return self.answer(409, {"error": "Tag exists"})
                refs[tag] = refs.get(last, last)
                return self.answer(200, {})
            revision, _, file = last.partition("/")
            files = hub.files(name, revision)
            if files is None:
                return self.answer(
                    404, {"error": "Invalid rev id"}, X_Error_Code="RevisionNotFound"
                )
            commit = refs.get(revision, revision)
            if verb == "resolve":
                if file not in files:
                    return self.answer(
                        404, {"error": "Entry not found"}, X_Error_Code="EntryNotFound"
                    )
                return self.answer(
                    200, files[file], ETag=f'"{git_oid(files[file])}"', X_Repo_Commit=commit
                )
            if verb == "tree":
                about = {
                    at: {"size": len(of), "oid": git_oid(of)}
                    for at, of in files.items()
                    if at.startswith(file)
                }
                return self.answer(
                    200, [{"type": "file", "path": at} | of for at, of in about.items()]
                )
            if verb in ("revision", ""):
                siblings = [{"rfilename": at} for at in files]
                about = {
                    "id": name,
                    "sha": commit,
                    "siblings": siblings,
                    "private": False,
                    "tags": [],
                    "downloads": 0,
                }
                return self.answer(200, about)
            raise AssertionError(f"{self.command} {self.path} is not played")

        do_GET = do_HEAD = do_POST = do_PUT = work

    return OfHub


@contextmanager
def running() -> Iterator[Hub]:
    hub = Hub()
    with serving(Server(_handler(hub))) as server:
        hub.address = server.address
        yield hub

"""No file of a project has a key after a run that failed with it in every way, nor does the
terminal.
"""

from pathlib import Path

import quick_project

KEY = "sk-SECRET123456"
FAILING = """
    if text.startswith("leak"):
        import logging, warnings
        key = os.environ["LONGTAIL_API_KEY"]
        print("asked with", key, flush=True)
        print(f"with {key!r}", file=sys.stderr)
        logging.warning("a library asked with %s", key)
        warnings.warn(f"a library asked with {key}")
        if text == "leak in a line":
            raise LongtailError(f"http://ada:{key.strip()}@host: who is {key}?")
        raise ValueError(f"Invalid header value {('Bearer ' + key).encode()!r}")
"""


def files_with(folder: Path, text: str) -> list[str]:
    files = [file for file in folder.rglob("*") if file.is_file()]
    return [str(file) for file in files if text.encode() in file.read_bytes()]


def test_a_key_is_in_no_file_of_a_project(project):
    work = quick_project.WORK.replace(
        '    if text.startswith(f"fail', f'{FAILING}    if text.startswith(f"fail', 1
    )
    (project.folder / "work.py").write_text(work)
    project.environment["LONGTAIL_API_KEY"] = f"{KEY}\r\n"
    project.environment["HTTPS_PROXY"] = f"http://ada:{KEY}-proxy@proxy.example:1"
    for text in ("leak in a line", "leak in a traceback"):
        (project.folder / "input.txt").write_text(text)
        done = project.longtail("run", tracked=True)
        said = done.stdout + done.stderr
        assert done.returncode == 1
        assert "(secret)" in said, said
        assert KEY not in said
    assert "asked with (secret)" in (project.folder / ".longtail/logs/a.log").read_text()
    assert files_with(project.folder, "(secret)"), "its logs and MLflow's database"
    assert files_with(project.folder, KEY) == []
    assert files_with(project.prefect.home, "(secret)"), "Prefect's database"
    assert files_with(project.prefect.home, KEY) == []

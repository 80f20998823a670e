"""Check the Prefect server that PREFECT_API_URL names, before a run needs it."""

import httpx

from pipelines.errors import LongtailError

ANSWER_SECONDS = 5.0  # for each of the tries that Prefect's client makes to reach a server
NO_ACCESS = (401, 403)
ADVICE = (
    "start that server, or correct the address, which ends in /api; or unset PREFECT_API_URL, and "
    "the run starts a server of its own"
)


def check_named_server(url: str) -> None:
    """Ask the server at `url`, which Prefect's settings name, for its version and a flow.

    Raises LongtailError if it does not answer as a Prefect server that this client can use.
    """
    from prefect.client.orchestration import get_client

    try:
        # a server of Prefect 2 or 4 is refused by its version, Prefect's cloud has none
        with get_client(sync_client=True, httpx_settings={"timeout": ANSWER_SECONDS}) as client:
            client.raise_for_api_version_mismatch()
            client.read_flows(limit=1)
    except Exception as error:
        raise LongtailError(f"PREFECT_API_URL={url}: {_problem(error)}; {ADVICE}") from None


def _problem(error: Exception) -> str:
    """What is wrong with a server, by an error of Prefect's client."""
    cause = error.__cause__ or error
    if isinstance(cause, httpx.HTTPStatusError):
        status = cause.response.status_code
        if status in NO_ACCESS:
            return (
                f"it wants a key or another one (status {status}), set PREFECT_API_KEY, or "
                "PREFECT_API_AUTH_STRING"
            )
        return f"no Prefect server answers there, but status {status}"
    if isinstance(cause, httpx.HTTPError | httpx.InvalidURL):
        return f"nothing answers there ({cause})"
    if isinstance(cause, RuntimeError):  # another version
        return str(cause).rstrip(".")
    return "something else than a Prefect server answers there"

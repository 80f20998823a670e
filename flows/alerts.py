"""Alerts: one message for each scheduled run that needs a person.

An automation of Prefect's server sends them. It watches the states of runs, and calls a block of
Prefect's, which holds the address and its secrets. No process of Longtail takes part.
"""

import asyncio
from datetime import timedelta
from typing import cast
from urllib.parse import urlsplit

import httpx
from prefect.automations import Automation, CompoundTrigger, EventTrigger
from prefect.blocks.abstract import NotificationBlock, NotificationError
from prefect.blocks.core import Block
from prefect.blocks.webhook import Webhook
from prefect.client.orchestration import get_client
from prefect.events.actions import CallWebhook, SendNotification
from prefect.events.schemas.automations import TriggerTypes
from prefect.exceptions import ObjectNotFound
from prefect.types import SecretDict
from pydantic import SecretStr

from flows import run_states
from flows.schedules import POOL
from pipelines.errors import LongtailError

NAME = "longtail-alerts"  # of the automation, and of the block that is made for an address
# states -> days in which the same message of a deployment is not sent again; a weekly run that
# fails is said each week, and a late month once
REPEATED_AFTER_DAYS = {
    ("Failed", "Crashed", "TimedOut", "Late", run_states.STOPPED): 6,
    (run_states.DUMPS_LATE,): 31,
}
SUBJECT = "Longtail: {{ flow_run.state.name }}"
WAITS = (
    "the run was to begin on {{ flow_run.expected_start_time.strftime('%d %b %H:%M UTC') }} and "
    "waits: look whether its worker is up, and whether another run is at work"
)
MESSAGE = (
    "{{ flow_run.state.name }}: {{ flow.name }} {{ flow_run.name }}\n"
    "{% if flow_run.state.message %}{{ flow_run.state.message }}{% else %}"
    + WAITS
    + "{% endif %}\n"
    "{{ flow_run | ui_url }}"
)
# a JSON object that Slack, Mattermost, Google Chat and others show
PAYLOAD = '{"text": {% filter tojson %}' + MESSAGE + "{% endfilter %}}"
JSON = SecretDict({"Content-Type": "application/json"})
TEST_SUBJECT = "Longtail: a test"
TEST_MESSAGE = "a test: alerts of Longtail's scheduled runs arrive here"


def set_up(to: str) -> None:
    """Send alerts to an address, or to Prefect's block TYPE/NAME.

    A test alert is sent first. Raises LongtailError if it is not accepted; nothing is changed then.
    """
    if "://" in to:
        block: Block = _webhook(to)
        asyncio.run(_send_test(block))
        block.save(NAME, overwrite=True)
    else:
        block = _load(to)
        asyncio.run(_send_test(block))

    automation = _automation(block)
    existing = _find()
    if existing is None:
        automation.create()
    else:
        automation.id = existing.id
        automation.update()


def describe() -> list[str]:
    """Say where alerts are sent, and of what."""
    automation = _find()
    if automation is None:
        return ["no alerts are set up; `longtail alerts --to ADDRESS` does"]

    action = cast(CallWebhook | SendNotification, automation.actions[0])
    with get_client(sync_client=True) as client:
        try:
            document = client.read_block_document(action.block_document_id, include_secrets=False)
        except ObjectNotFound:
            return ["the block that alerts went to is gone; `longtail alerts --to ADDRESS`"]
    assert document.block_type is not None
    line = f"alerts go to {document.block_type.slug}/{document.name}"
    if not automation.enabled:
        line += ", but the automation is disabled on Prefect's page"
    return [line, f"of scheduled runs in the states {', '.join(states())}"]


def states() -> list[str]:
    """The names of the states that are alerts."""
    names: list[str] = []
    for group in REPEATED_AFTER_DAYS:
        names += group
    return names


def remove() -> bool:
    """Send no more alerts; returns whether any were set up.

    The address that `set_up` kept is removed, and a block that a person made stays.
    """
    automation = _find()
    if automation is None:
        return False
    automation.delete()
    with get_client(sync_client=True) as client:
        try:
            document = client.read_block_document_by_name(NAME, Webhook.get_block_type_slug())
        except ObjectNotFound:
            return True
        client.delete_block_document(document.id)
    return True


def _find() -> Automation | None:
    """The automation that sends the alerts."""
    with get_client(sync_client=True) as client:
        automations = client.read_automations_by_name(NAME)
    if not automations:
        return None
    return Automation(**automations[0].model_dump())


def _automation(block: Block) -> Automation:
    """The automation that sends alerts to a saved block."""
    block_id = block._block_document_id
    assert block_id is not None
    action: CallWebhook | SendNotification
    if isinstance(block, Webhook):
        action = CallWebhook(block_document_id=block_id, payload=PAYLOAD)
    else:
        action = SendNotification(block_document_id=block_id, subject=SUBJECT, body=MESSAGE)
    triggers: list[TriggerTypes] = []
    for names, days in REPEATED_AFTER_DAYS.items():
        triggers.append(_trigger(names, days))
    return Automation(
        name=NAME,
        description="Says which scheduled runs need a person: `longtail alerts`",
        trigger=CompoundTrigger(require="any", within=None, triggers=triggers),
        actions=[action],
    )


def _trigger(names: tuple[str, ...], days: int) -> EventTrigger:
    """Fires when a run of the work pool enters one of these states, once in `days` for a message.

    A run by hand, and a part of a run, belong to no work pool.
    """
    return EventTrigger(
        expect={f"prefect.flow-run.{name}" for name in names},
        match_related={"prefect.resource.role": "work-pool", "prefect.resource.name": POOL},
        for_each={
            "related:deployment:prefect.resource.id",
            "prefect.state-name",
            "prefect.state-message",
        },
        within=timedelta(days=days),
    )


def _webhook(address: str) -> Webhook:
    """A webhook that is sent JSON. Private addresses, such as a company's own, are allowed."""
    parts = urlsplit(address)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise LongtailError("--to: expected an http or https address, or a block's TYPE/NAME")
    return Webhook(url=SecretStr(address), headers=JSON, allow_private_urls=True)


def _load(reference: str) -> Block:
    """The block TYPE/NAME of Prefect's, which can send a message."""
    import prefect.blocks.notifications  # noqa: F401  its blocks are known then

    try:
        block = Block.load(reference)
    except ValueError:
        problem = "no block of this TYPE/NAME, as slack-webhook/ops"
        advice = "`prefect block ls` lists blocks, and Prefect's page makes them"
        raise LongtailError(f"--to {reference}: {problem}; {advice}") from None
    if not isinstance(block, Webhook | NotificationBlock):
        raise LongtailError(f"--to {reference}: this block sends no messages")
    return block


async def _send_test(block: Block) -> None:
    """Send a test alert, as the server sends alerts. Errors name no address: it may be secret."""
    try:
        if isinstance(block, Webhook):
            response = await block.call({"text": TEST_MESSAGE})
            if not response.is_success:
                raise _refused(f"status {response.status_code}")
        else:
            notification = cast(NotificationBlock, block)
            with notification.raise_on_failure():
                await notification.notify(TEST_MESSAGE, TEST_SUBJECT)
    except NotificationError as error:
        raise _refused(error.log.strip()) from None
    except httpx.HTTPStatusError as error:
        raise _refused(f"status {error.response.status_code}") from None
    except (httpx.HTTPError, httpx.InvalidURL) as error:
        raise _refused(type(error).__name__) from None


def _refused(problem: str) -> LongtailError:
    return LongtailError(f"the test alert was not accepted ({problem}); nothing is changed")

"""Alerts: one message for each scheduled run that needs a person.

An automation of Prefect's server sends them; conf/alerts.yaml declares it. A block of Prefect's
holds the address and its secrets. No process of Longtail takes part.
"""

import asyncio
from pathlib import Path
from urllib.parse import urlsplit

import httpx
from prefect.blocks.abstract import NotificationBlock, NotificationError
from prefect.blocks.core import Block
from prefect.blocks.webhook import Webhook
from prefect.client.orchestration import get_client
from prefect.events.actions import CallWebhook, SendNotification
from prefect.events.schemas.automations import AutomationCore
from prefect.types import SecretDict
from pydantic import SecretStr, TypeAdapter

from pipelines import redaction
from pipelines.check.entries import read_entries
from pipelines.errors import LongtailError

FILE = Path("conf/alerts.yaml")
NAME = "longtail-alerts"  # of the block that is made for an address
JSON = SecretDict({"Content-Type": "application/json"})
TEST_SUBJECT = "Longtail: a test"
TEST_MESSAGE = "a test: alerts of Longtail's scheduled runs arrive here"


def set_up(to: str) -> None:
    """Send alerts to an address, or to Prefect's block TYPE/NAME.

    A test alert is sent first. Raises LongtailError if it is not accepted; nothing is changed then.
    """
    automation = _read_automation()
    is_address = "://" in to
    block: Webhook | NotificationBlock = _webhook(to) if is_address else _load(to)
    asyncio.run(_send_test(block))
    if is_address:
        block.save(NAME, overwrite=True)

    _set_block(automation, block)
    with get_client(sync_client=True) as client:
        existing = client.read_automations_by_name(automation.name)
        if existing:
            client.update_automation(existing[0].id, automation)
        else:
            client.create_automation(automation)


def _read_automation() -> AutomationCore:
    """The automation of FILE. Raises LongtailError where the file is wrong."""
    automation = read_entries(FILE, TypeAdapter(AutomationCore))
    if automation is None:
        raise LongtailError(f"{FILE}: expected an automation of Prefect's; `git checkout {FILE}`")
    return automation


def _set_block(automation: AutomationCore, block: Webhook | NotificationBlock) -> None:
    """Have the automation call a saved block, by the action that such a block has in FILE."""
    assert block._block_document_id is not None
    kind = CallWebhook if isinstance(block, Webhook) else SendNotification
    for action in automation.actions:
        if isinstance(action, kind):
            action.block_document_id = block._block_document_id
            automation.actions = [action]
            return
    raise LongtailError(f"{FILE}: no action calls such a block; `git checkout {FILE}`")


def _webhook(address: str) -> Webhook:
    """A webhook that is sent JSON. Private addresses, such as a company's own, are allowed."""
    parts = urlsplit(address)
    redaction.remember(address, parts.path)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise LongtailError("--to: expected an http or https address, or a block's TYPE/NAME")
    return Webhook(url=SecretStr(address), headers=JSON, allow_private_urls=True)


def _load(reference: str) -> Webhook | NotificationBlock:
    """The block TYPE/NAME of Prefect's, which can send a message."""
    import prefect.blocks.notifications  # noqa: F401  its blocks are known then

    try:
        block = Block.load(reference)
    except ValueError:
        raise LongtailError(
            f"--to {reference}: no block of this TYPE/NAME, as slack-webhook/ops; `prefect block "
            "ls` lists blocks, and Prefect's page makes them"
        ) from None
    if not isinstance(block, Webhook | NotificationBlock):
        raise LongtailError(f"--to {reference}: this block sends no messages")
    return block


async def _send_test(block: Webhook | NotificationBlock) -> None:
    """Send a test alert, as the server sends alerts. Errors name no address: it may be secret."""
    try:
        if isinstance(block, Webhook):
            response = await block.call({"text": TEST_MESSAGE})
            response.raise_for_status()
        else:
            with block.raise_on_failure():
                await block.notify(TEST_MESSAGE, TEST_SUBJECT)
        return
    except NotificationError as error:
        problem = error.log.strip()
    except httpx.HTTPStatusError as error:
        problem = f"status {error.response.status_code}"
    except (httpx.HTTPError, httpx.InvalidURL) as error:
        problem = type(error).__name__
    raise LongtailError(f"the test alert was not accepted ({problem}); nothing is changed")

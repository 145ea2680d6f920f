"""Why a query cannot be planned. The words that a user of Spark's connector would look for are kept."""

from __future__ import annotations

import logging

log = logging.getLogger(__name__)

MAY_BE_LOST = (
    "Some data may have been lost because they are not available in Kafka any more; either the data was aged out by "
    "Kafka or the topic may have been deleted before all the data in the topic was processed. "
)


class OptionError(ValueError):
    """An option that is missing, is none, or contradicts another one."""


class OffsetsUnavailable(Exception):
    """The brokers did not say what was asked, however often."""


class PlannedDataLoss(Exception):
    """Offsets that the query stands at, or is to read, are gone."""


def report_data_loss(fail_on_data_loss: bool, name: str, reason: str) -> None:
    """The error, or a line in the log where the user has said that the query is to go on."""
    if fail_on_data_loss:
        raise PlannedDataLoss(
            f"[KAFKA_DATA_LOSS.{name}] {MAY_BE_LOST}If you don't want your streaming query to fail on such cases, set "
            f"the source option failOnDataLoss to false. Reason: {reason}"
        )
    log.warning("%s %s", reason, MAY_BE_LOST)

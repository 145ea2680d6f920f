"""ListTransactions (66): the transactional ids that this broker coordinates, by state, producer, age and name.

Filters of all kinds must fit (KIP-664). A state that nobody knows is named in the answer, and fits nothing.

- v1: KIP-994, by age. v2: KIP-1152, by name.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from moldau.base.errors import ErrorCode
from moldau.broker.answers.transactions import ListedTransaction, ListTransactionsResponse
from moldau.broker.interface import CoordinatorBroker, Request, RequestContext
from moldau.coordinator.expressions import BadExpression, Expression
from moldau.coordinator.transaction.messages import Described
from moldau.coordinator.transaction.transaction import LABELS

API_KEY = 66
VERSIONS = (0, 2)

NO_DURATION = -1


async def handle(
    broker: CoordinatorBroker, context: RequestContext, request: Request
) -> ListTransactionsResponse:
    try:
        wanted = getattr(request, "transactional_id_pattern", None)
        pattern = Expression(wanted) if wanted else None
    except BadExpression:
        return ListTransactionsResponse(ErrorCode.invalid_regular_expression)
    found: list[Described] = []
    for reply in broker.coordinators.transactions.read_all(
        lambda shard, _moment: shard.list_transactions(), lambda error: error
    ):
        described = await reply
        if isinstance(described, ErrorCode):
            return ListTransactionsResponse(described)
        found += described
    states = [LABELS[name] for name in request.state_filters if name in LABELS]
    unknown = [name for name in request.state_filters if name not in LABELS]
    listed = _by_age(broker, request, found)
    if request.state_filters:
        listed = (one for one in listed if one.transaction.state in states)
    if request.producer_id_filters:
        listed = (one for one in listed if one.transaction.producer_id in request.producer_id_filters)
    if pattern is not None:
        listed = (one for one in listed if pattern.matches(one.transactional_id))
    return ListTransactionsResponse(ErrorCode.none, tuple(unknown), tuple(map(_listed, listed)))


def _listed(one: Described) -> ListedTransaction:
    transaction = one.transaction
    return ListedTransaction(one.transactional_id, transaction.producer_id, transaction.state.label)


def _by_age(broker: CoordinatorBroker, request: Request, found: Iterable[Described]) -> Iterator[Described]:
    """Those that have been open for longer than asked for."""
    duration_ms = getattr(request, "duration_filter", NO_DURATION)
    now_ms = broker.clock.wall_ms()
    return (one for one in found if duration_ms < 0 or now_ms - one.transaction.start_ms > duration_ms)

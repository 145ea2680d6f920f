"""ListTransactions (66): the transactional ids that this broker coordinates, by state, producer, age and name.

- v0: KIP-664
- v1: KIP-994, by age
- v2: KIP-1152, by name

Filters of all kinds must fit (KIP-664). A state that nobody knows is named in the answer, and fits nothing.
"""

from __future__ import annotations

from typing import NamedTuple

from moldau.base.errors import ErrorCode
from moldau.broker.answers.transactions import ListedTransaction, ListTransactionsResponse
from moldau.broker.guard import may_quietly
from moldau.broker.interface import CoordinatorBroker, Request, RequestContext
from moldau.broker.paced import ELEMENTS_PER_PAUSE
from moldau.coordinator.expressions import BadExpression, Expression, expression
from moldau.coordinator.transaction.transaction import LABELS, State, Transaction
from moldau.security.acls import Operation, Resource
from moldau.security.rights import right

API_KEY = 66
VERSIONS = (0, 2)

DESCRIBE_ID = right("ListTransactions", Operation.DESCRIBE, Resource.TRANSACTIONAL_ID)

NO_DURATION = -1


async def handle(
    broker: CoordinatorBroker, context: RequestContext, request: Request
) -> ListTransactionsResponse:
    try:
        wanted = _wanted(broker, request)
    except BadExpression:
        return ListTransactionsResponse(ErrorCode.invalid_regular_expression)
    listed: list[ListedTransaction] = []
    for reply in broker.coordinators.transactions.read_all(
        lambda shard, _moment: shard.list_transactions(), lambda error: error
    ):
        found: ErrorCode | list[tuple[str, Transaction]] = await reply
        if isinstance(found, ErrorCode):
            return ListTransactionsResponse(found)
        for number, (transactional_id, transaction) in enumerate(found):
            if (
                wanted.pattern is not None or number % ELEMENTS_PER_PAUSE == 0
            ):  # one match may take milliseconds
                await context.breathe()
            if wanted.fits(transactional_id, transaction) and may_quietly(
                broker, context, DESCRIBE_ID, transactional_id
            ):
                listed.append(
                    ListedTransaction(transactional_id, transaction.producer_id, transaction.state.label)
                )
    unknown = tuple(name for name in request.state_filters if name not in LABELS)
    return ListTransactionsResponse(ErrorCode.none, unknown, tuple(listed))


class Wanted(NamedTuple):
    """The filters of a request; None where it has none of the kind."""

    states: frozenset[State] | None
    producer_ids: frozenset[int] | None
    begun_before_ms: int | None
    pattern: Expression | None

    def fits(self, transactional_id: str, transaction: Transaction) -> bool:
        return (
            (self.begun_before_ms is None or transaction.start_ms < self.begun_before_ms)
            and (self.states is None or transaction.state in self.states)
            and (self.producer_ids is None or transaction.producer_id in self.producer_ids)
            and (self.pattern is None or self.pattern.matches(transactional_id))
        )


def _wanted(broker: CoordinatorBroker, request: Request) -> Wanted:
    """BadExpression where the pattern is none."""
    names, producer_ids = request.state_filters, request.producer_id_filters
    duration_ms = getattr(request, "duration_filter", NO_DURATION)
    pattern = getattr(request, "transactional_id_pattern", None)
    return Wanted(
        frozenset(LABELS[name] for name in names if name in LABELS) if names else None,
        frozenset(producer_ids) if producer_ids else None,
        broker.clock.wall_ms() - duration_ms if duration_ms >= 0 else None,
        expression(pattern) if pattern else None,
    )

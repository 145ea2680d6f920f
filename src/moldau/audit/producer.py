"""confluent-kafka's Producer that also publishes, by topic and time window, what was acknowledged.

    with AuditedProducer({"bootstrap.servers": "localhost:9092"}, name="shop") as producer:
        producer.produce("orders", key="customer-7", value="3 apples")

Everything else is the producer's own. A record counts when its delivery report says that it is stored, in the window
of its timestamp; one in a transaction counts when the transaction is committed, and not at all when it is aborted. The
client's retries do not count twice: a record has one delivery report. `close` waits for the reports and publishes.

`delivery.report.only.error` would hide what has to be counted: it is refused.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from confluent_kafka import KafkaError, Message, Producer

from moldau.audit.messages import TOPIC
from moldau.audit.publisher import CLOSE_TIMEOUT_S, INTERVAL_S, WINDOW_S, AuditPublisher, timestamp_of
from moldau.audit.tally import Tally, identity, window_of

Callback = Callable[[KafkaError | None, Message], None]
CALLBACKS = ("on_delivery", "callback")
"""Two names of one argument."""


@dataclass(frozen=True, slots=True)
class Counting:
    """A program's own callback, after the count."""

    count: Callback
    callback: Callback

    def __call__(self, error: KafkaError | None, message: Message) -> None:
        self.count(error, message)
        self.callback(error, message)


class AuditedProducer(Producer):  # type: ignore[misc]  # confluent-kafka has no types here
    def __init__(
        self,
        config: Mapping[str, Any],
        name: str = "",
        *,
        audit_topic: str = TOPIC,
        window_s: float = WINDOW_S,
        interval_s: float = INTERVAL_S,
    ) -> None:
        if str(config.get("delivery.report.only.error", False)).lower() == "true":
            raise ValueError("delivery.report.only.error hides from the audit what has been stored")
        self._usual: Callback | None = config.get("on_delivery", config.get("dr_cb"))
        self._is_transactional = bool(config.get("transactional.id"))
        self._uncommitted: dict[tuple[str, int], Tally] = defaultdict(Tally)
        own = {key: value for key, value in config.items() if key not in ("on_delivery", "dr_cb")}
        super().__init__({**own, "on_delivery": self._delivered})
        self.audit = AuditPublisher(config, name, topic=audit_topic, window_s=window_s, interval_s=interval_s)

    def produce(self, topic: str, *args: Any, **kwargs: Any) -> None:
        super().produce(topic, *self._counting_arguments(args), **self._counting_options(kwargs))

    def produce_batch(self, topic: str, messages: list[dict[str, Any]], *args: Any, **kwargs: Any) -> int:
        for message in messages:
            if message.get("callback") is not None:
                message["callback"] = self._counting(message["callback"])
        if len(args) > 1:
            args = (args[0], self._counting(args[1]))
        else:
            kwargs["on_delivery"] = self._counting(kwargs.get("on_delivery"))
        return int(super().produce_batch(topic, messages, *args, **kwargs))

    def commit_transaction(self, *args: Any, **kwargs: Any) -> None:
        super().commit_transaction(*args, **kwargs)
        for (topic, window_ms), tally in self._uncommitted.items():
            self.audit.count_tally(topic, window_ms, tally)
        self._uncommitted.clear()

    def abort_transaction(self, *args: Any, **kwargs: Any) -> None:
        super().abort_transaction(*args, **kwargs)
        self._uncommitted.clear()

    def close(self, timeout_s: float = CLOSE_TIMEOUT_S) -> bool:
        """Wait for the delivery reports, publish the counts, close; False where records or counts were not sent."""
        is_sent = self.flush(timeout_s) == 0
        is_published = self.audit.close(timeout_s)
        is_closed = super().close() if hasattr(Producer, "close") else True
        return bool(is_sent and is_published and is_closed)

    def __enter__(self) -> AuditedProducer:
        return self

    def __exit__(self, *_error: object) -> None:
        self.close()

    def _counting_arguments(self, args: tuple[Any, ...]) -> tuple[Any, ...]:
        """produce(topic, value, key, partition, on_delivery, ...): the callback may come by its place."""
        if len(args) < 4 or args[3] is None:
            return args
        return (*args[:3], self._counting(args[3]), *args[4:])

    def _counting_options(self, kwargs: dict[str, Any]) -> dict[str, Any]:
        for name in CALLBACKS:
            if kwargs.get(name) is not None:
                kwargs[name] = self._counting(kwargs[name])
        return kwargs

    def _counting(self, callback: Callback | None) -> Callback:
        if callback is None:
            return self._delivered
        if isinstance(callback, Counting):  # a batch's message that is sent again
            return callback
        return Counting(self._count, callback)

    def _delivered(self, error: KafkaError | None, message: Message) -> None:
        self._count(error, message)
        if self._usual is not None:
            self._usual(error, message)

    def _count(self, error: KafkaError | None, message: Message) -> None:
        if error is not None:
            return
        if not self._is_transactional:
            self.audit.delivered(error, message)
            return
        timestamp_ms = timestamp_of(message)
        place = message.topic() or "", window_of(timestamp_ms, self.audit.window_length_ms)
        self._uncommitted[place].add(identity(timestamp_ms, message.key(), message.value()))

"""A scenario's view of the two brokers: it asks, and the differences are kept for the end."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from moldau.broker.handlers import ROUTES
from moldau.wire.apis import APIS_BY_NAME

from .accepted import ACCEPTED, Accepted
from .normal import differences, plain
from .peers import PATIENCE_S, Both, Pair, Peer

AT_ONCE_S = 0.35
NO_SUCH_ID = UUID(int=7)


@dataclass(frozen=True, slots=True)
class Difference:
    place: str
    kafka: Any
    moldau: Any

    def __str__(self) -> str:
        return f"{self.place}\n    kafka:  {self.kafka!r}\n    moldau: {self.moldau!r}"


class Conversation:
    """One scenario in one version of its API."""

    def __init__(self, pair: Pair, api: str, version: int, label: str) -> None:
        self.pair = pair
        self.api = api
        self.version = version
        self._label = label
        self.differences: list[Difference] = []
        self.accepted: set[Accepted] = set()

    # ---- asking -----------------------------------------------------------------------------------------------

    def ask(
        self,
        case: str,
        values: dict[str, Any],
        *,
        api: str | None = None,
        version: int | None = None,
        decoded: bool = False,
        adjust: Callable[[Any], Any] = lambda tree: tree,
        patience_s: float = PATIENCE_S,
    ) -> Both:
        """Ask both and compare. `adjust` changes both trees before: it sorts, or takes out what may differ."""
        api = api or self.api
        version = self.version if version is None else version
        answers = self.pair.ask(api, version, values, patience_s)
        self._compare(api, version, case, answers, decoded, adjust)
        return answers

    def ask_timed(
        self, case: str, values: dict[str, Any], *, adjust: Callable[[Any], Any] = lambda tree: tree
    ) -> Both:
        """Ask both, compare, and compare also whether the answer came at once or was waited for."""
        answers, seconds = self.pair.ask_timed(self.api, self.version, values)
        self._compare(self.api, self.version, case, answers, False, adjust)
        when = seconds.map(lambda taken: "at once" if taken < AT_ONCE_S else "later")
        self.compare(f"{self.api} v{self.version}, {case}", when.kafka, when.moldau)
        return answers

    def begin(self, values: dict[str, Any], *, api: str | None = None, version: int | None = None) -> None:
        """Send a request whose answer comes later: `end` awaits it."""
        api, version = api or self.api, self.version if version is None else version
        self.pair.both(lambda peer: peer.send(peer.encode(api, version, values)))

    def end(
        self,
        case: str,
        *,
        api: str | None = None,
        version: int | None = None,
        adjust: Callable[[Any], Any] = lambda tree: tree,
    ) -> Both:
        api, version = api or self.api, self.version if version is None else version
        answers = self.pair.both(lambda peer: self.pair.answer_of(peer, api, version))
        self._compare(api, version, case, answers, False, adjust)
        return answers

    @contextmanager
    def beside(self) -> Iterator[Conversation]:
        """The same conversation on connections of its own, for requests that wait while others go on."""
        with self.pair.kafka.fresh() as kafka, self.pair.moldau.fresh() as moldau:
            other = Conversation(Pair(kafka, moldau), self.api, self.version, self._label)
            other.differences, other.accepted = self.differences, self.accepted
            yield other

    def send_without_answer(self, case: str, values: dict[str, Any]) -> None:
        outcome = self.pair.send_without_answer(self.api, self.version, values)
        self.compare(f"{self.api} v{self.version}, {case}", outcome.kafka, outcome.moldau)

    def send_body(self, case: str, body: bytes, *, answered_in: int | None = None) -> None:
        """A request whose body is these bytes, on a connection of its own."""
        answers = self.pair.send_body(self.api, self.version, body, answered_in)
        self._compare(self.api, self.version, case, answers, False, lambda tree: tree)

    def send_raw(self, case: str, frame: bytes) -> None:
        """Bytes that need not be a request; what matters is whether they are answered."""
        outcome = self.pair.send_raw(frame).map(lambda got: got if isinstance(got, str) else "an answer")
        self.compare(f"{self.api} v{self.version}, {case}", outcome.kafka, outcome.moldau)

    def _compare(
        self,
        api: str,
        version: int,
        case: str,
        answers: Both,
        decoded: bool,
        adjust: Callable[[Any], Any],
    ) -> None:
        def tree(peer: Peer) -> Any:
            answer = answers.of(peer)
            return answer if isinstance(answer, str) else adjust(plain(answer, peer, decoded=decoded))

        trees = self.pair.both(tree)
        self.compare(f"{api} v{version}, {case}", trees.kafka, trees.moldau)

    def compare(self, where: str, kafka: Any, moldau: Any) -> None:
        for path, left, right in differences(kafka, moldau):
            place = f"{where}: {path}"
            known = next((accepted for accepted in ACCEPTED if accepted.covers(place)), None)
            if known is None:
                self.differences.append(Difference(place, left, right))
            else:
                self.accepted.add(known)

    # ---- the stage --------------------------------------------------------------------------------------------

    def name(self, label: str) -> str:
        """A topic's name that no other scenario and version uses."""
        return f"{self._label}-{self.version}-{label}".replace(" ", "-").lower()

    def topic(self, label: str, partitions: int = 1, **configs: str) -> str:
        """A topic of its own for this scenario and version, ready on both."""
        name = self.name(label)
        topic = {
            "name": name,
            "num_partitions": partitions,
            "replication_factor": 1,
            "configs": [{"name": key.replace("_", "."), "value": value} for key, value in configs.items()],
        }
        answers = self.pair.ask("CreateTopics", 7, {"topics": [topic], "timeout": 10_000})
        for answer in (answers.kafka, answers.moldau):
            assert not answer.topics[0].error_code, answer
        self.learn(name, partitions)
        return name

    def learn(self, name: str, partitions: int = 1) -> None:
        """Wait until both lead the topic's partitions, and note its ids."""

        def ready(peer: Peer) -> bool:
            (topic,) = self.pair.ask_one(peer, "Metadata", 12, _metadata_of(name)).topics
            if topic.error_code or len(topic.partitions) != partitions:
                return False
            peer.topic_names[topic.topic_id] = name
            (topic,) = self.pair.ask_one(peer, "ListOffsets", 6, _offsets_of(name, partitions)).topics
            return not any(partition.error_code for partition in topic.partitions)

        self.wait_for(f"topic {name}", ready)

    def wait_for(self, what: str, is_so: Callable[[Peer], bool]) -> None:
        self.pair.wait_for(what, is_so)

    def id_of(self, name: str) -> Both:
        def find(peer: Peer) -> UUID:
            return next((key for key, known in peer.topic_names.items() if known == name), NO_SUCH_ID)

        return self.pair.both(find)

    def named(
        self, name: str, *, ids_from: int, key: str = "name", version: int | None = None
    ) -> dict[str, Any]:
        """A topic as this version names it; one that is missing has an id that no topic has."""
        is_by_name = (self.version if version is None else version) < ids_from
        return {key: name} if is_by_name else {"topic_id": self.id_of(name)}


def _metadata_of(name: str) -> dict[str, Any]:
    return {"topics": [{"name": name}], "allow_auto_topic_creation": False}


def _offsets_of(name: str, partitions: int) -> dict[str, Any]:
    wanted = [{"partition_index": index, "timestamp": -1} for index in range(partitions)]
    return {"replica_id": -1, "topics": [{"name": name, "partitions": wanted}]}


Steps = Callable[[Conversation], None]


@dataclass(frozen=True, slots=True)
class Scenario:
    api: str
    label: str
    versions: Sequence[int]
    steps: Steps


SCENARIOS: list[Scenario] = []


def scenario(api: str, label: str, *, versions: Sequence[int] | None = None) -> Callable[[Steps], Steps]:
    """Register steps that run once for every version that Moldau serves, or for `versions`."""
    route = ROUTES[APIS_BY_NAME[api].key]
    served = range(route.min_version, route.max_version + 1)

    def register(steps: Steps) -> Steps:
        SCENARIOS.append(Scenario(api, label, served if versions is None else versions, steps))
        return steps

    return register

"""The connection to Kafka that source and sink share: confluent-kafka where it is installed, and errors with names."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from types import ModuleType
from typing import Any

from penstock.errors import Location, PenstockError

#: A partition of a topic.
Partition = tuple[str, int]
#: The longest that one question to the brokers may take.
SECONDS = 10.0
#: What a user may not set: Penstock's promises depend on it.
RESERVED = frozenset(
    {
        "bootstrap.servers",
        "enable.auto.commit",
        "enable.auto.offset.store",
        "auto.offset.reset",
        "enable.partition.eof",
        "enable.idempotence",
    }
)
#: The values of isolation.level; the first one is Penstock's own choice.
ISOLATION = ("read_committed", "read_uncommitted")


def library() -> ModuleType:
    """confluent_kafka, or an error that says how to get it."""
    try:
        import confluent_kafka
        import confluent_kafka.admin
    except ImportError as error:
        raise PenstockError(
            "KAFKA_MISSING",
            f"Kafka needs the package confluent-kafka, which cannot be imported here: {error}.",
            "Install it on every machine: pip install 'confluent-kafka>=2.6'. Penstock's extra `kafka` has it too.",
        ) from None
    return confluent_kafka


def settings_of(servers: str, config: Mapping[str, Any]) -> dict[str, Any]:
    """What every client is made with. The library's own log goes to standard error; only grave lines of it do here."""
    return {"log_level": 2, **config, "bootstrap.servers": servers}


def check_servers(servers: object, config: Mapping[str, Any], bad: Callable[[str, str], PenstockError]) -> str:
    """The addresses as Kafka wants them; `bad` makes the error."""
    listed = [servers] if isinstance(servers, str) else list(servers) if isinstance(servers, Iterable) else []
    if not listed or not all(isinstance(one, str) and one.strip() for one in listed):
        raise bad(f"the servers are {servers!r}.", 'Give the addresses of brokers, such as "host:9092".')
    if taken := sorted(RESERVED & set(config)):
        raise bad(f"the config sets {', '.join(taken)}.", "Leave it out: Penstock must set this itself.")
    if config.get("group.id", "penstock") == "":  # librdkafka ends the whole process
        raise bad("the config has an empty group.id.", "Give the group a name, or leave it out.")
    if (level := config.get("isolation.level", ISOLATION[0])) not in ISOLATION:
        raise bad(f"the isolation.level in config is {level!r}.", f"Use one of: {', '.join(ISOLATION)}.")
    return ",".join(one.strip() for one in listed)


def unreachable(servers: str, why: object, where: Location | None = None) -> PenstockError:
    return PenstockError(
        "KAFKA_UNREACHABLE",
        f"the Kafka brokers at {servers} cannot be reached: {_words(why)}.",
        "Is the address right, is a broker up, and are the security settings in config those of the cluster? Started "
        "again with the same --state, the topology goes on where it was.",
        where,
    )


def _words(why: object) -> str:
    error = why.args[0] if isinstance(why, Exception) and why.args else why
    text = error.str() if hasattr(error, "str") else str(error)
    return str(text).rstrip(".")


class Brokers:
    """Questions about topics, partitions and offsets, on the driver."""

    def __init__(self, servers: str, config: Mapping[str, Any], mistake: str = "BAD_SOURCE") -> None:
        """`mistake` names the error about a config that librdkafka refuses."""
        self._servers = servers
        self._kafka = library()
        self._committed = config.get("isolation.level", ISOLATION[0]) == ISOLATION[0]
        settings = {key: value for key, value in config.items() if key != "isolation.level"}
        try:
            self._admin = self._kafka.admin.AdminClient(settings_of(servers, settings))
        except (self._kafka.KafkaException, TypeError, ValueError) as error:
            raise PenstockError(
                mistake,
                f"librdkafka refuses the config: {_words(error)}.",
                "Correct this entry of the config, or leave it out.",
            ) from None

    def partitions(self, topics: Iterable[str]) -> list[Partition]:
        """All partitions of these topics; KAFKA_UNKNOWN_TOPIC for a topic that is not there."""
        try:
            # All topics are listed: a question about one topic would create it on many clusters.
            found = self._admin.list_topics(timeout=SECONDS).topics
        except self._kafka.KafkaException as error:
            raise unreachable(self._servers, error) from None
        for topic in topics:
            if topic not in found or found[topic].error is not None:
                raise PenstockError(
                    "KAFKA_UNKNOWN_TOPIC",
                    f'the Kafka cluster at {self._servers} has no topic "{topic}", or does not show it to this user.',
                    "Create the topic first, or correct its name.",
                )
        return sorted((topic, partition) for topic in topics for partition in found[topic].partitions)

    def earliest(self, partitions: Iterable[Partition]) -> dict[Partition, int]:
        """The first offset of each that the cluster still has."""
        return self._listed(partitions, self._kafka.admin.OffsetSpec.earliest())

    def latest(self, partitions: Iterable[Partition]) -> dict[Partition, int]:
        """The offset behind the last message of each."""
        return self._listed(partitions, self._kafka.admin.OffsetSpec.latest())

    def at(self, partitions: Iterable[Partition], milliseconds: int) -> dict[Partition, int]:
        """The first offset of each whose message is not older than this; -1 if there is none."""
        return self._listed(partitions, self._kafka.admin.OffsetSpec.for_timestamp(milliseconds))

    def _listed(self, partitions: Iterable[Partition], spec: Any) -> dict[Partition, int]:
        kafka = self._kafka
        levels = kafka.IsolationLevel
        level = levels.READ_COMMITTED if self._committed else levels.READ_UNCOMMITTED
        asked = {kafka.TopicPartition(topic, partition): spec for topic, partition in partitions}
        try:
            futures = self._admin.list_offsets(asked, isolation_level=level, request_timeout=SECONDS)
            return {(one.topic, one.partition): int(future.result().offset) for one, future in futures.items()}
        except kafka.KafkaException as error:
            raise unreachable(self._servers, error) from None

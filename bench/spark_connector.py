"""Spark's own Kafka connector from its published jars: the measure of ours, in tests and benchmarks.

The jars are fetched once into the cache of `apache_kafka`, each alone: what they need besides is in PySpark. No version
of it is published for PySpark 4.3.0; these are the newest that are, and they run there.
"""

from __future__ import annotations

from moldau.runtime.real.jars import Artifact, cache_folder, fetch

VERSION = "4.2.0"
ARTIFACTS = [
    Artifact("org.apache.spark", "spark-sql-kafka-0-10_2.13", VERSION, alone=True),
    Artifact("org.apache.spark", "spark-token-provider-kafka-0-10_2.13", "4.1.0-preview1", alone=True),
    Artifact("org.apache.kafka", "kafka-clients", "3.9.2", alone=True),
    Artifact("org.apache.commons", "commons-pool2", "2.13.1", alone=True),
]


def connector_jars() -> str:
    """For the setting `spark.jars`; `Unavailable` where they are not here and cannot be fetched."""
    folder = cache_folder() / f"spark-connector-{VERSION}" / "jars"
    if not folder.is_dir():
        fetch(folder, ARTIFACTS, "Spark's Kafka connector")
    return ",".join(str(jar) for jar in sorted(folder.glob("*.jar")))

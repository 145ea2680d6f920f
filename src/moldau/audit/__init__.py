"""Audit: what producers say they have written, against what topics and the lake hold, by topic and time window.

    from moldau.audit import AuditedProducer

`AuditedProducer` is confluent-kafka's producer that also publishes counts, as the Kafka paper of 2011 has it (section
4); `AuditPublisher` does so for any other producer. `comparison` finds the windows in which something was lost or
doubled. Nothing here needs Spark: `moldau.spark.audit` counts topics and tables, `moldau audit` shows the result.
"""

from moldau.audit.producer import AuditedProducer
from moldau.audit.publisher import AuditPublisher

__all__ = ["AuditPublisher", "AuditedProducer"]

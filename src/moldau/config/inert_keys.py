"""Kafka's broker keys that mean nothing in Moldau, or not yet: accepted, so that a Kafka server.properties
file can be used as it is.

Each is reported once at the start ("has no effect in Moldau"); its value is checked, kept and shown, and that
is all. Type, bounds and the way it may be changed are Kafka's: a line is `name type`, with the update mode where
it is not read-only, and the bounds (`1..`, `0..500`) where there are any.
"""

from __future__ import annotations

from functools import cache

from moldau.config.key import Key, Range, Type, Update

_REASONS = {
    "it belongs to KRaft, and Moldau keeps cluster metadata in its store": """
        broker.heartbeat.interval.ms int
        controller.quorum.append.linger.ms int 0..
        controller.quorum.auto.join.enable boolean
        controller.quorum.bootstrap.servers list
        controller.quorum.election.backoff.max.ms int 0..
        controller.quorum.election.timeout.ms int 0..
        controller.quorum.fetch.max.bytes int 1..
        controller.quorum.fetch.snapshot.max.bytes int 1..
        controller.quorum.fetch.timeout.ms int 0..
        controller.quorum.request.timeout.ms int 0..
        controller.quorum.retry.backoff.ms int 0..
        controller.quorum.voters list
        controller.socket.timeout.ms int
        early.start.listeners list
        initial.broker.registration.timeout.ms int
        metadata.log.dir string
        metadata.log.max.record.bytes.between.snapshots long 1..
        metadata.log.max.snapshot.interval.ms long 0..
        metadata.log.segment.bytes int 8388608..
        metadata.log.segment.ms long
        metadata.max.idle.interval.ms int 0..
        metadata.max.retention.bytes long
        metadata.max.retention.ms long
        process.roles list
    """,
    "Kerberos, delegation tokens and classes written in Java are not served": """
        delegation.token.expiry.check.interval.ms long 1..
        delegation.token.expiry.time.ms long 1..
        delegation.token.max.lifetime.ms long 1..
        delegation.token.secret.key password
        sasl.client.callback.handler.class class
        sasl.kerberos.kinit.cmd string per-broker
        sasl.kerberos.min.time.before.relogin long per-broker
        sasl.kerberos.principal.to.local.rules list per-broker
        sasl.kerberos.service.name string per-broker
        sasl.kerberos.ticket.renew.jitter double per-broker
        sasl.kerberos.ticket.renew.window.factor double per-broker
        sasl.login.callback.handler.class class
        sasl.login.class class
        sasl.login.connect.timeout.ms int
        sasl.login.read.timeout.ms int
        sasl.login.refresh.buffer.seconds short per-broker
        sasl.login.refresh.min.period.seconds short per-broker
        sasl.login.refresh.window.factor double per-broker
        sasl.login.refresh.window.jitter double per-broker
        sasl.login.retry.backoff.max.ms long
        sasl.login.retry.backoff.ms long
        sasl.mechanism.controller.protocol string
        sasl.oauthbearer.assertion.algorithm string
        sasl.oauthbearer.assertion.claim.aud string
        sasl.oauthbearer.assertion.claim.exp.seconds int 0..86400
        sasl.oauthbearer.assertion.claim.iss string
        sasl.oauthbearer.assertion.claim.jti.include boolean
        sasl.oauthbearer.assertion.claim.nbf.seconds int 0..3600
        sasl.oauthbearer.assertion.claim.sub string
        sasl.oauthbearer.assertion.file string
        sasl.oauthbearer.assertion.private.key.file string
        sasl.oauthbearer.assertion.private.key.passphrase password
        sasl.oauthbearer.assertion.template.file string
        sasl.oauthbearer.client.credentials.client.id string
        sasl.oauthbearer.client.credentials.client.secret password
        sasl.oauthbearer.jwt.retriever.class class
        sasl.oauthbearer.jwt.validator.class class
        sasl.oauthbearer.scope string
        sasl.oauthbearer.token.endpoint.url string
    """,
    "TLS is OpenSSL's, and needs no classes of Java": """
        security.providers string
        ssl.engine.factory.class class per-broker
        ssl.keymanager.algorithm string per-broker
        ssl.provider string per-broker
        ssl.secure.random.implementation string per-broker
        ssl.trustmanager.algorithm string per-broker
    """,
    "one fetcher for each leader is enough on one event loop, with the system's buffer": """
        num.replica.fetchers int cluster-wide 1..
        replica.socket.receive.buffer.bytes int
    """,
    "high watermarks are written with the other checkpoints": """
        replica.high.watermark.checkpoint.interval.ms long
    """,
    "a move between data folders is paced from slice to slice": """
        alter.log.dirs.replication.quota.window.num int 1..
        alter.log.dirs.replication.quota.window.size.seconds int 1..
    """,
    "share groups are not served yet": """
        share.coordinator.append.linger.ms int -1..
        share.coordinator.cached.buffer.max.bytes int cluster-wide 524288..
        share.coordinator.load.buffer.size int 1..
        share.coordinator.snapshot.update.records.per.snapshot int 0..500
        share.coordinator.state.topic.compression.codec int
        share.coordinator.state.topic.min.isr short 1..
        share.coordinator.state.topic.num.partitions int 1..
        share.coordinator.state.topic.replication.factor short 1..
        share.coordinator.state.topic.segment.bytes int 1..
        share.coordinator.threads int 1..
        share.coordinator.write.timeout.ms int 1..
        share.fetch.purgatory.purge.interval.requests int
    """,
    "it is for two-phase commits with a coordinator outside (KIP-939), which no released Kafka serves": """
        transaction.two.phase.commit.enable boolean
    """,
    "Moldau has no tiered storage": """
        follower.fetch.last.tiered.offset.enable boolean cluster-wide
        remote.fetch.max.wait.ms int cluster-wide 1..
        remote.list.offsets.request.timeout.ms long cluster-wide 1..
        remote.log.index.file.cache.total.size.bytes long cluster-wide 1..
        remote.log.manager.copier.thread.pool.size int cluster-wide 1..
        remote.log.manager.copy.max.bytes.per.second long cluster-wide 1..
        remote.log.manager.copy.quota.window.num int 1..
        remote.log.manager.copy.quota.window.size.seconds int 1..
        remote.log.manager.expiration.thread.pool.size int cluster-wide 1..
        remote.log.manager.fetch.max.bytes.per.second long cluster-wide 1..
        remote.log.manager.fetch.quota.window.num int 1..
        remote.log.manager.fetch.quota.window.size.seconds int 1..
        remote.log.manager.follower.thread.pool.size int cluster-wide 1..
        remote.log.manager.task.interval.ms long 1..
        remote.log.manager.thread.pool.size int 1..
        remote.log.metadata.custom.metadata.max.bytes int 0..
        remote.log.metadata.manager.class.name string
        remote.log.metadata.manager.class.path string
        remote.log.metadata.manager.impl.prefix string
        remote.log.metadata.manager.listener.name string
        remote.log.reader.max.pending.tasks int 1..
        remote.log.reader.threads int cluster-wide 1..
        remote.log.storage.manager.class.name string
        remote.log.storage.manager.class.path string
        remote.log.storage.manager.impl.prefix string
        remote.log.storage.system.enable boolean
    """,
    "it belongs to threads, buffers and queues of Kafka's own making": """
        background.threads int cluster-wide 1..
        delete.records.purgatory.purge.interval.requests int
        fetch.purgatory.purge.interval.requests int
        group.coordinator.append.linger.ms int -1..
        group.coordinator.background.threads int 1..
        group.coordinator.cached.buffer.max.bytes int cluster-wide 524288..
        group.coordinator.threads int 1..
        max.connections.per.ip.overrides string cluster-wide
        num.io.threads int cluster-wide 1..
        num.network.threads int cluster-wide 1..
        offsets.load.buffer.size int 1..
        transaction.state.log.load.buffer.size int 1..
        producer.purgatory.purge.interval.requests int
        queued.max.requests int 1..
        socket.connection.setup.timeout.max.ms long
        socket.connection.setup.timeout.ms long
        socket.listen.backlog.size int 1..
        socket.receive.buffer.bytes int
        socket.send.buffer.bytes int
    """,
    "it belongs to Java classes, quotas and metrics of Kafka's own making": """
        alter.config.policy.class.name class
        client.quota.callback.class class
        config.providers list cluster-wide
        cordoned.log.dirs list per-broker
        create.topic.policy.class.name class
        kafka.metrics.polling.interval.secs int 1..
        kafka.metrics.reporters list
        log.dir.failure.timeout.ms long 1..
        log.flush.start.offset.checkpoint.interval.ms int 0..
        metric.reporters list cluster-wide
        metrics.num.samples int 1..
        metrics.recording.level string
        metrics.sample.window.ms long 1..
        telemetry.max.bytes int 1..
    """,
}


@cache
def inert_keys() -> dict[str, Key]:
    """Made when first asked for: most brokers never need them."""
    keys = {}
    for reason, lines in _REASONS.items():
        for line in lines.split("\n"):
            if words := line.split():
                key = _inert_key(words, reason)
                keys[key.name] = key
    return keys


def _inert_key(words: list[str], reason: str) -> Key:
    name, type_, *more = words
    bounds = more.pop() if more and ".." in more[-1] else None
    return Key(
        name,
        Type[type_.upper()],
        None,
        reason,
        None if bounds is None else _range(bounds),
        update=Update(more[0]) if more else Update.READ_ONLY,
        importance="low",
        acts=False,
    )


def _range(bounds: str) -> Range:
    least, _, most = bounds.partition("..")
    return Range(int(least), int(most) if most else None)

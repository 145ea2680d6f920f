"""Why a cluster that listens does not let this client in: certificates, passwords, the wrong kind of listener; by what
librdkafka says of its last attempt.
"""

from __future__ import annotations

from moldau.cli.options import Target

SIGNS = (
    (
        ("hostname mismatch", "ip address mismatch"),
        "The brokers' certificates are for other names than this address (`moldau certs broker HOST...`).",
    ),
    (
        ("certificate verify failed", "unable to get local issuer", "self-signed certificate", "self signed"),
        "The brokers' certificates are signed by an authority that this command does not know: name it with "
        "`moldau profile add NAME --ca FILE`, or -X ssl.ca.location=FILE.",
    ),
    (
        ("certificate required", "bad certificate", "handshake failure"),
        "The brokers ask for a certificate of this client: `moldau profile add NAME --certificate FILE`.",
    ),
    (
        ("authentication failed", "sasl authentication error", "invalid credentials"),
        "Check the user, the password and the mechanism, which the brokers must know (sasl.enabled.mechanisms).",
    ),
    (
        ("unsupported sasl mechanism", "mechanism not supported", "is not enabled"),
        "Choose one of sasl.enabled.mechanisms of the brokers: -X sasl.mechanism=SCRAM-SHA-512.",
    ),
    (
        (
            "connecting to a ssl listener",
            "connecting to a sasl",
            "security.protocol",
            "closed the connection",
        ),
        "The listener may want TLS or a password: --profile NAME or --command-config FILE says how.",
    ),
    (
        ("wrong version number", "unexpected message", "connecting to a plaintext"),
        "The listener may be one without TLS: try -X security.protocol=PLAINTEXT, or another port.",
    ),
)


def advice_on(complaint: str, target: Target) -> str:
    """What to do about a refusal; nothing where the complaint is about something else."""
    said = complaint.lower()
    for signs, advice in SIGNS:
        if any(sign in said for sign in signs):
            return advice + (f" The settings are those of {target.origin}." if target.origin else "")
    return ""

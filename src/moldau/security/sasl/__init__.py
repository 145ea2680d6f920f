"""Who a client is: SASL's mechanisms, without clock, network, disk or chance: what they need of these comes in.

`jaas` reads the lines of Kafka's files. `plain`, `scram` and `oauthbearer` are the server's side of a mechanism,
`client` is the side of a broker that connects to another. `credentials` are what is kept of a password, `tokens` says
whom a token names. `guesses` slows down who guesses. The connection's side is `broker.authentication`.

Kerberos (GSSAPI) and delegation tokens are left out.
"""

DECOYS = "\0decoys"
"""A name that no user can have: the cluster keeps the secret of all who are not there under it (`credentials`)."""

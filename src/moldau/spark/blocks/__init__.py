"""The executors' side of the source: a range of a partition's offsets becomes Arrow record batches.

    settings    what is read and how: `Split`, `ReadSettings`; plain values that Spark pickles
    errors      why a range cannot be read
    read        `read_split`: the way through all of the below
    fetching    the range by Fetch requests: leaders, retries, offsets out of range, the end by position
    answers     Fetch requests and answers as bytes
    brokers     who leads a partition; connections, kept between the tasks of a worker
    connection  one blocking connection, with TLS and SASL (`security`) as `client_settings` has them
    client_library  the same range by confluent-kafka, for what only librdkafka knows (OAUTHBEARER, GSSAPI)
    batches     the record batches of an answer: checksum, codec (`unfolding`), aborted transactions
    decode      records to `columns`: by the compiled `kernel` (`decode_fast`), or without it (`decode_plain`)

Guaranteed: every visible record of the range once and in order, or an error; lengths from the wire are never trusted;
memory is bounded by the size of an answer and of one unfolded batch. Clients in general are the ecosystem's; this
reader exists because a Python object per record costs ten times as much as the rest of the way.
"""

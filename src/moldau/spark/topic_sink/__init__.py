"""Writing to topics: `df.write.format("moldau")` and `df.writeStream.format("moldau")`.

    options        what the query's options say, checked when it is planned
    columns        the columns that a record is made of, by the rules of Spark's own connector
    rows           the rows of an Arrow batch as librdkafka takes them, and their checksum
    librdkafka     a producer by the library's C API, which takes all rows of a batch in one call
    clients        producers and admin clients, kept between the tasks of a worker process
    heard          why the brokers do not answer, where a client has heard it
    sending        rows into a producer's queue, with backpressure, and their delivery
    markers        where an exactly-once task notes in its transaction what it has written
    exactly_once   one task that writes its rows once, however often it is tried
    writers        what Spark calls: the batch and the streaming writer

At least once: a task fails when a record of it is not delivered, and Spark tries it again. Exactly once: the rows of a
task and its marker are one transaction; who finds the marker writes nothing.
"""

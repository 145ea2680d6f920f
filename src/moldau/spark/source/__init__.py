"""The driver's side of the source: what a query reads, from its options and what the brokers say.

    options        the options of Spark's own Kafka connector, with its defaults and its words of refusal, and ours
    limits         where to start and to end, as options say it; `resolve` makes offsets of them
    offsets        offsets as Spark's checkpoint keeps them
    ranges         what a batch reads of each partition, and how it is cut into tasks
    batch          a batch query's plan
    planner        a stream's plans, one after the other
    cluster        what the driver asks of the brokers
    driver_client  the driver's consumer: it waits for records, and commits progress to a group
    rows           the rows' schema
    values         values decoded by the tasks: strings, JSON; `dead_letters` is where bad ones may go
    readers        what Spark calls

Guaranteed: the tasks of a batch depend on its two positions and the options alone. Reading itself is in
`spark.blocks`.
"""

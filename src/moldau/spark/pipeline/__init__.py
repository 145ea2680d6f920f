"""Spark Declarative Pipelines projects, run for ever: the same files that `spark-pipelines run` runs until caught up.

    declared       what a project declares (outputs, flows, where each was written), and the mistakes found in it
    project        spark-pipeline.yml and the files that it names
    registry       runs the Python files and collects what they declare
    sentences      Spark's errors, shortened to what a person needs
    sql            the statements of the SQL files, through Spark's own parser
    names          while a flow's query is built, the project's names mean its tables and views
    plan           what is wrong by the declarations alone; the order of flows
    session_conf   a flow's own Spark settings
    graph          every flow's query, in an order of dependence; refuses what cannot run endlessly
    refusals       what cannot run endlessly, or not into its output
    schemas        the columns of a table that several flows write to
    tables         streaming tables and materialized views, kept as Delta tables in the project's storage
    change_data    change data into a table: create_auto_cdc_flow and AUTO CDC
    flows          starts one flow: a streaming query, or a recomputation
    restarts       how long a failed flow waits before it is started again
    runner         starts all flows, restarts the failed, stops cleanly
    progress       what a flow has done, from the events of Spark's listener
    metrics        the same for Prometheus
    state          the note a run leaves for `status` and `stop`, and the lock that shows whether it lives
    replay         one output once more, from an earlier offset or time, beside the old one
    template       what `moldau pipeline new` writes

A declaration (`registry`, `sql`) says what is wanted and runs nothing; `graph` builds all queries and writes
nothing, so a check is a run that ends there.
"""

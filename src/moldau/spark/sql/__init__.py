"""Streaming SQL over a cluster's topics: what `moldau sql` does, apart from its terminal.

    session      statements come in, what they give goes to a screen
    statements   the statements that are ours, beside Spark's
    texts        SQL as text: quotes, comments, names, places
    catalog      what a name means: a view, a declared table, a topic
    cluster      what is asked of the brokers: topics, a sample of one's records
    inference    the columns of a topic, from a sample
    reads        how a statement reads a topic: the source's options and the columns that it makes of rows
    relations    the names that a parsed statement reads
    binding      from a parsed query to Spark's
    rows         rows as texts; batch queries in pieces, streams batch by batch
    jobs         one statement's work in a thread, ended by Ctrl-C
    creation     CREATE STREAMING TABLE: into a topic or the lake
    streams      the streaming tables that run
    saving       those as a project for `moldau pipeline run`
    completion   what may come next in a statement
    mistakes     what is wrong with a statement, and where

Spark's own parser reads the statements, and queries run as pipelines' flows do (`spark.pipeline`): there is no
language of ours here. Left out: what changes rows that are in a topic, which no topic can.
"""

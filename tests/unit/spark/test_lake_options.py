"""The lake's options: defaults, and each mistake by its name."""

from __future__ import annotations

import pytest

from moldau.spark.lake.options import BadOption, LakeOptions, Transaction, parse


def test_only_the_path_is_needed() -> None:
    assert parse({"path": "/lake/"}) == LakeOptions("/lake")
    assert parse({"path": "file:///lake/a%20b"}).path == "/lake/a b"
    assert parse({"path": "file:/lake"}).path == "/lake"


def test_names_are_the_same_in_any_case() -> None:
    parsed = parse(
        {"PATH": "/lake", "partitionby": "a, b", "TxnAppId": "x", "txnversion": "3", "MERGESCHEMA": "False"}
    )
    assert parsed.partition_by == ("a", "b") and not parsed.merge_schema
    assert parsed.transaction == Transaction("x", 3)


def test_options_of_spark_pass() -> None:
    parse({"path": "/lake", "checkpointlocation": "/checkpoint", "queryname": "q"})


@pytest.mark.parametrize(
    ("given", "complaint"),
    [
        ({}, "path is missing"),
        ({"path": "s3://bucket/lake"}, "not to s3://"),
        ({"path": "/lake", "tableFormat": "orc"}, "tableFormat=orc: choose one of delta, parquet"),
        ({"path": "/lake", "partitonBy": "a"}, "unknown option partitonby: did you mean partitionBy?"),
        ({"path": "/lake", "maxFileBytes": "1MB"}, "maxFileBytes=1MB: a whole number is wanted"),
        ({"path": "/lake", "maxRecordsPerFile": "0"}, "maxRecordsPerFile=0: at least 1 is wanted"),
        ({"path": "/lake", "vacuumRetentionHours": "0"}, "vacuumRetentionHours=0: at least 1 is wanted"),
        ({"path": "/lake", "txnAppId": "x"}, "txnAppId and txnVersion are given together or not at all"),
        (
            {"path": "/lake", "compactAfter": "5", "tableFormat": "parquet"},
            "compactAfter needs tableFormat=delta",
        ),
        ({"path": "/lake", "versionAsOf": "1", "timestampAsOf": "2026-11-18"}, "exclude each other"),
        ({"path": "/lake", "maxFilesPerTrigger": "1", "maxBytesPerTrigger": "1"}, "exclude each other"),
        ({"path": "/lake", "mergeSchema": "perhaps"}, "mergeSchema=perhaps: choose one of true, false"),
        ({"path": "/lake", "startingVersion": "first"}, "startingVersion=first: a whole number is wanted"),
    ],
)
def test_mistakes_are_refused_by_name(given: dict[str, str], complaint: str) -> None:
    with pytest.raises(BadOption) as refused:
        parse(given)
    assert complaint in str(refused.value)

"""Ask the lake: errors of each service by hour, and the slowest endpoints.

    python query.py            # by DuckDB
    python query.py --spark    # the same SQL by Spark

A line that was sent twice has its id twice, and counts once.
"""

import argparse
import os
import sys
from pathlib import Path
from typing import Any

LAKE = Path(os.environ.get("LOG_LAKE", Path(__file__).parent / "lake"))
SENT_ONCE = """
WITH sent AS (
    SELECT DISTINCT date, hour, id, level, service, method, endpoint, duration_ms FROM lines
)
"""
ERRORS = f"""{SENT_ONCE}
SELECT service, CAST(date AS STRING) AS date, CAST(hour AS INT) AS hour, count(*) AS lines,
       count(*) FILTER (WHERE level = 'ERROR') AS errors
FROM sent
GROUP BY service, date, hour
ORDER BY service, date, hour
"""
SLOWEST = f"""{SENT_ONCE},
requests AS (
    SELECT concat(service, ' ', method, ' ', regexp_replace(endpoint, '[0-9]+$', 'ID')) AS endpoint, duration_ms
    FROM sent
    WHERE method IS NOT NULL
)
SELECT endpoint, count(*) AS requests, percentile_cont(0.95) WITHIN GROUP (ORDER BY duration_ms) AS p95_ms
FROM requests
GROUP BY endpoint
ORDER BY p95_ms DESC, endpoint
LIMIT 5
"""


class DuckDb:
    def __init__(self) -> None:
        import duckdb
        from deltalake import DeltaTable

        self._connection = duckdb.connect()
        lines = self._connection.read_parquet(DeltaTable(LAKE / "lines").file_uris(), hive_partitioning=True)
        lines.create_view("lines")

    def rows(self, sql: str) -> list[tuple[Any, ...]]:
        return self._connection.sql(sql).fetchall()


class Spark:
    def __init__(self) -> None:
        from moldau.spark.session import new_session

        self._spark = new_session("log-queries", settings={"spark.log.level": "ERROR"})
        self._spark.read.format("moldau_lake").load(str(LAKE / "lines")).createOrReplaceTempView("lines")

    def rows(self, sql: str) -> list[tuple[Any, ...]]:
        return [tuple(row) for row in self._spark.sql(sql).collect()]


def main() -> int:
    parser = argparse.ArgumentParser(description="Ask the lake of log lines.")
    parser.add_argument("--spark", action="store_true", help="by Spark instead of DuckDB")
    engine: DuckDb | Spark = Spark() if parser.parse_args().spark else DuckDb()
    print("service   hour              lines errors")
    for service, date, hour, lines, errors in engine.rows(ERRORS):
        print(f"{service:<9} {date} {hour:02}:00 {lines:>6} {errors:>6}")
    print()
    print("slowest endpoints            requests   95 % below")
    for endpoint, requests, p95_ms in engine.rows(SLOWEST):
        print(f"{endpoint:<28} {requests:>8} {p95_ms:>9.0f} ms")
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""franz-go's `pkg/kgo`: the tests of the Go client that talk to a broker; those of the client alone are left out.

Its transactional and group pipelines ("ETL") chain three groups whose members come and go, and check that every record
arrives once and in order.
"""

from __future__ import annotations

import json
import re
from pathlib import Path

from .processes import fetch, make, tool
from .suite import Command, Ended, Outcome, Result, Suite

MODULE = "github.com/twmb/franz-go"
RECORDS = 50_000
RECORDS_IN_CI = 10_000
RUNS = [
    "TestPing",
    "TestUnknownGroupOffsetFetchPinned",
    "TestIssue1034",
    "TestSCRAMAuth",
    "TestSCRAMAuthBadCredentials",
    "TestClient_Produce",
    "TestClient_ProduceLargeMessages",
    "TestIssue769",
    "TestIssue831",
    "TestIssueProduceBrokerTooOldFailsRecords",
    "TestIssueProduceSyncManualPartitionNegativeDoesNotPanic",
    "TestConsumeTopicRetrieval",
    "TestConsumeTopicRetrieval_Many",
    "TestConsumeRegex",
    "TestConsumeMaxDecompressBatchBytes",
    "TestAddRemovePartitions",
    "TestDirectPartitionPurge",
    "TestGroupSimple",
    "TestHookPollStart",
    "TestPooling",
    "TestPauseIssue489",
    "TestPauseIssueOct2023",
    "TestIssue325",
    "TestIssue337",
    "TestIssue434",
    "TestIssue523",
    "TestIssue648",
    "TestIssue810",
    "TestIssue865",
    "TestIssueFetchLargerThanBrokerMaxReadBytes",
    "Test848RegexBrokerResolves",
    "TestConsumeRegexShareSkipsInternal",
    "TestShareGroup",
    "TestShareGroupAckOnClose",
    "TestShareGroupOffsetsAdmin",
    "TestShareGroupETL",
    "TestGroupETL",
    "TestTxnEtl",
]
SLOW = frozenset({"TestIssue337", "TestIssue434", "TestIssue523"})
"""They wait for ten to twenty seconds each."""
_RESULT = re.compile(r"^\s*--- (PASS|FAIL|SKIP): (\S+) \(", re.MULTILINE)
_STARTED = re.compile(r"^=== RUN\s+(\S+)", re.MULTILINE)
_OUTCOMES = {"PASS": Outcome.PASSED, "FAIL": Outcome.FAILED, "SKIP": Outcome.SKIPPED}


class FranzGo(Suite):
    name = "franz-go"
    version = "1.22.2"
    run_timeout_s = 240
    whole_timeout_s = 1800
    # It is content when so many topics have brought records, the internal one among them, whichever answer comes first.
    for_one_broker = frozenset({"Test848RegexBrokerResolves"})
    not_in_ci = SLOW

    def build(self, folder: Path) -> None:
        go = tool("go", "franz-go's suite")
        log = folder / "build.log"
        printed = fetch([go, "mod", "download", "-json", f"{MODULE}@v{self.version}"], folder, log=log)
        module = Path(json.loads(printed[printed.index("{") :])["Dir"])
        # The sources in Go's cache are read-only, and stay so: only the binary is ours.
        make([go, "test", "-c", "-o", str(self._binary(folder)), "./pkg/kgo"], module, log=log)

    def _binary(self, folder: Path) -> Path:
        return folder / "kgo.test"

    def runs(self, folder: Path) -> list[str]:
        return RUNS

    def command(self, folder: Path, scratch: Path, run: str, address: str, *, is_ci: bool) -> Command:
        environment = {
            "KGO_SEEDS": address,
            "KGO_TEST_RF": str(len(address.split(","))),
            "KGO_TEST_RECORDS": str(RECORDS_IN_CI if is_ci else RECORDS),
        }
        words = [str(self._binary(folder)), "-test.run", f"^{run}$", "-test.v", "-test.count=1"]
        return Command(words, scratch, environment)

    def read(self, run: str, ended: Ended) -> list[Result]:
        return read_go_tests(run, ended)


def read_go_tests(run: str, ended: Ended) -> list[Result]:
    """A result for each subtest, or for the test itself; one that began and has no result has failed.

    A test with subtests counts, too, where it failed though they all passed. Subtests are not looked into further:
    their names may hold slashes of their own.
    """
    told = {name: _OUTCOMES[word] for word, name in _RESULT.findall(ended.output)}
    late = "did not end in time" if ended.code is None else f"ended with code {ended.code} and no result"
    names = [name for name in dict.fromkeys(_STARTED.findall(ended.output)) if name != run]
    results = [Result(name, told.get(name, Outcome.FAILED), "" if name in told else late) for name in names]
    if not results or (
        told.get(run) is not Outcome.PASSED and all(result.outcome is Outcome.PASSED for result in results)
    ):
        results.append(Result(run, told.get(run, Outcome.FAILED), "" if run in told else late))
    return results

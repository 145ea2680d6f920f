"""What each suite prints, read into results. Whatever is missing or cut off counts as a failure."""

from __future__ import annotations

import json

from foreign.franz_go import read_go_tests
from foreign.kafka_python import collected, read_pytest
from foreign.librdkafka import broker_tests, read_test_runner
from foreign.node_rdkafka import read_mocha, runs_of, titles
from foreign.suite import Ended, Outcome, Result

GO = """=== RUN   TestGroup
=== PAUSE TestGroup
=== CONT  TestGroup
=== RUN   TestGroup/range
[INFO] --- not a result
=== RUN   TestGroup/range/848
    consumer_test.go:9: not served
--- {parent}: TestGroup (0.30s)
    --- {first}: TestGroup/range (0.20s)
    --- SKIP: TestGroup/range/848 (0.00s)
"""
RUNNER = """\x1b[36m[0045_one  /  0.000s] ================= Running test 0045_one =================
\x1b[0m\x1b[36m[0045_one  /  0.1s] \x1b[32m================= Test 0045_one PASSED =================\x1b[0m
\x1b[0m\x1b[36m[0045_two  /  0.000s] ================= Running test 0045_two =================
"""
SUMMARY = """TEST 20261116034628 (bare, scenario default) SUMMARY
#==================================================================#
|\x1b[32m <MAIN>                                   |     PASSED |   0.201s \x1b[0m|
|\x1b[32m 0045_one                                 |     PASSED |   0.100s \x1b[0m|
|\x1b[31m 0045_two                                 |     FAILED |   0.100s \x1b[0m|\x1b[31m it broke\x1b[0m
|\x1b[36m 0045_other_scenario   |    SKIPPED |   0.000s \x1b[0m|\x1b[36m \x1b[0m
|\x1b[36m 0045_mock | SKIPPED | 0.000s \x1b[0m|\x1b[36m Filtered due to negative test flags\x1b[0m
|\x1b[36m 0045_needs                               |    SKIPPED |   0.000s \x1b[0m|\x1b[36m no TLS here\x1b[0m
#==================================================================#
"""
TEST_C = """struct test tests[] = {
    {.name = "<MAIN>", .flags = TEST_F_LOCAL},
    _TEST(0001_multiobj, 0),
    _TEST(0004_conf, TEST_F_LOCAL),
    _TEST(0045_remove,
          0,
          TEST_BRKVER(0, 9, 0, 0),
          .scenario = "noautocreate"),
    _TEST(0103_transactions,
          0,
          TEST_BRKVER(0, 11, 0, 0),
          .scenario = "default,ak23"),
    _TEST(0055_latency, TEST_F_KNOWN_ISSUE_WIN32),
    _TEST(0047_timeout, TEST_F_KNOWN_ISSUE),
    _TEST(0139_validation_mock, 0),
    _TEST(0077_compaction,
          0,
          /* an old broker is slow at it */
          TEST_BRKVER(0, 9, 0, 0)),

    /* Manual tests */
    _TEST(8000_idle, TEST_F_MANUAL),
    {NULL}};
"""


def passed(name: str) -> Result:
    return Result(name, Outcome.PASSED)


def test_go_subtests_stand_for_their_test() -> None:
    ended = Ended(0, GO.format(parent="PASS", first="PASS"))
    assert read_go_tests("TestGroup", ended) == [
        passed("TestGroup/range"),
        Result("TestGroup/range/848", Outcome.SKIPPED),
    ]


def test_a_go_test_that_fails_by_a_subtest_counts_once() -> None:
    ended = Ended(1, GO.format(parent="FAIL", first="FAIL"))
    assert [
        result.name for result in read_go_tests("TestGroup", ended) if result.outcome is Outcome.FAILED
    ] == ["TestGroup/range"]


def test_a_go_test_that_fails_after_its_subtests_counts_itself() -> None:
    output = "=== RUN   TestA\n=== RUN   TestA/b\n--- FAIL: TestA (0.1s)\n    --- PASS: TestA/b (0.1s)\n"
    assert read_go_tests("TestA", Ended(1, output)) == [passed("TestA/b"), Result("TestA", Outcome.FAILED)]


def test_a_go_test_without_a_result_has_failed() -> None:
    late = [Result("TestA", Outcome.FAILED, "did not end in time")]
    assert read_go_tests("TestA", Ended(None, "=== RUN   TestA\n")) == late
    assert read_go_tests("TestA", Ended(None, "")) == late
    assert read_go_tests("TestA", Ended(2, "panic: no broker")) == [
        Result("TestA", Outcome.FAILED, "ended with code 2 and no result")
    ]


def test_the_summary_of_librdkafka_tells_each_test_that_was_chosen() -> None:
    assert read_test_runner("0045_one", Ended(1, RUNNER + SUMMARY)) == [
        passed("0045_one"),
        Result("0045_two", Outcome.FAILED, "it broke"),
        Result("0045_needs", Outcome.SKIPPED, "no TLS here"),
    ]


def test_without_a_summary_of_librdkafka_what_has_not_passed_has_failed() -> None:
    assert read_test_runner("0045_one", Ended(None, RUNNER)) == [
        passed("0045_one"),
        Result("0045_two", Outcome.FAILED, "did not end in time"),
    ]
    assert read_test_runner("0045_one", Ended(-6, "")) == [
        Result("0045_one", Outcome.FAILED, "ended with code -6 and no result")
    ]


def test_a_failure_of_librdkafka_tells_its_reason() -> None:
    reason = '### Test "0045_two" failed at test.c:7:f() at Mon Nov 16 04:07:05 2026: ###\nno topic\n'
    assert Result("0045_two", Outcome.FAILED, "no topic") in read_test_runner(
        "0045_one", Ended(-6, RUNNER + reason)
    )


def test_only_tests_of_librdkafka_for_such_a_broker_are_run() -> None:
    assert broker_tests(TEST_C) == ["0001_multiobj", "0103_transactions", "0055_latency", "0077_compaction"]


def test_pytest_tells_the_tests_it_collects() -> None:
    folder = "test/integration"
    output = f"{folder}/test_a.py::test_b[None]\n{folder}/test_a.py::TestC::test_d\n\n2 tests collected\n"
    assert collected(output) == ["test_a.py::test_b[None]", "test_a.py::TestC::test_d"]


def test_pytest_tells_one_result_and_why() -> None:
    assert read_pytest("t", Ended(0, "PASSED test_a.py::t\n1 passed in 0.1s\n")) == [passed("t")]
    assert read_pytest("t", Ended(1, "FAILED test_a.py::t - KafkaError: no\n")) == [
        Result("t", Outcome.FAILED, "KafkaError: no")
    ]
    assert read_pytest("t", Ended(0, "SKIPPED [1] test_a.py:3: old\n")) == [
        Result("t", Outcome.SKIPPED, "test_a.py:3: old")
    ]


def test_an_error_at_the_end_of_a_pytest_test_is_a_failure() -> None:
    output = "PASSED test_a.py::t\nERROR test_a.py::t - AssertionError: thread\n"
    assert read_pytest("t", Ended(1, output)) == [Result("t", Outcome.FAILED, "AssertionError: thread")]


def test_pytest_without_a_summary_is_a_failure() -> None:
    assert read_pytest("t", Ended(None, "PASSED test_a.py::t\n"))[0].outcome is Outcome.FAILED
    assert read_pytest("t", Ended(4, "no such test\n"))[0].outcome is Outcome.FAILED


def mocha(**changes: object) -> str:
    report = {"stats": {"tests": 1}, "tests": [], "pending": [], "failures": [], "passes": [], **changes}
    return "chatter of the client {\n" + json.dumps(report, indent=2)


def test_mocha_tells_one_result_and_why() -> None:
    failure = {"fullTitle": "t", "err": {"message": "Timeout\n of 10 s"}}
    assert read_mocha("t", Ended(0, mocha(passes=[{"fullTitle": "t"}]))) == [passed("t")]
    assert read_mocha("t", Ended(0, mocha(pending=[{"fullTitle": "t"}]))) == [Result("t", Outcome.SKIPPED)]
    assert read_mocha("t", Ended(1, mocha(failures=[failure]))) == [
        Result("t", Outcome.FAILED, "Timeout of 10 s")
    ]


def test_mocha_without_a_result_is_a_failure() -> None:
    assert read_mocha("t", Ended(0, mocha()))[0].outcome is Outcome.FAILED
    assert read_mocha("t", Ended(-11, "chatter"))[0].outcome is Outcome.FAILED
    assert read_mocha("t", Ended(None, mocha(passes=[{"fullTitle": "t"}])))[0].outcome is Outcome.FAILED


def test_a_title_that_mocha_has_twice_is_run_once() -> None:
    assert titles({"tests": [{"fullTitle": "a b"}, {"fullTitle": "c"}, {"fullTitle": "a b"}]}) == ["a b", "c"]


def test_tests_that_go_on_from_each_other_are_one_run_with_a_result_each() -> None:
    group = "Transactional Producer"
    init, hook = f"{group} should init", f'{group} abort "before all" hook'
    assert runs_of(["a", init, f"{group} abort should abort", "b"]) == ["a", group, "b"]
    failure = {"fullTitle": hook, "err": {"message": "Expected C"}}
    report = mocha(passes=[{"fullTitle": init}], failures=[failure])
    assert read_mocha(group, Ended(1, report)) == [passed(init), Result(hook, Outcome.FAILED, "Expected C")]

"""The pytest plugin, used as a project uses it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

pytest_plugins = ["pytester"]

README = Path(__file__).parents[3] / "README.md"


@pytest.fixture(autouse=True)
def plain_project(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> None:
    """A project of its own, untouched by the options of this one."""
    monkeypatch.delenv("PYTEST_ADDOPTS", raising=False)
    pytester.makeini("[pytest]\naddopts = --strict-markers\n")


def test_the_examples_of_the_readme_pass(pytester: pytest.Pytester) -> None:
    examples = [
        block
        for block in re.findall(r"```python\n(.*?)```", README.read_text(), re.S)
        if "def test_" in block
    ]
    assert len(examples) == 2
    for number, example in enumerate(examples):
        pytester.makepyfile(**{f"test_example_{number}": example})
    pytester.runpytest_subprocess("-q").assert_outcomes(passed=2)


def test_clusters_of_several_brokers_are_for_one_test_or_for_all(pytester: pytest.Pytester) -> None:
    pytester.makeconftest(
        """
        import pytest

        @pytest.fixture(scope="session")
        def moldau_brokers():
            return 2
        """
    )
    pytester.makepyfile(
        """
        def test_one(moldau_cluster_of, moldau_cluster, moldau_topic):
            cluster = moldau_cluster_of(2, topics={"orders": 1})
            assert cluster.brokers == moldau_cluster.brokers == [1, 2]
            assert moldau_cluster.in_sync(moldau_topic) == [1, 2]
            cluster.kill(1)
            assert cluster.wait_for_leader("orders") == 2
        """
    )
    pytester.runpytest_subprocess("-q").assert_outcomes(passed=1)


def test_a_topic_is_fresh_for_each_test_and_the_cluster_is_shared(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        """
        import pytest

        seen = []

        @pytest.mark.parametrize("case", ["a", "b/c d", "x" * 300])
        def test_case(case, moldau_cluster, moldau_topic, moldau_bootstrap_servers):
            assert moldau_topic in moldau_cluster.topics
            assert moldau_bootstrap_servers == moldau_cluster.bootstrap_servers
            seen.append((moldau_topic, moldau_bootstrap_servers))

        def test_all_differ_on_one_cluster():
            assert len({topic for topic, _ in seen}) == 3
            assert len({address for _, address in seen}) == 1
            assert seen[0][0].startswith("test_case-a-")
        """
    )
    pytester.runpytest_subprocess("-q").assert_outcomes(passed=4)


def test_a_fixture_of_the_whole_session_may_use_the_address(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        """
        import pytest

        @pytest.fixture(scope="session")
        def settings(moldau_bootstrap_servers):
            return {"kafka": moldau_bootstrap_servers}

        def test_settings(settings, moldau_cluster):
            assert settings["kafka"] == moldau_cluster.bootstrap_servers
        """
    )
    pytester.runpytest_subprocess("-q").assert_outcomes(passed=1)


def test_a_mark_says_how_the_topic_is_made_and_a_fixture_how_the_broker_is(pytester: pytest.Pytester) -> None:
    pytester.makeconftest(
        """
        import pytest

        @pytest.fixture(scope="session")
        def moldau_config():
            return {"num.partitions": 5}
        """
    )
    pytester.makepyfile(
        """
        import pytest
        from confluent_kafka.admin import AdminClient

        @pytest.mark.moldau_topic(partitions=3, config={"max.message.bytes": 1000})
        def test_it(moldau_topic, moldau_bootstrap_servers):
            client = AdminClient({"bootstrap.servers": moldau_bootstrap_servers})
            topics = client.list_topics(timeout=20).topics
            assert len(topics[moldau_topic].partitions) == 3

        @pytest.mark.moldau_topic(3)
        def test_positional(moldau_topic, moldau_cluster):
            client = AdminClient({"bootstrap.servers": moldau_cluster.bootstrap_servers})
            assert len(client.list_topics(timeout=20).topics[moldau_topic].partitions) == 3

        def test_other(moldau_cluster):
            moldau_cluster.create_topic("by-default", partitions=-1)
            client = AdminClient({"bootstrap.servers": moldau_cluster.bootstrap_servers})
            assert len(client.list_topics(timeout=20).topics["by-default"].partitions) == 5
        """
    )
    pytester.runpytest_subprocess("-q").assert_outcomes(passed=3)


def test_a_run_that_uses_no_fixture_imports_nothing_of_the_broker(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        """
        import sys

        def test_it():
            ours = ("moldau", "kio", "uvloop", "confluent_kafka")
            loaded = {name for name in sys.modules if name.split(".")[0] in ours}
            assert loaded == {"moldau", "moldau.testing", "moldau.testing.plugin"}
        """
    )
    pytester.runpytest_subprocess("-q").assert_outcomes(passed=1)


@pytest.mark.parametrize("where", ["conftest", "fixture"])
def test_no_module_of_ours_is_rewritten_but_the_plugin(pytester: pytest.Pytester, where: str) -> None:
    """pytest marks what a wheel with a plugin contains; marked here, as older ones leave out an editable install."""
    first = "from moldau.testing.cluster import Cluster" if where == "conftest" else ""
    pytester.makeconftest(f"import pytest\npytest.register_assert_rewrite('moldau')\n{first}")
    pytester.makepyfile(
        """
        import sys

        def test_it(moldau_cluster):
            ours = {name: module for name, module in sys.modules.items() if name.split(".")[0] == "moldau"}
            assert {"moldau.broker.node", "moldau.testing.cluster"} <= ours.keys()
            hooks = {name: type(module.__loader__).__name__ for name, module in ours.items()}
            rewritten = {name for name, hook in hooks.items() if hook == "AssertionRewritingHook"}
            assert rewritten <= {"moldau", "moldau.testing", "moldau.testing.plugin"}
        """
    )
    pytester.runpytest_subprocess("-q").assert_outcomes(passed=1)


def test_pytest_finds_its_way_of_importing_as_it_was_when_it_ends(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        script="""
        import sys
        import pytest

        before = list(sys.meta_path)
        assert pytest.main(["-q", "test_it.py"]) == 0
        assert sys.meta_path == before
        """,
        test_it="""
        def test_it():
            pass
        """,
    )
    assert pytester.runpython(pytester.path / "script.py").ret == 0


def test_the_fixtures_are_listed_with_what_they_are(pytester: pytest.Pytester) -> None:
    result = pytester.runpytest_subprocess("--fixtures", "-q")
    text = result.stdout.str()
    for name in ("moldau_cluster", "moldau_topic", "moldau_bootstrap_servers", "moldau_config"):
        assert re.search(rf"{name}\b.*", text), name
    assert "no docstring" not in text.partition("moldau_config")[2].partition("fixtures defined")[0]

"""Files, variables and options become one map of settings."""

from __future__ import annotations

import pytest

from moldau.config.key import ConfigError
from moldau.config.sources import merged, parse_file, parse_options, parse_variables


def test_properties_are_read_as_java_reads_them() -> None:
    text = """
    # a comment
    ! another
    log.dirs=/data/one
    num.partitions : 3
    listeners PLAINTEXT://:9092,\\
              OTHER://:9093
    empty=
    escaped\\=name=a\\tb\\u0041\\\\
    """
    assert parse_file("server.properties", text) == {
        "log.dirs": "/data/one",
        "num.partitions": "3",
        "listeners": "PLAINTEXT://:9092,OTHER://:9093",
        "empty": "",
        "escaped=name": "a\tbA\\",
    }


def test_toml_tables_and_dotted_keys_are_joined() -> None:
    text = """
    "log.dir" = "data"
    auto.create.topics.enable = false
    listeners = ["A://:1", "B://:2"]
    [log.retention]
    hours = 24
    """
    assert parse_file("moldau.toml", text) == {
        "log.dir": "data",
        "auto.create.topics.enable": "false",
        "listeners": "A://:1,B://:2",
        "log.retention.hours": "24",
    }


@pytest.mark.parametrize("text", ["a = ", "log.dir = 1979-05-27", "log.dir = 1\nlog.dir = 2"])
def test_bad_toml_is_refused_with_the_reason(text: str) -> None:
    with pytest.raises(ConfigError):
        parse_file("moldau.toml", text)


def test_variables_name_keys_in_capitals() -> None:
    environment = {
        "MOLDAU_LOG_RETENTION_HOURS": "24",
        "MOLDAU_HTTP_PORT": "9100",
        "MOLDAU_SSL_PROTOCOL": "TLSv1.3",
        "MOLDAU_BOOTSTRAP": "localhost:9092",
        "PATH": "/bin",
    }
    assert parse_variables(environment).settings == {
        "log.retention.hours": "24",
        "moldau.http.port": "9100",
        "ssl.protocol": "TLSv1.3",
    }


def test_options_are_key_and_value() -> None:
    assert parse_options(["a=1", "b=x=y", "c="]) == {"a": "1", "b": "x=y", "c": ""}
    with pytest.raises(ConfigError, match="is not key=value"):
        parse_options(["a"])


def test_an_option_wins_over_a_variable_and_a_variable_over_the_file() -> None:
    assert merged({"a": "file", "b": "file", "c": "file"}, {"a": "env", "b": "env"}, {"a": "set"}) == {
        "a": "set",
        "b": "env",
        "c": "file",
    }

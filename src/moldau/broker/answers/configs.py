"""Configurations."""

from typing import NamedTuple

from moldau.base.errors import ErrorCode
from moldau.config.describe import ConfigEntry


class DescribeConfigsResult(NamedTuple):
    error_code: ErrorCode
    error_message: str
    resource_type: int
    resource_name: str
    configs: tuple[ConfigEntry, ...]


class DescribeConfigsResponse(NamedTuple):
    results: tuple[DescribeConfigsResult, ...]
    throttle_time: int = 0


class AlterConfigsResourceResponse(NamedTuple):
    error_code: ErrorCode
    error_message: str | None
    resource_type: int
    resource_name: str


class AlterConfigsResponse(NamedTuple):
    """Also IncrementalAlterConfigsResponse."""

    responses: tuple[AlterConfigsResourceResponse, ...]
    throttle_time: int = 0


class ConfigResource(NamedTuple):
    resource_name: str
    resource_type: int


class ListConfigResourcesResponse(NamedTuple):
    error_code: ErrorCode
    config_resources: tuple[ConfigResource, ...] = ()
    throttle_time: int = 0

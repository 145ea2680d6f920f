"""Who a client is, and SCRAM users."""

from typing import NamedTuple

from moldau.base.errors import ErrorCode


class SaslHandshakeResponse(NamedTuple):
    error_code: ErrorCode
    mechanisms: tuple[str, ...] = ()


class SaslAuthenticateResponse(NamedTuple):
    error_code: ErrorCode
    error_message: str = ""
    auth_bytes: bytes = b""
    session_lifetime: int = 0


class AlterUserScramCredentialsResult(NamedTuple):
    user: str
    error_code: ErrorCode
    error_message: str | None


class AlterUserScramCredentialsResponse(NamedTuple):
    results: tuple[AlterUserScramCredentialsResult, ...]
    throttle_time: int = 0


class CredentialInfo(NamedTuple):
    mechanism: int
    iterations: int


class DescribeUserScramCredentialsResult(NamedTuple):
    user: str
    error_code: ErrorCode
    error_message: str | None = ""
    credential_infos: tuple[CredentialInfo, ...] = ()


class DescribeUserScramCredentialsResponse(NamedTuple):
    results: tuple[DescribeUserScramCredentialsResult, ...]
    error_code: ErrorCode = ErrorCode.none
    error_message: str | None = ""
    throttle_time: int = 0

"""Envelope (58): a client's request that another broker has forwarded to the controller.

- v0: KIP-590
"""

from __future__ import annotations

from moldau.base.errors import ErrorCode, KafkaError
from moldau.broker.answers.cluster import EnvelopeResponse
from moldau.broker.dispatch import answer_of
from moldau.broker.guard import may
from moldau.broker.interface import Request, RequestContext, ServingBroker
from moldau.runtime.line import in_line
from moldau.security.acls import Operation, Resource
from moldau.security.rights import right
from moldau.wire.codec import decoding, encoding
from moldau.wire.error_codes import sliced_counter_of_errors
from moldau.wire.frames import WireError, client_id_of, parse_request_header, response_header

API_KEY = 58
VERSIONS = (0, 0)
IS_INTERNAL = True

BETWEEN_BROKERS = right("Envelope", Operation.CLUSTER_ACTION, Resource.CLUSTER)


async def handle(broker: ServingBroker, context: RequestContext, request: Request) -> EnvelopeResponse:
    if not may(broker, context, BETWEEN_BROKERS):
        return EnvelopeResponse(None, BETWEEN_BROKERS.error)
    if broker.active_controller is None:
        return EnvelopeResponse(None, ErrorCode.not_controller)
    frame = memoryview(request.request_data)
    try:
        api_key, version, correlation_id, client_id_stop, position = parse_request_header(frame)
        route = broker.routes.get(api_key)
        if route is None or route.is_forwarded is None:
            return EnvelopeResponse(None, ErrorCode.invalid_request)
        if not route.min_version <= version <= route.max_version:
            return EnvelopeResponse(None, ErrorCode.unsupported_version)
        inner = await in_line(context, decoding(api_key, version, frame, position))
    except WireError:
        return EnvelopeResponse(None, ErrorCode.invalid_request)
    try:
        asker = request.request_principal.decode(), request.client_host_address.decode()
    except UnicodeDecodeError:
        return EnvelopeResponse(None, ErrorCode.invalid_request)
    within = context.within(version, client_id_of(frame, client_id_stop), *asker)
    try:
        response = await answer_of(broker, route, within, inner)
    except WireError:  # the handler finds no sense in it
        return EnvelopeResponse(None, ErrorCode.invalid_request)
    except KafkaError as error:  # it is not the controller any more
        return EnvelopeResponse(None, error.code)
    errors = broker.metrics.of_api(
        route.name
    ).errors  # whoever has forwarded the request does not look into the answer
    await in_line(context, sliced_counter_of_errors(api_key, version)(response, errors))
    pieces = await in_line(context, encoding(api_key, version, response))
    return EnvelopeResponse(response_header(api_key, version, correlation_id) + b"".join(pieces))

"""The foreign clients, unmodified, behind one small interface: what the matrix of cases runs over."""

from .aio import AioKafka
from .base import CODECS, Client, Message, Received, Refused
from .confluent import Confluent
from .java import JavaTools
from .kafka_python import KafkaPython
from .kcat import Kcat

CLIENTS: dict[str, type[Client]] = {
    client.name: client for client in (Confluent, KafkaPython, AioKafka, Kcat, JavaTools)
}

__all__ = ["CLIENTS", "CODECS", "Client", "Message", "Received", "Refused"]

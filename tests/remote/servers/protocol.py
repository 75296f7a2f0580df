"""What a protocol has to say to be spoken by our own server."""

from __future__ import annotations

from abc import ABC, abstractmethod

from .messages import Request, Response
from .objects import Objects


class Protocol(ABC):
    """How requests are answered from a set of objects."""

    scheme: str
    page = 1000
    """The most names in one part of a listing, whatever the client asks for."""

    def objects(self) -> Objects:
        """An empty set of objects."""
        return Objects()

    @abstractmethod
    def url(self, endpoint: str, key: str) -> str:
        """As `Server.url`."""

    @abstractmethod
    def storage(self, endpoint: str) -> dict[str, str]:
        """As `Server.storage`."""

    @abstractmethod
    def key(self, request: Request) -> str:
        """The object that the request is about; empty if it is about the bucket."""

    @abstractmethod
    def answer(self, request: Request, objects: Objects) -> Response:
        """The answer to a request. Bodies of answers to HEAD are not sent."""

    @abstractmethod
    def error(self, status: int, code: str, message: str) -> Response:
        """An error as this protocol reports it."""

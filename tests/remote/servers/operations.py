"""What requests want, in words that all protocols share."""

from __future__ import annotations

from typing import Literal

from .messages import Request

Operation = Literal["get", "head", "list", "put", "copy", "begin", "part", "complete", "abort", "delete", "other"]
COPY_HEADERS = ("x-amz-copy-source", "x-goog-copy-source", "x-ms-copy-source")


def operation(request: Request, key: str) -> Operation:
    """`put` is an object in one request. `begin`, `part`, `complete` and `abort` are an upload in several."""
    query, has_id = request.query, "uploadId" in request.query
    match request.method:
        case "GET" | "HEAD" if not key or has_id or "uploads" in query:
            return "list"
        case "GET":
            return "get"
        case "HEAD":
            return "head"
        case "PUT" if has_id or query.get("comp") == "block":
            return "part"
        case "PUT" if query.get("comp") == "blocklist":
            return "complete"
        case "PUT" if any(header in request.headers for header in COPY_HEADERS):
            return "copy"
        case "PUT":
            return "put"
        case "POST" if "uploads" in query:
            return "begin"
        case "POST" if has_id:
            return "complete"
        case "DELETE" if has_id:
            return "abort"
        case "DELETE":
            return "delete"
        case "POST" if "delete" in query or query.get("comp") == "batch":
            return "delete"
    return "other"

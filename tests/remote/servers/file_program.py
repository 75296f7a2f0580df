"""`python file_program.py PORT FOLDER` serves the files of a folder, with werkzeug."""

from __future__ import annotations

import sys

from werkzeug.serving import run_simple
from werkzeug.utils import send_from_directory
from werkzeug.wrappers import Request, Response


@Request.application
def serve(request: Request) -> Response:
    """Ranges, conditions and everything else is werkzeug's doing."""
    if request.method not in ("GET", "HEAD"):
        return Response(status=405, headers={"Allow": "GET, HEAD"})
    return send_from_directory(sys.argv[2], request.path.lstrip("/"), request.environ)


if __name__ == "__main__":
    run_simple("127.0.0.1", int(sys.argv[1]), serve, threaded=True)

"""`python dav_program.py PORT FOLDER` serves the files of a folder over WebDAV, with WsgiDAV and cheroot."""

from __future__ import annotations

import sys

from cheroot import wsgi
from wsgidav.wsgidav_app import WsgiDAVApp

if __name__ == "__main__":
    port, folder = int(sys.argv[1]), sys.argv[2]
    application = WsgiDAVApp(
        {
            "provider_mapping": {"/": {"root": folder}},
            "simple_dc": {"user_mapping": {"*": True}},  # everybody may read and write
            "verbose": 1,
        }
    )
    wsgi.Server(("127.0.0.1", port), application, request_queue_size=256).safe_start()

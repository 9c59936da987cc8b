"""A server of Google Cloud Storage with the bucket `lake`, in a process of its own.

It prints its port, and ends when its standard input does. It lets anybody in. pyarrow keeps several
connections open, and the emulator would answer only the first.
"""

from __future__ import annotations

import http.server
import sys

http.server.HTTPServer = http.server.ThreadingHTTPServer  # type: ignore[misc]

from gcp_storage_emulator.server import create_server  # type: ignore[import-untyped]  # noqa: E402

server = create_server("127.0.0.1", 0, in_memory=True, default_bucket="lake")
server.start()
print(server._api._httpd.server_port, flush=True)
sys.stdin.read()
server.stop()

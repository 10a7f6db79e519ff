"""What one writes in an hour to serve the same model: CTranslate2 behind the standard library's HTTP server.

    python -m benchmarks.peers.plain_server MODEL EXPORTED BEAM WORKERS

MODEL is ours, for its settings; EXPORTED is the same one as CTranslate2 has it, in int8. A thread answers each
connection, and every request is a batch of its own, of which CTranslate2 works on so many at a time.
"""

import json
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Final

from benchmarks.decoders.engines import Engine, load_engine

_WAITING: Final = 1024


class Server(ThreadingHTTPServer):
    """With room for as many connections as the benchmark opens at once."""

    request_queue_size = _WAITING


def main() -> None:
    model, exported, beam, workers = Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4])
    translate = load_engine(Engine("CTranslate2", "int8", workers, 1), model, exported)

    class Handler(BaseHTTPRequestHandler):
        """One connection."""

        protocol_version = "HTTP/1.1"
        # Headers and body in one packet: by two, every answer would wait for the client's acknowledgement.
        wbufsize = -1

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["content-length"])))
            answer = json.dumps({"translatedText": translate([body["q"]], beam, 1)[0]}).encode()
            self.send_response(200)
            self.send_header("content-length", str(len(answer)))
            self.end_headers()
            self.wfile.write(answer)

        def log_message(self, *_: object) -> None:
            """Nothing."""

    server = Server(("127.0.0.1", 0), Handler)
    print(f"serving at http://127.0.0.1:{server.server_port}/", file=sys.stderr, flush=True)
    server.serve_forever()


if __name__ == "__main__":
    main()

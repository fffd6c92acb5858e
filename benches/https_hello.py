#!/usr/bin/env python3
"""Time from exec to the first request over https on loopback.

    https_hello.py PATH-TO-POSSE [runs]

Makes a certificate of its own, points SSL_CERT_FILE at it, and answers like a Chat Completions
server. Prints the median and the slowest, beside curl in the same run where there is one.
"""
import json
import os
import shutil
import ssl
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

posse, runs = sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else 15
place = tempfile.mkdtemp(prefix="posse-https-")
cert, key = f"{place}/cert.pem", f"{place}/key.pem"
subprocess.run(
    ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes",
     "-days", "2", "-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1",
     "-addext", "basicConstraints=critical,CA:FALSE", "-keyout", key, "-out", cert],
    check=True, stderr=subprocess.DEVNULL)
first = []


class Server(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def do_POST(self):
        first.append(time.monotonic_ns())
        self.rfile.read(int(self.headers["content-length"]))
        chunk = {"choices": [{"index": 0, "delta": {"content": "hello"}, "finish_reason": "stop"}]}
        body = f"data: {json.dumps(chunk)}\n\ndata: [DONE]\n\n".encode()
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


server = ThreadingHTTPServer(("127.0.0.1", 0), Server)
context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
context.load_cert_chain(cert, key)
server.socket = context.wrap_socket(server.socket, server_side=True)
threading.Thread(target=server.serve_forever, daemon=True).start()
url = f"https://localhost:{server.server_port}/v1"
config = f"{place}/config.json"
profile = {"type": "openai-compatible", "model": "m", "baseURL": url, "apiKey": "dummy"}
json.dump({"defaultProvider": "bench", "providers": {"bench": profile}}, open(config, "w"))
work = f"{place}/work"
os.mkdir(work)
# The system's own roots are loaded as on any machine; ours is one more in the same file.
roots = f"{place}/roots.pem"
with open(roots, "wb") as out:
    for source in ("/etc/ssl/certs/ca-certificates.crt", cert):
        if os.path.exists(source):
            out.write(open(source, "rb").read())
environment = {"PATH": os.environ["PATH"], "POSSE_HOME": f"{place}/home", "SSL_CERT_FILE": roots,
               "HOME": f"{place}/user"}


def measure(command):
    times = []
    for _ in range(runs):
        first.clear()
        began = time.monotonic_ns()
        subprocess.run(command, cwd=work, env=environment, stdin=subprocess.DEVNULL,
                       stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, timeout=20, check=True)
        times.append((first[0] - began) / 1e6)
    return times


peers = {"posse": [posse, "run", "--config", config, "hello"]}
if shutil.which("curl"):
    peers["curl"] = ["curl", "-s", "--cacert", roots, "-d", "{}", f"{url}/chat/completions"]
for name, command in peers.items():
    times = measure(command)
    print(f"https hello, exec to first request: {name:6} median {statistics.median(times):6.2f} ms, "
          f"slowest {max(times):6.2f} ms of {runs}   (posse must be <= 16 ms)")
shutil.rmtree(place)

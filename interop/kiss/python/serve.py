"""A server of kiss-rpc for our client: gives messages back. Prints `listening on 127.0.0.1:PORT`."""

import socketserver

import frames
import message

SAY, NOTE = 3405691582, 7


class Connection(socketserver.StreamRequestHandler):
    def handle(self):
        while got := frames.read(self.rfile):
            function, sequence, compression, status, body, _ = got
            if function == 0:
                # A heartbeat comes back as it is.
                self.wfile.write(frames.HEADER.pack(*frames.BEGIN, 0, status, 0, 0, sequence, 0))
                continue
            sent = message.read(body)
            failed = function != SAY or sent.get("text") == "fail"
            status = status & frames.NON_BLOCKING | (frames.FAILED if failed else 0)
            # Written anew by the library, not the bytes that came.
            answer = b"" if failed else message.write({**message.defaults(), **sent})
            self.wfile.write(frames.frame(function, sequence, answer, 0 if failed else compression, status))


class Server(socketserver.ThreadingTCPServer):
    daemon_threads = True


if __name__ == "__main__":
    with Server(("127.0.0.1", 0), Connection) as server:
        print(f"listening on 127.0.0.1:{server.server_address[1]}", flush=True)
        server.serve_forever()

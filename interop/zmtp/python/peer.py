"""Starts zmtp-peer and reads its lines; bytes are in hexadecimal there."""

import os
import queue
import socket
import subprocess
import threading

LIMIT = 20


def text(part):
    return part.hex() if part else "-"


class Peer:
    """One connection of our machine."""

    def __init__(self, kind, address="listen", *options):
        command = [os.environ["ZMTP_PEER"], kind, address, *options]
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1
        )
        self.lines = queue.Queue()
        self.reader = threading.Thread(target=self._read, daemon=True)
        self.reader.start()
        if address == "listen":
            self.address = self.line().removeprefix("listening on ")

    def _read(self):
        for line in self.process.stdout:
            self.lines.put(line.strip())
        self.lines.put("end")

    def line(self):
        return self.lines.get(timeout=LIMIT)

    def say(self, name, *parts):
        self.process.stdin.write(" ".join([name, *map(text, parts)]) + "\n")

    def message(self):
        name, *parts = self.line().split(" ")
        assert name == "message", (name, parts)
        return [b"" if part == "-" else bytes.fromhex(part) for part in parts]

    def end(self):
        self.process.kill()
        self.process.wait()
        self.reader.join()
        self.process.stdin.close()
        self.process.stdout.close()


class Relay:
    """Forwards one connection to an address in pieces of the given sizes, which repeat, in both directions."""

    def __init__(self, target, *sizes):
        self.target, self.sizes = target, sizes
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.address = "127.0.0.1:%d" % self.listener.getsockname()[1]
        threading.Thread(target=self._run, daemon=True).start()

    def _run(self):
        client, _ = self.listener.accept()
        host, port = self.target.split(":")
        server = socket.create_connection((host, int(port)))
        for one, other in ((client, server), (server, client)):
            one.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            threading.Thread(target=self._forward, args=(one, other), daemon=True).start()

    def _forward(self, one, other):
        turn = 0
        try:
            while data := one.recv(self.sizes[turn % len(self.sizes)]):
                other.sendall(data)
                turn += 1
            other.shutdown(socket.SHUT_WR)
        except OSError:
            pass

    def end(self):
        self.listener.close()

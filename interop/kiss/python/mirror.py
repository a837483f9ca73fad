"""Calls function 1 at a port, which answers with what it gets, by kiss-rpc: `mirror.py PORT`."""

import socket
import sys

import frames

CALLS = 1000

with socket.create_connection(("127.0.0.1", int(sys.argv[1])), timeout=20) as connection:
    stream = connection.makefile("rb")
    for number in range(CALLS):
        compression = number % 3
        sent = number.to_bytes(4, "little") * (1 + number % 100)
        connection.sendall(frames.frame(1, number, sent, compression))
        function, sequence, how, status, body, _ = frames.read(stream)
        assert (function, sequence, how, body) == (1, number, compression, sent), number
        assert not status & frames.FAILED, number
print(f"{CALLS} calls")

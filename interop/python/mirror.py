"""Calls `test.Mirror/Show` at a port, by gRPC, a thousand times: `mirror.py PORT`."""

import sys

import grpc

CALLS = 1000

with grpc.insecure_channel(f"127.0.0.1:{sys.argv[1]}") as channel:
    show = channel.unary_unary("/test.Mirror/Show")
    for number in range(CALLS):
        sent = b"\x09" + number.to_bytes(8, "little")
        assert show(sent, timeout=20) == sent, number
print(f"{CALLS} calls")

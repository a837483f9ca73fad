"""Calls `Mirror.Show` at a port, which answers with the struct that it gets, in each way of `test_client`:
`mirror.py PORT`."""

import sys

from thrift.Thrift import TMessageType, TType
from thrift.transport.TSocket import TSocket

from test_client import PATIENCE_MS, WAYS

CALLS = 200


def show(protocol, number):
    """A struct with field 0, where a result has its value."""
    protocol.writeMessageBegin("Show", TMessageType.CALL, number)
    protocol.writeStructBegin("Show_args")
    protocol.writeFieldBegin("number", TType.I64, 0)
    protocol.writeI64(number)
    protocol.writeFieldEnd()
    protocol.writeFieldStop()
    protocol.writeStructEnd()
    protocol.writeMessageEnd()
    protocol.trans.flush()
    _, kind, sequence = protocol.readMessageBegin()
    assert (kind, sequence) == (TMessageType.REPLY, number), (kind, sequence)
    protocol.readStructBegin()
    _, kind, field = protocol.readFieldBegin()
    assert (kind, field) == (TType.I64, 0), (kind, field)
    assert protocol.readI64() == number
    protocol.readFieldEnd()
    assert protocol.readFieldBegin()[1] == TType.STOP
    protocol.readStructEnd()
    protocol.readMessageEnd()


for name, way in WAYS.items():
    socket = TSocket("127.0.0.1", int(sys.argv[1]))
    socket.setTimeout(PATIENCE_MS)
    socket.open()
    protocol = way(socket)
    try:
        for number in range(CALLS):
            show(protocol, number)
    except BaseException:
        print(f"FAILED {name}")
        raise
    socket.close()
print(f"{len(WAYS) * CALLS} calls")

"""Serves the service of Thrift's cross tests with the Python library: `serve.py PROTOCOL TRANSPORT [multiplexed | greeter]`.

With `greeter` it is the service of `thrift/greet.thrift` instead. Prints the port. Every connection has a thread of its own. The transport `http` is Thrift's server of HTTP.
"""

import http.server
import sys

from thrift.protocol.TBinaryProtocol import TBinaryProtocolAcceleratedFactory, TBinaryProtocolFactory
from thrift.protocol.TCompactProtocol import TCompactProtocolFactory
from thrift.protocol.THeaderProtocol import THeaderProtocolFactory
from thrift.server.THttpServer import THttpServer
from thrift.server.TServer import TThreadedServer
from thrift.TMultiplexedProcessor import TMultiplexedProcessor
from thrift.transport.THeaderTransport import THeaderClientType
from thrift.transport.TSocket import TServerSocket
from thrift.transport.TTransport import TBufferedTransportFactory, TFramedTransportFactory, TTransportFactoryBase

import greeter
import thrift_test as t

PROTOCOLS = {
    "binary": TBinaryProtocolFactory,
    "accelerated": TBinaryProtocolAcceleratedFactory,
    "compact": TCompactProtocolFactory,
    "header": lambda: THeaderProtocolFactory((THeaderClientType.HEADERS,)),
}
TRANSPORTS = {
    "buffered": TBufferedTransportFactory,
    "framed": TFramedTransportFactory,
    "bare": TTransportFactoryBase,
}


class Socket(TServerSocket):
    """Says at which port it listens."""

    def listen(self):
        super().listen()
        print(self.handle.getsockname()[1], flush=True)


def main(protocol, transport, served=None):
    processor = t.Processor(t.Handler())
    if served == "greeter":
        processor = t.Processor(greeter.Greetings(), greeter.GREETER)
    elif served == "multiplexed":
        several = TMultiplexedProcessor()
        several.registerProcessor("ThriftTest", processor)
        several.registerProcessor("SecondService", t.Processor(t.Second(), t.SECOND))
        processor = several
    if transport == "http":
        kind = http.server.ThreadingHTTPServer
        server = THttpServer(processor, ("127.0.0.1", 0), PROTOCOLS[protocol](), server_class=kind)
        # A line for each request says nothing here.
        server.httpd.RequestHandlerClass.log_message = lambda *_: None
        print(server.httpd.server_port, flush=True)
        return server.serve()
    socket = Socket("127.0.0.1", 0)
    server = TThreadedServer(processor, socket, TRANSPORTS[transport](), PROTOCOLS[protocol](), daemon=True)
    server.serve()


if __name__ == "__main__":
    main(*sys.argv[1:])

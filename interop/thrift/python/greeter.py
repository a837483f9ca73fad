"""The service of `thrift/greet.thrift` for the library of Apache Thrift."""

import thrift_test as t
from thrift.protocol.TBase import TExceptionBase

Person = t.define(
    "Person",
    {
        1: ("name", t.STRING),
        2: ("age", t.I64),
        3: ("titles", t.listed(t.STRING)),
        4: ("scores", t.map_of(t.STRING, t.I64)),
        5: ("mail", t.STRING),
        6: ("phone", t.I64),
        7: ("shy", t.BOOL),
        8: ("mood", t.I32),
        9: ("key", t.BINARY),
        10: ("weight", t.DOUBLE),
        11: ("friends", t.listed(t.I32)),
    },
)
t.link(Person, 11, t.listed(t.struct(Person)))
GreetRequest = t.define("GreetRequest", {1: ("person", t.struct(Person))})
GreetReply = t.define("GreetReply", {1: ("text", t.STRING), 2: ("person", t.struct(Person))})
t.complete(Person, GreetRequest, GreetReply)
# The tables of a service whose fields have other types.
Odd = t.define("Odd", {1: ("person", t.STRING)})
Missing = t.define("Missing", {1: ("message", t.STRING)}, TExceptionBase)
GREETER = t.methods(
    t.Method("Greet", [t.struct(GreetRequest)], t.struct(GreetReply), {1: Missing}),
    t.Method("Watch", [t.struct(GreetRequest)], t.struct(GreetReply)),
)
ODD = t.methods(t.Method("Greet", [t.struct(Odd)], t.struct(GreetReply)))

FRIEND = Person("Bob", 0, [], {}, None, None, None, 0, b"", 0.0, [])
ADA = Person("Ada", 2**32 - 1, ["Lady", "é"], {"x": -(2**63), "y": 5}, None, -1, False, 7, b"\0\xff", -0.5, [FRIEND])


class Greetings:
    """Answers as the service of protobuf does."""

    def Greet(self, request):
        person = request.person if request else None
        if person is None or not person.name:
            raise Missing("the person is missing")
        return GreetReply(f"hello {person.name}", person)

    def Watch(self, request):
        return self.Greet(request)

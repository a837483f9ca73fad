"""The types of `thrift_test.thrift` for the library of Apache Thrift, as its compiler would write them.

The compiler of the version that has `uuid` is no package of the system; the library needs no more than the tables.
"""

import uuid

from thrift.protocol.TBase import TBase, TExceptionBase
from thrift.Thrift import TApplicationException, TMessageType, TType

BOOL = (TType.BOOL, None)
I8 = (TType.BYTE, None)
I16 = (TType.I16, None)
I32 = (TType.I32, None)
I64 = (TType.I64, None)
DOUBLE = (TType.DOUBLE, None)
STRING = (TType.STRING, "UTF8")
BINARY = (TType.STRING, "BINARY")
UUID = (TType.UUID, None)


def listed(element):
    return (TType.LIST, (*element, False))


def set_of(element):
    return (TType.SET, (*element, False))


def map_of(key, value):
    return (TType.MAP, (*key, *value, False))


def struct(item):
    return (TType.STRUCT, [item, None])


def define(name, fields, base=TBase):
    """A class with fields `number: (name, type)`."""
    names = tuple(field for field, _ in fields.values())

    def __init__(self, *values, **named):
        for field in names:
            object.__setattr__(self, field, None)
        for field, value in [*zip(names, values), *named.items()]:
            object.__setattr__(self, field, value)

    spec = [None] * (max(fields, default=-1) + 1)
    for number, (field, (kind, of)) in fields.items():
        spec[number] = (number, kind, field, of, None)
    body = {"__init__": __init__, "__slots__": names}
    # Members of sets and keys of maps.
    body["__hash__"] = lambda self: hash(repr(self))
    item = type(name, (base,), body)
    item.thrift_spec = tuple(spec)
    return item


def link(item, number, kind):
    """Sets the type of a field that refers to a type that is defined later."""
    spec = list(item.thrift_spec)
    spec[number] = (number, kind[0], spec[number][2], kind[1], None)
    item.thrift_spec = tuple(spec)
    for _, _, _, of, _ in filter(None, item.thrift_spec):
        resolve(of)


def resolve(of):
    """Structs know their fields by a list of their own, which is complete once they are."""
    if isinstance(of, list):
        of[1] = of[0].thrift_spec
    elif isinstance(of, tuple):
        for part in of:
            resolve(part)


def complete(*items):
    for item in items:
        for _, _, _, of, _ in filter(None, item.thrift_spec):
            resolve(of)


Bonk = define("Bonk", {1: ("message", STRING), 2: ("type", I32)})
Xtruct = define(
    "Xtruct", {1: ("string_thing", STRING), 4: ("byte_thing", I8), 9: ("i32_thing", I32), 11: ("i64_thing", I64)}
)
Xtruct2 = define("Xtruct2", {1: ("byte_thing", I8), 2: ("struct_thing", struct(Xtruct)), 3: ("i32_thing", I32)})
Insanity = define("Insanity", {1: ("userMap", map_of(I32, I64)), 2: ("xtructs", listed(struct(Xtruct)))})
CrazyNesting = define(
    "CrazyNesting",
    {
        1: ("string_field", STRING),
        2: ("set_field", set_of(struct(Insanity))),
        3: (
            "list_field",
            listed(map_of(set_of(I32), map_of(I32, set_of(listed(map_of(struct(Insanity), STRING)))))),
        ),
        4: ("binary_field", BINARY),
        5: ("uuid_field", UUID),
    },
)
SomeUnion = define(
    "SomeUnion",
    {
        1: ("map_thing", map_of(I32, I64)),
        2: ("string_thing", STRING),
        3: ("i32_thing", I32),
        4: ("xtruct_thing", struct(Xtruct)),
        5: ("several", listed(I32)),
    },
)
link(SomeUnion, 5, listed(struct(SomeUnion)))
Xception = define("Xception", {1: ("errorCode", I32), 2: ("message", STRING)}, TExceptionBase)
Xception2 = define("Xception2", {1: ("errorCode", I32), 2: ("struct_thing", struct(Xtruct))}, TExceptionBase)
Tree = define("Tree", {1: ("item", I16), 2: ("left", I32), 3: ("right", I32), 4: ("children", I32)})
link(Tree, 2, struct(Tree))
link(Tree, 3, struct(Tree))
link(Tree, 4, listed(struct(Tree)))
Defaults = define(
    "Defaults",
    {
        1: ("number", I32),
        2: ("text", STRING),
        3: ("table", map_of(STRING, listed(I32))),
        4: ("doubles", set_of(DOUBLE)),
        5: ("numberz", I32),
        6: ("xtruct", struct(Xtruct)),
        7: ("flag", BOOL),
        8: ("none", struct(SomeUnion)),
        9: ("ratio", DOUBLE),
    },
)
complete(Xtruct2, Insanity, CrazyNesting, SomeUnion, Xception2, Tree, Defaults)

ONE, TWO, THREE, FIVE, SIX, EIGHT = 1, 2, 3, 5, 6, 8


class Method:
    """A method: the structs of its arguments and of its result."""

    def __init__(self, name, arguments, returns=None, throws=None, oneway=False):
        self.name, self.oneway = name, oneway
        self.arguments = define(name + "_args", dict(enumerate(((f"a{n}", kind) for n, kind in enumerate(arguments)), 1)))
        fields = {0: ("success", returns)} if returns else {}
        fields.update({number: (f"e{number}", struct(item)) for number, item in (throws or {}).items()})
        self.returns, self.throws = returns, throws or {}
        self.result = define(name + "_result", fields)
        complete(self.arguments, self.result)


def methods(*found):
    return {method.name: method for method in found}


INSANE = map_of(I64, map_of(I32, struct(Insanity)))
THRIFT_TEST = methods(
    Method("ping", [STRING], STRING),
    Method("testVoid", []),
    *(
        Method("test" + name, [kind], kind)
        for name, kind in {
            "String": STRING,
            "Bool": BOOL,
            "Byte": I8,
            "I32": I32,
            "I64": I64,
            "Double": DOUBLE,
            "Binary": BINARY,
            "Uuid": UUID,
            "Struct": struct(Xtruct),
            "Nest": struct(Xtruct2),
            "Map": map_of(I32, I32),
            "StringMap": map_of(STRING, STRING),
            "Set": set_of(I32),
            "List": listed(I32),
            "Enum": I32,
            "Typedef": I64,
            "Nesting": struct(CrazyNesting),
            "Union": struct(SomeUnion),
            "Tree": struct(Tree),
            "Defaults": struct(Defaults),
        }.items()
    ),
    Method("testMapMap", [I32], map_of(I32, map_of(I32, I32))),
    Method("testInsanity", [struct(Insanity)], INSANE),
    Method("testMulti", [I8, I32, I64, map_of(I16, STRING), I32, I64], struct(Xtruct)),
    Method("testException", [STRING], None, {1: Xception}),
    Method("testMultiException", [STRING, STRING], struct(Xtruct), {1: Xception, 2: Xception2}),
    Method("testOneway", [I32], oneway=True),
    Method("countOneway", [], I32),
)
SECOND = methods(Method("secondtestString", [STRING], STRING), Method("testString", [STRING], STRING))


class Client:
    """Calls a service; `client.testI32(5)`, or `send` and `receive` for many calls at once."""

    def __init__(self, protocol, service=None):
        self.protocol, self.service, self.sequence = protocol, service or THRIFT_TEST, 0

    def __getattr__(self, name):
        method = self.service[name]

        def call(*values):
            self.send(method, values)
            if not method.oneway:
                return self.receive(method)
            return None

        return call

    def send(self, method, values, sequence=None):
        self.sequence = self.sequence + 1 if sequence is None else sequence
        kind = TMessageType.ONEWAY if method.oneway else TMessageType.CALL
        self.protocol.writeMessageBegin(method.name, kind, self.sequence)
        method.arguments(*values).write(self.protocol)
        self.protocol.writeMessageEnd()
        self.protocol.trans.flush()
        return self.sequence

    def receive(self, method, sequence=None):
        name, kind, number = self.protocol.readMessageBegin()
        assert number == (self.sequence if sequence is None else sequence), number
        if kind == TMessageType.EXCEPTION:
            error = TApplicationException()
            error.read(self.protocol)
            self.protocol.readMessageEnd()
            raise error
        assert name == method.name, name
        result = method.result()
        result.read(self.protocol)
        self.protocol.readMessageEnd()
        for number in method.throws:
            thrown = getattr(result, f"e{number}")
            if thrown is not None:
                raise thrown
        if method.returns is None:
            return None
        assert result.success is not None, "a result without a value"
        return result.success


class Processor:
    """Serves methods of `handler`, as generated processors do."""

    def __init__(self, handler, service=None):
        self.handler, self.service = handler, service or THRIFT_TEST
        self._on_message_begin = None

    def on_message_begin(self, function):
        self._on_message_begin = function

    def process(self, iprot, oprot):
        name, kind, sequence = iprot.readMessageBegin()
        if self._on_message_begin:
            # Servers of HTTP answer one-way calls before they are handled.
            self._on_message_begin(name, kind, sequence)
        method = self.service.get(name)
        if method is None:
            iprot.skip(TType.STRUCT)
            iprot.readMessageEnd()
            error = TApplicationException(TApplicationException.UNKNOWN_METHOD, f"unknown function {name}")
            return self.answer(oprot, name, TMessageType.EXCEPTION, sequence, error)
        arguments = method.arguments()
        arguments.read(iprot)
        iprot.readMessageEnd()
        result, kind = method.result(), TMessageType.REPLY
        try:
            values = [getattr(arguments, field) for field in arguments.__slots__]
            value = getattr(self.handler, name)(*values)
            if method.returns:
                result.success = value
        except TExceptionBase as thrown:
            for number, item in method.throws.items():
                if isinstance(thrown, item):
                    setattr(result, f"e{number}", thrown)
        except Exception as error:
            kind, result = (
                TMessageType.EXCEPTION,
                TApplicationException(TApplicationException.INTERNAL_ERROR, str(error)),
            )
        if method.oneway:
            return True
        return self.answer(oprot, name, kind, sequence, result)

    @staticmethod
    def answer(oprot, name, kind, sequence, body):
        oprot.writeMessageBegin(name, kind, sequence)
        body.write(oprot)
        oprot.writeMessageEnd()
        oprot.trans.flush()
        return True


class Handler:
    """The service of the tests: most methods return their argument."""

    def __init__(self):
        self.oneway = 0

    def __getattr__(self, name):
        if name.startswith("test"):
            return lambda *values: values[0] if values else None
        raise AttributeError(name)

    def ping(self, text):
        return f"pong: {text}"

    def testMapMap(self, _hello):
        return {sign * 4: {sign * n: sign * n for n in range(1, 5)} for sign in (-1, 1)}

    def testInsanity(self, argument):
        return {1: {TWO: argument, THREE: argument}, 2: {SIX: Insanity({}, [])}}

    def testMulti(self, arg0, arg1, arg2, _arg3, _arg4, _arg5):
        return Xtruct("Hello2", arg0, arg1, arg2)

    def testException(self, text):
        if text == "Xception":
            raise Xception(1001, text)
        if text == "TException":
            raise ValueError("an undeclared error")

    def testMultiException(self, first, second):
        if first == "Xception":
            raise Xception(1001, "This is an Xception")
        if first == "Xception2":
            raise Xception2(2002, Xtruct("This is an Xception2", 0, 0, 0))
        return Xtruct(second, 0, 0, 0)

    def testOneway(self, _seconds):
        self.oneway += 1

    def countOneway(self):
        return self.oneway


class Second:
    """Answers for the second service."""

    def secondtestString(self, thing):
        return f'testString("{thing}")'

    def testString(self, thing):
        return f"second {thing}"


SOME_UUID = uuid.UUID("00010203-0405-0607-0809-0a0b0c0d0e0f")

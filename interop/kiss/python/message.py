"""The table Message of fbs/echo.fbs with the library of FlatBuffers, as generated code would use it."""

import struct

import flatbuffers
from flatbuffers import encode, number_types as N, packer
from flatbuffers.table import Table

# Numbers of the fields.
TEXT, NUMBER, NONE, FLAG, MOOD, MARKS, AT, PATH, BYTES, NUMBERS, TAGS, WORDS, MANNER, OLD, NEXT, TYPE, MANNERS = (
    0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 13, 14, 15, 16, 18,
)
# Members of the union.
SHOUT, LOW = 1, 2
POINT = struct.Struct("<B7xd3H2x")


def full():
    """The same as the function of this name in src/lib.rs."""
    point = lambda number: (number, -0.25, 1, 2, 0xFFFF)
    return {
        "text": "häy", "number": -(2**63), "none": 0, "flag": False, "mood": -1, "marks": 9, "at": point(1),
        "path": [point(2), point(3)], "bytes": b"\0\xff\x07", "numbers": [1, -1, 2**63 - 1],
        "tags": [("a", 0.5), ("", 1.5)], "words": ["x", ""], "shout": 3, "next": {"text": "inner"}, "type": 1e300,
        "manners": [(LOW, "x"), (SHOUT, 2)],
    }


def defaults():
    return {"number": -7, "flag": True, "mood": 5, "marks": 0, "type": 0.0}


def write(message, align=0):
    builder = flatbuffers.Builder(align)
    builder.Finish(table(builder, message))
    return bytes(builder.Output())


def vector(builder, items, size, align, put):
    builder.StartVector(size, len(items), align)
    for item in reversed(items):
        put(item)
    return builder.EndVector()


def point(builder, value):
    builder.Prep(8, POINT.size)
    builder.Pad(2)
    for label in reversed(value[2:]):
        builder.PrependUint16(label)
    builder.PrependFloat64(value[1])
    builder.Pad(7)
    builder.PrependUint8(value[0])
    return builder.Offset()


def tag(builder, key, weight):
    key = builder.CreateString(key)
    builder.StartObject(2)
    builder.PrependFloat32Slot(1, weight, 0.5)
    builder.PrependUOffsetTRelativeSlot(0, key, 0)
    return builder.EndObject()


def shout(builder, times):
    builder.StartObject(1)
    builder.PrependInt32Slot(0, times, 1)
    return builder.EndObject()


def whisper(builder, to):
    to = builder.CreateString(to)
    builder.StartObject(1)
    builder.PrependUOffsetTRelativeSlot(0, to, 0)
    return builder.EndObject()


def table(builder, message):
    # Referenced objects are written first.
    refers = {}
    if "text" in message:
        refers[TEXT] = builder.CreateString(message["text"])
    if "path" in message:
        refers[PATH] = vector(builder, message["path"], POINT.size, 8, lambda item: point(builder, item))
    if "bytes" in message:
        refers[BYTES] = builder.CreateByteVector(message["bytes"])
    if "numbers" in message:
        refers[NUMBERS] = vector(builder, message["numbers"], 8, 8, builder.PrependInt64)
    for name, number, make in [
        ("tags", TAGS, lambda item: tag(builder, *item)),
        ("words", WORDS, builder.CreateString),
    ]:
        if name in message:
            items = [make(item) for item in message[name]]
            refers[number] = vector(builder, items, 4, 4, builder.PrependUOffsetTRelative)
    if "shout" in message:
        refers[MANNER] = shout(builder, message["shout"])
    if "manners" in message:
        items = [{SHOUT: shout, LOW: whisper}[kind](builder, value) for kind, value in message["manners"]]
        refers[MANNERS] = vector(builder, items, 4, 4, builder.PrependUOffsetTRelative)
        kinds = [kind for kind, _ in message["manners"]]
        refers[MANNERS - 1] = vector(builder, kinds, 1, 1, builder.PrependUint8)
    if "next" in message:
        refers[NEXT] = table(builder, message["next"])
    builder.StartObject(19)
    builder.PrependInt64Slot(NUMBER, message.get("number", -7), -7)
    if "none" in message:
        builder.PrependInt32Slot(NONE, message["none"], None)
    builder.PrependBoolSlot(FLAG, message.get("flag", True), True)
    builder.PrependInt8Slot(MOOD, message.get("mood", 5), 5)
    builder.PrependUint16Slot(MARKS, message.get("marks", 0), 0)
    if "at" in message:
        builder.PrependStructSlot(AT, point(builder, message["at"]), 0)
    if "shout" in message:
        builder.PrependUint8Slot(MANNER - 1, 1, 0)
    for number, offset in refers.items():
        builder.PrependUOffsetTRelativeSlot(number, offset, 0)
    builder.PrependFloat64Slot(TYPE, message.get("type", 0.0), 0.0)
    return builder.EndObject()


def read(buffer):
    buffer = bytearray(buffer)
    return of_table(Table(buffer, encode.Get(packer.uoffset, buffer, 0)))


def of_table(table):
    place = lambda number: table.Offset(4 + 2 * number)
    message = {}
    for name, number, flags, default in [
        ("number", NUMBER, N.Int64Flags, -7),
        ("none", NONE, N.Int32Flags, None),
        ("flag", FLAG, N.BoolFlags, True),
        ("mood", MOOD, N.Int8Flags, 5),
        ("marks", MARKS, N.Uint16Flags, 0),
        ("type", TYPE, N.Float64Flags, 0.0),
    ]:
        at = place(number)
        value = table.Get(flags, at + table.Pos) if at else default
        if value is not None:
            message[name] = value
    if at := place(TEXT):
        message["text"] = table.String(at + table.Pos).decode()
    if at := place(AT):
        message["at"] = POINT.unpack_from(table.Bytes, at + table.Pos)
    if at := place(PATH):
        first = table.Vector(at)
        message["path"] = [POINT.unpack_from(table.Bytes, first + POINT.size * n) for n in range(table.VectorLen(at))]
        assert first % 8 == 0, "structs with doubles are aligned"
    if at := place(BYTES):
        first = table.Vector(at)
        message["bytes"] = bytes(table.Bytes[first : first + table.VectorLen(at)])
    if at := place(NUMBERS):
        first = table.Vector(at)
        message["numbers"] = [table.Get(N.Int64Flags, first + 8 * n) for n in range(table.VectorLen(at))]
        assert first % 8 == 0, "numbers of 8 bytes are aligned"
    if at := place(TAGS):
        first = table.Vector(at)
        tags = [Table(table.Bytes, table.Indirect(first + 4 * n)) for n in range(table.VectorLen(at))]
        message["tags"] = [of_tag(tag) for tag in tags]
    if at := place(WORDS):
        first = table.Vector(at)
        message["words"] = [table.String(first + 4 * n).decode() for n in range(table.VectorLen(at))]
    if (at := place(MANNER - 1)) and table.Get(N.Uint8Flags, at + table.Pos) == 1:
        message["shout"] = of_shout(Table(table.Bytes, table.Indirect(place(MANNER) + table.Pos)))
    if at := place(MANNERS):
        kinds, first = table.Vector(place(MANNERS - 1)), table.Vector(at)
        assert table.VectorLen(place(MANNERS - 1)) == table.VectorLen(at), "as many numbers as unions"
        message["manners"] = []
        for n in range(table.VectorLen(at)):
            kind = table.Get(N.Uint8Flags, kinds + n)
            item = Table(table.Bytes, table.Indirect(first + 4 * n))
            value = of_shout(item) if kind == SHOUT else item.String(item.Offset(4) + item.Pos).decode()
            message["manners"].append((kind, value))
    if at := place(NEXT):
        message["next"] = of_table(Table(table.Bytes, table.Indirect(at + table.Pos)))
    return message


def of_shout(shout):
    times = shout.Offset(4)
    return shout.Get(N.Int32Flags, times + shout.Pos) if times else 1


def of_tag(tag):
    weight = tag.Offset(6)
    return tag.String(tag.Offset(4) + tag.Pos).decode(), tag.Get(N.Float32Flags, weight + tag.Pos) if weight else 0.5

package main

import "google.golang.org/protobuf/encoding/protowire"

// Args has no tags: its names travel as they are.
type Args struct {
	A int64
	B int64
}

// Reply is what Mul and Div answer.
type Reply struct {
	C int64
}

// Empty is for methods without arguments or results.
type Empty struct{}

// Said is what the server heard beside a message.
type Said struct {
	Metadata map[string]string `json:"metadata" msgpack:"metadata"`
}

// Pause says how long to wait, in milliseconds.
type Pause struct {
	Ms uint32 `json:"ms" msgpack:"ms"`
}

// Subscription says how many messages to push.
type Subscription struct {
	Count int64 `json:"count" msgpack:"count"`
}

// Blob is large when it has to be. Go writes bytes as base64 in JSON, which is a text elsewhere.
type Blob struct {
	Data []byte `json:"-" msgpack:"data"`
	Text string `json:"text" msgpack:"text"`
}

// Note is the message of echo.proto; it marshals itself, as generated code of gogo does.
type Note struct {
	Text   string
	Number int64
	Data   []byte
}

// Mapped is a Note in the JSON that protobuf defines, where long numbers are text and bytes base64.
type Mapped struct {
	Text   string `json:"text" msgpack:"text"`
	Number string `json:"number" msgpack:"number"`
	Data   string `json:"data" msgpack:"data"`
}

// Marshal writes the message.
func (n *Note) Marshal() ([]byte, error) {
	var bytes []byte
	bytes = protowire.AppendTag(bytes, 1, protowire.BytesType)
	bytes = protowire.AppendString(bytes, n.Text)
	bytes = protowire.AppendTag(bytes, 2, protowire.VarintType)
	bytes = protowire.AppendVarint(bytes, uint64(n.Number))
	bytes = protowire.AppendTag(bytes, 3, protowire.BytesType)
	return protowire.AppendBytes(bytes, n.Data), nil
}

// Unmarshal reads one.
func (n *Note) Unmarshal(bytes []byte) error {
	for len(bytes) > 0 {
		number, kind, size := protowire.ConsumeTag(bytes)
		if size < 0 {
			return protowire.ParseError(size)
		}
		bytes = bytes[size:]
		switch {
		case number == 1 && kind == protowire.BytesType:
			n.Text, size = protowire.ConsumeString(bytes)
		case number == 2 && kind == protowire.VarintType:
			var value uint64
			value, size = protowire.ConsumeVarint(bytes)
			n.Number = int64(value)
		case number == 3 && kind == protowire.BytesType:
			var data []byte
			data, size = protowire.ConsumeBytes(bytes)
			n.Data = append([]byte(nil), data...)
		default:
			size = protowire.ConsumeFieldValue(number, kind, bytes)
		}
		if size < 0 {
			return protowire.ParseError(size)
		}
		bytes = bytes[size:]
	}
	return nil
}

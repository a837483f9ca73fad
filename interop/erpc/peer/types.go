package main

import "github.com/gogo/protobuf/proto"

// Args has no tags: its names travel as they are.
type Args struct {
	A int64
	B int64
}

// Product is what Mul and Div answer.
type Product struct {
	C int64
}

// Said is what the server heard beside a message.
type Said struct {
	Metadata map[string]string `json:"metadata"`
}

// Pause says how long to wait, in milliseconds.
type Pause struct {
	Ms uint32 `json:"ms"`
}

// Text is any text, large when it has to be.
type Text struct {
	Text string `json:"text"`
}

// Number is a count.
type Number struct {
	Number int64 `json:"number"`
}

// Note is the message of echo.proto, as generated code of gogo has it.
type Note struct {
	Text   string `protobuf:"bytes,1,opt,name=text,proto3" json:"text"`
	Number int64  `protobuf:"varint,2,opt,name=number,proto3" json:"number,string"`
	Data   []byte `protobuf:"bytes,3,opt,name=data,proto3" json:"data"`
}

// Reset makes it a new one.
func (n *Note) Reset() { *n = Note{} }

// String is for people.
func (n *Note) String() string { return proto.CompactTextString(n) }

// ProtoMessage says that it is one.
func (*Note) ProtoMessage() {}

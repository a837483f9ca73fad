package gopeer

import (
	"errors"
	"fmt"
	"reflect"
	"strings"
)

// The values of rpcx-benchmark; the text is 18 characters of 3 bytes.
const (
	Text   = "许多往事在眼前一幕一幕，变的那麼模糊"
	Number = 100_000
)

// ErrReply says that a reply does not match its request.
var ErrReply = errors.New("the reply isn't the answer to the request")

// Fill sets every field of a generated message to the benchmark's values, whichever compiler generated it: texts and
// numbers are the constants above, flags are true, the list has one element, and the text of field 129 is 3 characters
// shorter so that protobuf encodes the message to 581 bytes.
func Fill[M any](message *M) *M {
	fields := reflect.ValueOf(message).Elem()
	for i := range fields.NumField() {
		name := fields.Type().Field(i).Name
		if strings.HasPrefix(name, "Field") {
			fill(fields.Field(i), name)
		}
	}
	return message
}

func fill(field reflect.Value, name string) {
	switch field.Kind() {
	case reflect.Pointer:
		field.Set(reflect.New(field.Type().Elem()))
		fill(field.Elem(), name)
	case reflect.Slice:
		field.Set(reflect.MakeSlice(field.Type(), 1, 1))
		fill(field.Index(0), name)
	case reflect.String:
		field.SetString(Text)
		if name == "Field129" {
			field.SetString(Text[9:])
		}
	case reflect.Bool:
		field.SetBool(true)
	case reflect.Int32, reflect.Int64:
		field.SetInt(Number)
	case reflect.Uint64:
		field.SetUint(Number)
	default:
		panic(fmt.Sprintf("no value for %s, a %s", name, field.Type()))
	}
}

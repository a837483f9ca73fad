//! Values of replies.

use bytes::Bytes;

/// Value of a reply or of a push, of any type of RESP2 and RESP3.
#[derive(Clone, Debug, PartialEq)]
// closed: the types of RESP2 and RESP3
pub enum Value {
    /// Values in order.
    Array(Vec<Value>),
    /// A value with attributes, which clients may ignore.
    Attributed {
        /// Names and values of the attributes.
        attributes: Vec<(Value, Value)>,
        /// The value itself.
        value: Box<Value>,
    },
    /// Decimal digits, with a sign at most.
    BigNumber(Bytes),
    /// `true` or `false`.
    Boolean(bool),
    /// Any bytes.
    Bulk(Bytes),
    /// An error whose text may have any bytes.
    BulkError(Bytes),
    /// A floating-point number, which may be infinite or not a number.
    Double(f64),
    /// An error: its class in upper case, a space, its text.
    Error(Bytes),
    /// A signed number.
    Integer(i64),
    /// Keys and values in the order of the wire. Keys may be repeated and of any type.
    Map(Vec<(Value, Value)>),
    /// No value: a null of RESP3, a null bulk string or a null array.
    Null,
    /// Values that are no reply to a command.
    Push(Vec<Value>),
    /// Values whose order has no meaning. They may be repeated.
    Set(Vec<Value>),
    /// A line of text.
    Simple(Bytes),
    /// Text with its format, such as `txt` or `mkd`.
    Verbatim {
        /// Three characters.
        format: [u8; 3],
        /// Any bytes.
        text: Bytes,
    },
}

impl Value {
    /// Returns the text of an error of either type.
    pub fn error(&self) -> Option<&Bytes> {
        match self.plain() {
            Value::Error(text) | Value::BulkError(text) => Some(text),
            _ => None,
        }
    }

    /// Returns the bytes of a bulk string, simple string or verbatim string.
    pub fn bytes(&self) -> Option<&Bytes> {
        match self.plain() {
            Value::Bulk(bytes) | Value::Simple(bytes) | Value::Verbatim { text: bytes, .. } => Some(bytes),
            _ => None,
        }
    }

    /// Returns the value of an integer.
    pub fn integer(&self) -> Option<i64> {
        match self.plain() {
            Value::Integer(integer) => Some(*integer),
            _ => None,
        }
    }

    /// Returns the elements of an array, a push or a set.
    pub fn elements(&self) -> Option<&[Value]> {
        match self.plain() {
            Value::Array(elements) | Value::Push(elements) | Value::Set(elements) => Some(elements),
            _ => None,
        }
    }

    /// Returns the value without its attributes.
    pub fn plain(&self) -> &Value {
        let mut value = self;
        while let Value::Attributed { value: inner, .. } = value {
            value = inner;
        }
        value
    }
}

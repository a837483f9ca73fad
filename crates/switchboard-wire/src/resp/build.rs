//! Builds the value of a reply whose bytes have all arrived and were checked.

use super::{
    ErrorKind, ProtocolError, Value,
    line::{double, integer, length},
};
use bytes::Bytes;

/// Builds the value that is the whole of `bytes`. Content is a slice of them.
pub(super) fn build(bytes: Bytes) -> Result<Value, ProtocolError> {
    let mut rest = Rest { bytes, at: 0 };
    // The scan has checked everything: an error here is one of the scan.
    rest.value()
        .ok_or_else(|| ProtocolError::new(ErrorKind::Reply, "reply does not have the layout of its heads"))
}

struct Rest {
    bytes: Bytes,
    at: usize,
}

impl Rest {
    /// Takes one value. The depth of the recursion has a limit, which the scan has checked.
    fn value(&mut self) -> Option<Value> {
        let kind = *self.bytes.get(self.at)?;
        self.at += 1;
        let line = self.line()?;
        let count = || usize::try_from(length(&line)?).ok();
        Some(match kind {
            b'_' => Value::Null,
            b'$' | b'*' if line == b"-1"[..] => Value::Null,
            b'+' => Value::Simple(line),
            b'-' => Value::Error(line),
            b'(' => Value::BigNumber(line),
            b':' => Value::Integer(integer(&line)?),
            b',' => Value::Double(double(&line)?),
            b'#' => Value::Boolean(line == b"t"[..]),
            b'$' => Value::Bulk(self.content(count()?)?),
            b'!' => Value::BulkError(self.content(count()?)?),
            b'=' => {
                let content = self.content(count()?)?;
                let format = *content.first_chunk::<3>()?;
                Value::Verbatim { format, text: content.slice(format.len() + 1..) }
            }
            b'*' => Value::Array(self.elements(count()?)?),
            b'>' => Value::Push(self.elements(count()?)?),
            b'~' => Value::Set(self.elements(count()?)?),
            b'%' => Value::Map(self.entries(count()?)?),
            b'|' => {
                let attributes = self.entries(count()?)?;
                Value::Attributed { attributes, value: Box::new(self.value()?) }
            }
            _ => return None,
        })
    }

    fn line(&mut self) -> Option<Bytes> {
        let len = self.bytes.get(self.at..)?.iter().position(|byte| *byte == b'\r')?;
        let line = self.bytes.slice(self.at..self.at + len);
        self.at += len + 2;
        Some(line)
    }

    fn content(&mut self, len: usize) -> Option<Bytes> {
        let end = self.at.checked_add(len)?;
        let content = (end <= self.bytes.len()).then(|| self.bytes.slice(self.at..end))?;
        self.at = end + 2;
        Some(content)
    }

    fn elements(&mut self, count: usize) -> Option<Vec<Value>> {
        (0..count).map(|_| self.value()).collect()
    }

    fn entries(&mut self, count: usize) -> Option<Vec<(Value, Value)>> {
        (0..count).map(|_| Some((self.value()?, self.value()?))).collect()
    }
}

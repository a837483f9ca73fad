//! Collects the responses of a batch until it is complete.

use super::{ErrorObject, failure, success};
use crate::Status;
use bytes::Bytes;

/// Responses collected so far.
#[derive(Debug)]
pub struct BatchResponse {
    text: Vec<u8>,
    bytes_max: usize,
}

impl BatchResponse {
    /// Creates an empty batch; all responses together may have four times the bytes of the largest message.
    pub fn new(message_bytes_max: u32) -> BatchResponse {
        BatchResponse { text: Vec::new(), bytes_max: 4 * message_bytes_max as usize }
    }

    /// Adds the response to the request with this id.
    pub fn push(&mut self, id: &[u8], result: &Result<Bytes, ErrorObject>) {
        match result {
            Ok(result) if self.text.len() + result.len() <= self.bytes_max => self.add(&success(id, result)),
            Ok(result) => {
                let text = format!(
                    "a result of {} bytes does not fit: the responses of a batch have at most {} bytes (4 x message_bytes_max)",
                    result.len(),
                    self.bytes_max
                );
                self.fail(Some(id), &ErrorObject::from(&Status::resource_exhausted(text)));
            }
            Err(error) => self.fail(Some(id), error),
        }
    }

    /// Adds an error response, with an id if it was readable.
    pub fn fail(&mut self, id: Option<&[u8]>, error: &ErrorObject) {
        self.add(&failure(id, error));
    }

    fn add(&mut self, answer: &[u8]) {
        self.text.push(if self.text.is_empty() { b'[' } else { b',' });
        self.text.extend_from_slice(answer);
    }

    /// Returns the number of bytes of the responses so far.
    pub fn len(&self) -> usize {
        self.text.len()
    }

    /// Returns true if there are no responses.
    pub fn is_empty(&self) -> bool {
        self.text.is_empty()
    }

    /// Returns the array of responses; `None` if there were only notifications.
    pub fn finish(mut self) -> Option<Bytes> {
        if self.text.is_empty() {
            return None;
        }
        self.text.push(b']');
        Some(self.text.into())
    }
}

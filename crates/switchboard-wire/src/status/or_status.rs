//! Other errors as statuses.

use super::{Code, Status};
use std::{error::Error, io};

/// Turns the error of any `Result` into a [`Status`], so that `?` returns it from a handler.
///
/// The error becomes the [source](Error::source) of the status, for logs of this process. Its text is not sent unless
/// [`or_shown`](Self::or_shown) is used: it may contain paths, queries or addresses.
///
/// ```
/// use switchboard_wire::{Code, OrStatus, Status};
///
/// fn port(text: &str) -> Result<u16, Status> {
///     text.parse().or_status(Code::InvalidArgument, "a port is a number up to 65535")
/// }
///
/// assert_eq!(port("8080").unwrap(), 8080);
/// assert_eq!(port("x").unwrap_err().message(), "a port is a number up to 65535");
/// ```
pub trait OrStatus<T> {
    /// Fails with this code and text.
    ///
    /// # Errors
    /// A status instead of the error.
    fn or_status(self, code: Code, message: impl Into<String>) -> Result<T, Status>;

    /// Fails with [`Code::Internal`] and the text `internal error`.
    ///
    /// # Errors
    /// A status instead of the error.
    fn or_internal(self) -> Result<T, Status>;

    /// Fails with this code and the text of the error, which the caller sees.
    ///
    /// # Errors
    /// A status instead of the error.
    fn or_shown(self, code: Code) -> Result<T, Status>;
}

impl<T, E: Into<Box<dyn Error + Send + Sync>>> OrStatus<T> for Result<T, E> {
    fn or_status(self, code: Code, message: impl Into<String>) -> Result<T, Status> {
        self.map_err(|error| Status::new(code, message).with_source(error))
    }

    fn or_internal(self) -> Result<T, Status> {
        self.map_err(|error| hidden(error.into()))
    }

    fn or_shown(self, code: Code) -> Result<T, Status> {
        self.map_err(|error| {
            let error = error.into();
            Status::new(code, error.to_string()).with_source(error)
        })
    }
}

/// `Internal`, with the error as its source; its text is not sent. A `Status` inside the box is returned as it is.
///
/// There is no such conversion for every type of error, because `Status` is an error itself: use [`OrStatus`].
impl From<Box<dyn Error + Send + Sync>> for Status {
    fn from(error: Box<dyn Error + Send + Sync>) -> Status {
        match error.downcast() {
            Ok(status) => *status,
            Err(error) => hidden(error),
        }
    }
}

/// `Internal`, with the error as its source; its text is not sent.
impl From<io::Error> for Status {
    fn from(error: io::Error) -> Status {
        hidden(error.into())
    }
}

/// The status of an error whose text may be secret.
fn hidden(error: Box<dyn Error + Send + Sync>) -> Status {
    Status::internal("internal error").with_source(error)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn secret() -> Result<(), io::Error> {
        Err(io::Error::other("/etc/secret"))
    }

    #[test]
    fn the_text_of_an_error_is_sent_only_if_requested() {
        let hidden = [
            secret().or_internal().unwrap_err(),
            secret().or_status(Code::NotFound, "no such post").unwrap_err(),
            secret().map_err(Status::from).unwrap_err(),
            secret().map_err(|error| Status::from(Box::<dyn Error + Send + Sync>::from(error))).unwrap_err(),
        ];
        for status in &hidden {
            assert!(!status.to_string().contains("secret"), "{status}");
            assert_eq!(status.source().expect("the cause").to_string(), "/etc/secret");
        }
        assert_eq!(
            hidden.map(|status| status.code()),
            [Code::Internal, Code::NotFound, Code::Internal, Code::Internal]
        );
        assert_eq!(secret().or_shown(Code::DataLoss).unwrap_err().to_string(), "data_loss: /etc/secret");
    }

    #[test]
    fn a_status_in_a_box_stays_itself() {
        let boxed: Box<dyn Error + Send + Sync> = Status::not_found("no such post").into();
        assert_eq!(Status::from(boxed).to_string(), "not_found: no such post");
    }
}

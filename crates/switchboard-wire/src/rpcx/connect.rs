//! The network `http` of rpcx: a request and its response, with bare line feeds and no header, followed by frames.

use crate::{Fatal, Input, Outbox};

/// Request of a client.
const REQUEST: &[u8] = b"CONNECT /_rpcx_ HTTP/1.0\n\n";
/// Response that a client expects.
const ANSWER: &[u8] = b"HTTP/1.0 200 Connected to rpcx\n\n";
/// Response to any other request.
const REFUSAL: &[u8] = b"HTTP/1.0 404 Not Found\nContent-Length: 25\n\nrpcx is found at /_rpcx_\n";
/// Longest request or response, including headers, in bytes.
const BYTES_MAX: usize = 4 << 10;

/// State of the exchange before the first frame.
#[derive(Debug, Default)]
pub(super) enum Connect {
    /// The protocol of the connection is not detected yet.
    #[default]
    First,
    /// The request was sent.
    Requested,
    /// Frames follow.
    Done,
}

impl Connect {
    /// Sends the request.
    pub(super) fn request(&mut self, out: &mut Outbox) {
        out.tail().extend_from_slice(REQUEST);
        *self = Connect::Requested;
    }

    #[inline]
    pub(super) fn is_done(&self) -> bool {
        matches!(self, Connect::Done)
    }

    /// At a server: takes the request, if the connection begins with one, and responds. Returns true once frames
    /// follow.
    ///
    /// # Errors
    /// Returns an error for a request with another path.
    pub(super) fn serve(&mut self, input: &mut Input, out: &mut Outbox) -> Result<bool, Fatal> {
        let text = match input.rest().first() {
            None => return Ok(false),
            Some(b'C') => text(input)?,
            Some(_) => {
                *self = Connect::Done;
                return Ok(true);
            }
        };
        let Some(text) = text else { return Ok(false) };
        let request = text.split(|byte| matches!(byte, b'\r' | b'\n')).next().unwrap_or_default();
        let is_ours = request.strip_prefix(b"CONNECT /_rpcx_ HTTP/1.").is_some_and(|minor| minor.len() == 1);
        out.tail().extend_from_slice(if is_ours { ANSWER } else { REFUSAL });
        if !is_ours {
            return Err(Fatal("a CONNECT of another path than /_rpcx_".to_owned()));
        }
        *self = Connect::Done;
        Ok(true)
    }

    /// At a client that has sent the [request](Self::request): takes the response. Returns true once frames follow.
    ///
    /// # Errors
    /// Returns an error for a response that is not from rpcx.
    pub(super) fn receive(&mut self, input: &mut Input) -> Result<bool, Fatal> {
        let Some(text) = text(input)? else { return Ok(false) };
        let line = text.split(|byte| matches!(byte, b'\r' | b'\n')).next().unwrap_or_default();
        if !line.starts_with(b"HTTP/1.") || !line.get(8..).is_some_and(|rest| rest.starts_with(b" 200 ")) {
            let line = String::from_utf8_lossy(line);
            return Err(Fatal(format!("unexpected response to CONNECT /_rpcx_: {line:?}")));
        }
        *self = Connect::Done;
        Ok(true)
    }
}

/// Takes a request or a response, up to its empty line.
fn text(input: &mut Input) -> Result<Option<Vec<u8>>, Fatal> {
    let rest = &input.rest()[..input.len().min(BYTES_MAX)];
    let ends = [&b"\n\n"[..], b"\r\n\r\n"];
    let end = ends
        .into_iter()
        .filter_map(|end| rest.windows(end.len()).position(|window| window == end).map(|at| at + end.len()));
    match end.min() {
        Some(end) => Ok(Some(input.take(end).to_vec())),
        None if rest.len() == BYTES_MAX => {
            Err(Fatal(format!("a CONNECT without an end after {BYTES_MAX} bytes")))
        }
        None => Ok(None),
    }
}

//! gRPC-Web: trailers as text in the last frame of the body.

use super::codes;
use ::http::{HeaderMap, HeaderName, HeaderValue};
use switchboard_core::Result;
use switchboard_wire::{Code, Status};

/// Reads `name: value` lines; a space after the colon and the end of the last line are optional.
///
/// # Errors
/// `Internal` for invalid lines.
pub(super) fn trailers(block: &[u8]) -> Result<HeaderMap> {
    let mut trailers = HeaderMap::new();
    for line in block.split(|byte| *byte == b'\n').map(<[u8]>::trim_ascii).filter(|line| !line.is_empty()) {
        let (name, value) = line.split_at(line.iter().position(|byte| *byte == b':').ok_or_else(broken)?);
        let name = HeaderName::from_bytes(name.trim_ascii()).map_err(|_| broken())?;
        let value = HeaderValue::from_bytes(value[1..].trim_ascii()).map_err(|_| broken())?;
        trailers.try_append(name, value).map_err(|_| broken())?;
    }
    Ok(trailers)
}

fn broken() -> Status {
    codes::from_path(Code::Internal, "the trailers in the last frame cannot be read".into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_read_in_all_formats() {
        for block in ["grpc-status: 0\r\nx: 1\r\nx:2\r\n", "Grpc-Status:0\nx:1\nx: 2"] {
            let trailers = trailers(block.as_bytes()).unwrap();
            assert_eq!(trailers["grpc-status"], "0");
            assert_eq!(trailers.get_all("x").iter().collect::<Vec<_>>(), ["1", "2"]);
        }
        assert!(trailers(b"").unwrap().is_empty());
        assert_eq!(trailers(b"no colon").unwrap_err().code(), Code::Internal);
        assert!(trailers(b"a b: c").is_err() && trailers(b"a: \0").is_err());
    }
}

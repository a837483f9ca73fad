//! The header `Sec-WebSocket-Extensions` (RFC 6455, section 9.1) and the parameters of permessage-deflate (RFC 7692,
//! section 7.1).

/// Parameters of an offer or a response.
#[derive(Debug, Default)]
pub(super) struct Parameters {
    /// Without a value a client only declares that it supports the parameter.
    pub(super) client_max_window_bits: Option<Option<u8>>,
    /// The server always sends this parameter, so a request for it has no effect.
    client_no_context_takeover: bool,
    pub(super) server_max_window_bits: Option<u8>,
    pub(super) server_no_context_takeover: bool,
}

/// Splits a header into extensions, each with its parameters. No valid quoted value contains a comma, so every comma is
/// a separator.
pub(super) fn split(header: &str) -> impl Iterator<Item = &str> {
    header.split(',').map(str::trim).filter(|part| !part.is_empty())
}

impl Parameters {
    /// Reads an extension; `None` if it is not permessage-deflate.
    ///
    /// # Errors
    /// Returns the parameter that is unknown, repeated, or has an invalid value.
    pub(super) fn read(extension: &str) -> Result<Option<Parameters>, String> {
        let mut parts = extension.split(';').map(str::trim);
        if !parts.next().is_some_and(|name| name.eq_ignore_ascii_case("permessage-deflate")) {
            return Ok(None);
        }
        let mut parameters = Parameters::default();
        for part in parts {
            let wrong = || format!("the parameter {part:?} is unknown, repeated, or has an invalid value");
            let (name, value) = match part.split_once('=') {
                Some((name, value)) => (name.trim_end(), Some(unquoted(value.trim_start()))),
                None => (part, None),
            };
            let twice = match (name, value) {
                ("client_max_window_bits", value) => {
                    let bits = value.map(|value| window_bits(value).ok_or_else(wrong)).transpose()?;
                    parameters.client_max_window_bits.replace(bits).is_some()
                }
                ("client_no_context_takeover", None) => {
                    std::mem::replace(&mut parameters.client_no_context_takeover, true)
                }
                ("server_max_window_bits", Some(value)) => {
                    let bits = window_bits(value).ok_or_else(wrong)?;
                    parameters.server_max_window_bits.replace(bits).is_some()
                }
                ("server_no_context_takeover", None) => {
                    std::mem::replace(&mut parameters.server_no_context_takeover, true)
                }
                _ => true,
            };
            if twice {
                return Err(wrong());
            }
        }
        Ok(Some(parameters))
    }
}

fn unquoted(value: &str) -> &str {
    value.strip_prefix('"').and_then(|value| value.strip_suffix('"')).unwrap_or(value)
}

/// Parses 8 to 15 without leading zeros.
fn window_bits(value: &str) -> Option<u8> {
    value.parse().ok().filter(|bits| (8..=15).contains(bits) && !value.starts_with(['0', '+']))
}

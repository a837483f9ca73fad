//! Bytes as text in hexadecimal; `-` is no byte at all.

/// Reads bytes.
///
/// # Errors
/// Returns the text that is not hexadecimal.
pub(crate) fn hex(text: &str) -> Result<Vec<u8>, String> {
    if text == "-" {
        return Ok(Vec::new());
    }
    let invalid = || format!("{text:?} is not hexadecimal");
    let digit = |byte: u8| char::from(byte).to_digit(16).ok_or_else(invalid);
    let (pairs, rest) = text.as_bytes().as_chunks::<2>();
    if !rest.is_empty() {
        return Err(invalid());
    }
    pairs.iter().map(|[high, low]| Ok((digit(*high)? << 4 | digit(*low)?) as u8)).collect()
}

/// Writes parts with spaces between them.
pub(crate) fn words<B: AsRef<[u8]>>(parts: impl IntoIterator<Item = B>) -> String {
    let word = |part: B| match part.as_ref() {
        [] => "-".to_owned(),
        bytes => bytes.iter().map(|byte| format!("{byte:02x}")).collect(),
    };
    parts.into_iter().map(word).collect::<Vec<_>>().join(" ")
}

//! What it costs to encode and decode the benchmark message.

/// Measures every codec and says so in the words of the contract.
///
/// # Errors
/// When a codec refuses the message.
pub(super) fn measure() -> Result<String, String> {
    Err("not yet".to_owned())
}

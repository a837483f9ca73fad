//! The raw format of Snappy, as used in the frames of other frameworks.

/// Decompresses `item` to at most `bytes_max` bytes. The format begins with the length of the result; no more memory is
/// allocated than `item` can decompress to.
///
/// # Errors
/// Returns the reason why the item is invalid.
pub(crate) fn decompress(item: &[u8], bytes_max: u32) -> Result<Vec<u8>, String> {
    let len = snap::raw::decompress_len(item).map_err(|why| why.to_string())?;
    if len > bytes_max as usize {
        return Err(format!(
            "decompressed it would have {len} bytes, the limit is {bytes_max} (message_bytes_max)"
        ));
    }
    // A copy of 3 bytes produces at most 64.
    if len > item.len().saturating_mul(22) + 64 {
        return Err(format!("{} bytes cannot decompress to {len} bytes", item.len()));
    }
    snap::raw::Decoder::new().decompress_vec(item).map_err(|why| why.to_string())
}

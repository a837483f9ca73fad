//! The raw format of Snappy, as other frameworks have it in their frames.

/// Decompresses `item` into at most `bytes_max`. The format says first how long the result is: memory is taken for what
/// it can become, and no more.
///
/// # Errors
/// What is wrong with it.
pub(crate) fn decompress(item: &[u8], bytes_max: u32) -> Result<Vec<u8>, String> {
    let len = snap::raw::decompress_len(item).map_err(|why| why.to_string())?;
    if len > bytes_max as usize {
        return Err(format!("it would have {len} bytes, the limit is {bytes_max} (message_bytes_max)"));
    }
    // A copy of 3 bytes makes 64 at most.
    if len > item.len().saturating_mul(22) + 64 {
        return Err(format!("{} bytes cannot become {len}", item.len()));
    }
    snap::raw::Decoder::new().decompress_vec(item).map_err(|why| why.to_string())
}

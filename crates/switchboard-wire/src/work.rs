//! Counts the bytes that machines examine, for tests that bound this work; counts only with the feature `fuzzing`.

// Of the thread, so that machines do not carry a counter that only tests read.
#[cfg(feature = "fuzzing")]
thread_local! {
    static UNITS: std::cell::Cell<u64> = const { std::cell::Cell::new(0) };
}

/// Counts bytes that were examined to find the start, end or kind of a message.
#[inline(always)]
pub(crate) fn add(_bytes: usize) {
    #[cfg(feature = "fuzzing")]
    UNITS.set(UNITS.get() + _bytes as u64);
}

/// Returns the number of bytes that machines on this thread have examined since the last call.
#[cfg(feature = "fuzzing")]
pub fn take() -> u64 {
    UNITS.take()
}

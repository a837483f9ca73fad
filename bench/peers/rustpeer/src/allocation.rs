//! Counts allocations, for `--call codecs` alone.

use std::{
    alloc::{GlobalAlloc, Layout},
    cell::Cell,
};

thread_local! {
    static COUNTED: Cell<u64> = const { Cell::new(0) };
}

/// The allocator within, counted a thread: one addition an allocation, which is too little to see in a call.
pub struct Counting<A>(pub A);

// SAFETY: each call goes to the allocator within as it came.
unsafe impl<A: GlobalAlloc> GlobalAlloc for Counting<A> {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count();
        unsafe { self.0.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        count();
        unsafe { self.0.alloc_zeroed(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        unsafe { self.0.dealloc(pointer, layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        count();
        unsafe { self.0.realloc(pointer, layout, size) }
    }
}

fn count() {
    COUNTED.with(|counted| counted.set(counted.get() + 1));
}

/// Allocations of `work` on this thread.
pub(crate) fn of(work: impl FnOnce()) -> u64 {
    let before = COUNTED.get();
    work();
    COUNTED.get() - before
}

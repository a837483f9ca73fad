//! Name of a called method that no service declares.

use crate::Status;
use std::{fmt, ops::Deref, sync::Arc};

/// Longest name that is kept, in bytes.
const NAME_BYTES_MAX: usize = 1024;

/// Full name of a called method that no service declares, and the status of its calls if the server does not accept
/// them. Clones share it.
#[derive(Clone)]
pub struct UndeclaredName(Arc<Inner>);

struct Inner {
    name: Box<str>,
    refusal: Option<Status>,
}

impl UndeclaredName {
    /// Creates the name of an unknown method; its calls end with `status` after the guards.
    pub(super) fn refused(name: &str, status: Status) -> UndeclaredName {
        let name = &name[..name.floor_char_boundary(NAME_BYTES_MAX)];
        UndeclaredName(Arc::new(Inner { name: name.into(), refusal: Some(status) }))
    }

    /// Returns the status with which calls of the method end; `None` if the server accepts them.
    pub fn refusal(&self) -> Option<&Status> {
        self.0.refusal.as_ref()
    }
}

impl From<&str> for UndeclaredName {
    fn from(name: &str) -> UndeclaredName {
        UndeclaredName(Arc::new(Inner { name: name.into(), refusal: None }))
    }
}

impl Deref for UndeclaredName {
    type Target = str;

    fn deref(&self) -> &str {
        &self.0.name
    }
}

impl PartialEq for UndeclaredName {
    fn eq(&self, other: &UndeclaredName) -> bool {
        **self == **other
    }
}

impl fmt::Debug for UndeclaredName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&**self, f)
    }
}

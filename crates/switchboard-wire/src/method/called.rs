//! Name of a called method that no service declares.

use crate::Status;
use std::{fmt, ops::Deref, sync::Arc};

/// Longest name that is kept, in bytes.
const NAME_BYTES_MAX: usize = 1024;

/// Full name of a called method that no service declares, and the status of its calls if the server does not accept
/// them. Clones share it.
#[derive(Clone)]
pub struct Called(Arc<Inner>);

struct Inner {
    name: Box<str>,
    refusal: Option<Status>,
}

impl Called {
    /// Creates the name of an unknown method; its calls end with `status` after the guards.
    pub(super) fn refused(name: &str, status: Status) -> Called {
        let name = &name[..name.floor_char_boundary(NAME_BYTES_MAX)];
        Called(Arc::new(Inner { name: name.into(), refusal: Some(status) }))
    }

    /// Returns the status with which calls of the method end; `None` if the server accepts them.
    pub fn refusal(&self) -> Option<&Status> {
        self.0.refusal.as_ref()
    }
}

impl From<&str> for Called {
    fn from(name: &str) -> Called {
        Called(Arc::new(Inner { name: name.into(), refusal: None }))
    }
}

impl Deref for Called {
    type Target = str;

    fn deref(&self) -> &str {
        &self.0.name
    }
}

impl PartialEq for Called {
    fn eq(&self, other: &Called) -> bool {
        **self == **other
    }
}

impl fmt::Debug for Called {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&**self, f)
    }
}

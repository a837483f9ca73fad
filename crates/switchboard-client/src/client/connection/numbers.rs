//! The numbers by which calls on a connection refer to their methods.

use super::Inner;
use crate::ClientMethod;
use switchboard_core::Result;
use switchboard_wire::{Kind, Metadata, Status, wire::ClientWire as _};

/// Maximum number of names in metadata that have a number at once; each costs a comparison at every call of such a
/// name.
const NAMED_MAX: usize = 256;

/// A method with a number on a connection.
pub(super) struct NumberedMethod {
    method: &'static ClientMethod,
    /// Its name, when that is in the metadata of calls.
    undeclared_name: Option<switchboard_wire::UndeclaredName>,
    /// Value of `named_calls` at the last call by this name.
    used: u64,
}

impl Inner {
    /// Returns the number of the method on this connection, and declares the method first if it has none.
    #[inline]
    pub(super) fn number_of(&mut self, method: &'static ClientMethod) -> Result<u16> {
        if let Some(number) = self.methods.iter().position(|known| std::ptr::eq(known.method, method)) {
            return Ok(number as u16);
        }
        let number = self.free_number()?;
        self.name(number, NumberedMethod { method, undeclared_name: None, used: 0 });
        Ok(number)
    }

    /// Returns the number of a method whose name is in the metadata of the call.
    #[cold]
    pub(super) fn number_of_called(
        &mut self,
        method: &'static ClientMethod,
        metadata: &Metadata,
    ) -> Result<u16> {
        let none = || Status::internal("the metadata of a forwarded call lacks the name of its method");
        let name = metadata.undeclared_name().ok_or_else(none)?;
        self.named_calls += 1;
        let is_it = |known: &NumberedMethod| {
            std::ptr::eq(known.method, method)
                && known.undeclared_name.as_ref().is_some_and(|known| known == name)
        };
        let number = match self.methods.iter().position(is_it) {
            Some(number) => number as u16,
            None => {
                let number = self.free_number()?;
                self.name(number, NumberedMethod { method, undeclared_name: Some(name.clone()), used: 0 });
                number
            }
        };
        self.methods[usize::from(number)].used = self.named_calls;
        Ok(number)
    }

    /// Returns a number for one more method. When all are in use, this is the least recently used one of the names in
    /// metadata. A number is needed only while a call begins, so calls in flight do not depend on theirs.
    fn free_number(&self) -> Result<u16> {
        let max = self.wire.methods_max();
        let named = self.methods.iter().filter(|known| known.undeclared_name.is_some()).count();
        let next = u16::try_from(self.methods.len()).ok().filter(|number| *number < max);
        if let Some(number) = next.filter(|_| named < NAMED_MAX) {
            return Ok(number);
        }
        let named = self.methods.iter().enumerate().filter(|(_, known)| known.undeclared_name.is_some());
        let least = named.min_by_key(|(_, known)| known.used).map(|(at, _)| at as u16);
        least.or(next).ok_or_else(|| {
            Status::resource_exhausted(format!("more than {max} methods on one connection (methods_max)"))
        })
    }

    fn name(&mut self, number: u16, numbered: NumberedMethod) {
        let method = numbered.method;
        let path = numbered.undeclared_name.clone();
        let at = usize::from(number);
        if at < self.methods.len() {
            self.methods[at] = numbered;
        } else {
            self.methods.push(numbered);
        }
        let path = path.as_deref().unwrap_or(method.path);
        self.wire.method(number, path, method.schema(), &mut self.out);
        if method.kind() != Kind::Unary {
            self.wire.streams(number, method.kind());
        }
        if let Some(index) = method.proto_index() {
            self.wire.index(number, index);
        }
    }
}

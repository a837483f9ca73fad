//! Typed values that layers and handlers of one call share.

use std::{
    any::{Any, TypeId, type_name},
    fmt,
    sync::Arc,
};

/// Values of one call, at most one of each type: a [layer](crate::Layer) inserts a value, and the handler reads it.
/// Values that all calls of a server or of a channel share come from `Server::extension` and `Channel::extension`.
///
/// They stay in the process: no wire sends them. A call without values allocates nothing for them.
///
/// ```
/// use switchboard::{Call, Cx, Layer, Next, Reply, Result, Status, layer::BoxFuture};
///
/// struct Tenant(String);
///
/// /// Finds the tenant of each call.
/// struct Tenants;
///
/// impl Layer for Tenants {
///     fn call<'a>(&'a self, mut call: Call, next: Next<'a>) -> BoxFuture<'a, Result<Reply>> {
///         let tenant = call.cx().metadata().text("x-tenant").unwrap_or("public").to_owned();
///         call.cx_mut().extensions_mut().insert(Tenant(tenant));
///         next.call(call)
///     }
/// }
///
/// fn database(cx: &Cx) -> Result<String> {
///     let tenant = cx.extensions().get::<Tenant>();
///     let tenant = tenant.ok_or_else(|| Status::internal("the layer Tenants is missing"))?;
///     Ok(format!("orders_of_{}", tenant.0))
/// }
/// ```
#[derive(Default)]
pub struct Extensions {
    /// A call has few values: a scan is faster than a hash.
    values: Vec<Value>,
    /// Values that this call has in common with others.
    shared: Option<Arc<Extensions>>,
}

struct Value {
    id: TypeId,
    name: &'static str,
    value: Box<dyn Any + Send + Sync>,
}

impl Extensions {
    /// Without values.
    pub(super) const EMPTY: &Extensions = &Extensions { values: Vec::new(), shared: None };

    /// The values of a new call, which has those of `shared` as well.
    #[doc(hidden)]
    pub fn with_shared(shared: Option<Arc<Extensions>>) -> Extensions {
        Extensions { values: Vec::new(), shared }
    }

    /// Returns the value of this type: that of the call, otherwise that of its server or channel.
    pub fn get<T: Send + Sync + 'static>(&self) -> Option<&T> {
        match self.values.iter().find(|known| known.id == TypeId::of::<T>()) {
            Some(known) => known.value.downcast_ref(),
            None => self.shared.as_ref()?.get(),
        }
    }

    /// Returns the call's own value of this type, mutably.
    pub fn get_mut<T: Send + Sync + 'static>(&mut self) -> Option<&mut T> {
        let known = self.values.iter_mut().find(|known| known.id == TypeId::of::<T>())?;
        known.value.downcast_mut()
    }

    /// Adds a value to the call, and returns the value of this type that it replaces.
    pub fn insert<T: Send + Sync + 'static>(&mut self, value: T) -> Option<T> {
        let before = self.remove();
        self.values.push(Value { id: TypeId::of::<T>(), name: type_name::<T>(), value: Box::new(value) });
        before
    }

    /// Removes the call's own value of this type, and returns it.
    pub fn remove<T: Send + Sync + 'static>(&mut self) -> Option<T> {
        let at = self.values.iter().position(|known| known.id == TypeId::of::<T>())?;
        self.values.swap_remove(at).value.downcast().ok().map(|value| *value)
    }

    /// Returns true without values.
    pub fn is_empty(&self) -> bool {
        self.values.is_empty() && self.shared.as_ref().is_none_or(|shared| shared.is_empty())
    }
}

/// Writes the names of the types; values may be secret.
impl fmt::Debug for Extensions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shared = self.shared.iter().flat_map(|shared| &shared.values);
        f.debug_set().entries(self.values.iter().chain(shared).map(|value| value.name)).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_is_one_value_of_each_type() {
        let mut values = Extensions::default();
        assert_eq!((values.insert(1_u32), values.insert("a"), values.insert(2_u32)), (None, None, Some(1)));
        assert_eq!(
            (values.get::<u32>(), values.get::<&str>(), values.get::<u64>()),
            (Some(&2), Some(&"a"), None)
        );
        *values.get_mut::<u32>().expect("a number") += 1;
        assert_eq!((values.remove::<u32>(), values.remove::<u32>()), (Some(3), None));
        assert_eq!(format!("{values:?}"), r#"{"&str"}"#);
        assert!(!values.is_empty() && Extensions::EMPTY.is_empty());
    }

    #[test]
    fn a_value_of_the_call_hides_a_shared_one() {
        let mut shared = Extensions::default();
        shared.insert(1_u32);
        shared.insert('a');
        let mut values = Extensions::with_shared(Some(Arc::new(shared)));
        assert_eq!(values.get(), Some(&1_u32));
        assert_eq!(values.get_mut::<u32>(), None);
        values.insert(2_u32);
        assert_eq!((values.get(), values.get()), (Some(&2_u32), Some(&'a')));
        assert_eq!((values.remove(), values.get()), (Some(2_u32), Some(&1_u32)));
        assert!(!values.is_empty());
    }
}

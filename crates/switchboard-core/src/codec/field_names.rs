//! Names of the fields of a request message, from which errors suggest one in place of an unknown one.

use crate::{Cx, near::nearest};
use switchboard_wire::{Kind, Params};
#[cfg(feature = "proto")]
use switchboard_wire::{MethodInfo, ServiceInfo};

/// The fields of the message that is read, as far as they are known; the default knows none.
#[derive(Clone, Copy, Debug, Default)]
#[doc(hidden)]
pub struct FieldNames {
    outermost: &'static [&'static str],
    /// The message of this method is read: its descriptor has the fields of nested messages.
    #[cfg(feature = "proto")]
    method: Option<(&'static ServiceInfo, &'static MethodInfo)>,
}

impl FieldNames {
    /// The fields of the request of a call, or of each message of its stream.
    pub(crate) fn of_request(cx: &Cx) -> FieldNames {
        let method = cx.method();
        let is_stream = matches!(method.kind, Kind::ClientStream | Kind::Bidi);
        let outermost = match method.params {
            // A message of a stream is one argument, and not all of them.
            Params::Arguments(_) if is_stream => &[],
            Params::Arguments(names) | Params::Fields(names) => names,
            Params::Unknown | Params::AsSent => &[],
        };
        FieldNames {
            outermost,
            #[cfg(feature = "proto")]
            method: Some((cx.service(), method)),
        }
    }

    /// Returns the field nearest to the last one of a path, `items[1].prise`, in the message that it is in.
    #[cold]
    pub(super) fn nearest(&self, path: &str) -> Option<String> {
        if !path.contains(['.', '[']) && !self.outermost.is_empty() {
            return nearest(path, self.outermost.iter().copied()).map(str::to_owned);
        }
        self.nearest_in_descriptor(path)
    }

    #[cfg(not(feature = "proto"))]
    fn nearest_in_descriptor(&self, _path: &str) -> Option<String> {
        None
    }

    #[cfg(feature = "proto")]
    fn nearest_in_descriptor(&self, path: &str) -> Option<String> {
        use buffa_descriptor::{DescriptorPool, FieldDescriptor, FieldKind, SingularKind};

        let (service, method) = self.method.filter(|(service, _)| !service.descriptor.is_empty())?;
        let pool = DescriptorPool::decode(service.descriptor).ok()?;
        let method = pool.service_by_name(service.name)?.method(method.name)?;
        let mut message = pool.message(method.input());
        let (parents, name) = path.rsplit_once('.').unwrap_or(("", path));
        let mut parents = parents.split('.').filter(|parent| !parent.is_empty());
        while let Some(parent) = parents.next() {
            // `items[1]` is an item of `items`.
            let parent = parent.split('[').next()?;
            let mut fields = message.fields().iter();
            let field = fields.find(|field| field.json_name() == parent || field.name() == parent)?;
            message = match field.kind() {
                FieldKind::Singular(SingularKind::Message(inner))
                | FieldKind::List(SingularKind::Message(inner)) => pool.message(inner),
                FieldKind::Map { value: SingularKind::Message(inner), .. } => {
                    // The key.
                    parents.next()?;
                    pool.message(inner)
                }
                _ => return None,
            };
        }
        nearest(name, message.fields().iter().map(FieldDescriptor::json_name)).map(str::to_owned)
    }
}

impl<const N: usize> From<&'static [&'static str; N]> for FieldNames {
    fn from(outermost: &'static [&'static str; N]) -> FieldNames {
        FieldNames {
            outermost,
            #[cfg(feature = "proto")]
            method: None,
        }
    }
}

#[cfg(test)]
#[cfg(feature = "proto")]
mod tests {
    use super::*;
    use switchboard_wire::Kind;

    const PROTO: &str = r#"
        syntax = "proto3";
        package shop.v1;
        message Order {
            repeated Item items = 1;
            map<string, Item> by_name = 2;
            oneof delivery { Address ship_to = 3; string pick_up = 4; }
        }
        message Item { int32 price = 1; Order bundle = 2; }
        message Address { string street_name = 1; }
        service Orders { rpc Place(Order) returns (Item); }
    "#;

    fn service(descriptor: Vec<u8>) -> &'static ServiceInfo {
        let place = MethodInfo::new("Place", Kind::Unary);
        let methods = Box::leak(Box::new([place]));
        let descriptor = Box::leak(descriptor.into_boxed_slice());
        Box::leak(Box::new(ServiceInfo { name: "shop.v1.Orders", methods, descriptor }))
    }

    fn compiled() -> Vec<u8> {
        struct Source;

        impl protox::file::FileResolver for Source {
            fn open_file(&self, name: &str) -> Result<protox::file::File, protox::Error> {
                protox::file::File::from_source(name, PROTO)
            }
        }

        let mut compiler = protox::Compiler::with_file_resolver(Source);
        compiler.open_file("shop.proto").unwrap();
        compiler.encode_file_descriptor_set()
    }

    #[test]
    fn fields_of_nested_messages_are_suggested() {
        let service = service(compiled());
        let names = FieldNames { outermost: &["items"], method: Some((service, &service.methods[0])) };
        for (path, wanted) in [
            ("itms", Some("items")),
            ("items[1].prise", Some("price")),
            ("items[1].bundle.items[0].pric", Some("price")),
            ("byName.apple.prise", Some("price")),
            ("by_name.apple.bundle.pickup", Some("pickUp")),
            ("shipTo.street_nam", Some("streetName")),
            ("shipTo.streetNam", Some("streetName")),
            ("items[1].colour", None),
            // A key with a dot: the path does not say where it ends.
            ("byName.a.b.prise", None),
            ("pickUp.x", None),
            ("byName", None),
        ] {
            assert_eq!(names.nearest(path).as_deref(), wanted, "{path}");
        }
        let without_list = FieldNames { outermost: &[], ..names };
        assert_eq!(without_list.nearest("itms").as_deref(), Some("items"));
    }

    #[test]
    fn without_a_descriptor_only_the_outermost_fields_are_suggested() {
        for descriptor in [Vec::new(), b"broken".to_vec()] {
            let service = service(descriptor);
            let names = FieldNames { outermost: &["items"], method: Some((service, &service.methods[0])) };
            assert_eq!(names.nearest("itms").as_deref(), Some("items"));
            assert_eq!(names.nearest("items[1].prise"), None);
        }
        assert_eq!(FieldNames::default().nearest("itms"), None);
        assert_eq!(FieldNames::from(&["items"]).nearest("itms").as_deref(), Some("items"));
    }
}

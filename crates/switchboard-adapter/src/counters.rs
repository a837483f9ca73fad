//! Counters of a plugin: cells, a snapshot for the application, and a source for the metrics and pages of servers.

use switchboard_core::counters::Counter;

/// Defines the snapshot and the cells of the counters of a plugin. The documentation of each counter is its definition
/// in metrics. Cells may have further fields.
macro_rules! counters {
    (
        $(#[$meta:meta])*
        $stats:ident, $cells:ident { $($(#[$field_meta:meta])* $field:ident: $type:ty,)* }
        $($(#[doc = $doc:literal])+ $name:ident,)+
    ) => {
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
        #[non_exhaustive]
        pub struct $stats {
            $($(#[doc = $doc])+ pub $name: u64,)+
        }

        #[derive(Debug, Default)]
        pub(super) struct $cells {
            $(pub(super) $name: std::sync::atomic::AtomicU64,)+
            $($(#[$field_meta])* pub(super) $field: $type,)*
        }

        impl $cells {
            pub(super) fn stats(&self) -> $stats {
                $stats { $($name: self.$name.load(std::sync::atomic::Ordering::Relaxed),)+ }
            }

            /// Returns the values with their definitions.
            fn totals(&self) -> Vec<switchboard_core::counters::Counter> {
                let $stats { $($name),+ } = self.stats();
                vec![$($crate::counters::total(stringify!($name), concat!($($doc),+), $name)),+]
            }
        }
    };
}

pub(crate) use counters;

/// Lets a source show the counters of its engines, beside its own, and the list of them.
macro_rules! engine_list {
    () => {
        fn lists(&self) -> &'static [&'static str] {
            &[switchboard_fanout::EngineCounters::LIST]
        }

        fn list<'a>(
            &'a self,
            list: &'a str,
            request: switchboard_core::counters::ListRequest,
        ) -> switchboard_core::counters::Listing<'a> {
            let listed = match list {
                switchboard_fanout::EngineCounters::LIST => self.engines.list(&request),
                _ => Err(switchboard_wire::Status::not_found(format!("list \"{list}\" does not exist"))),
            };
            Box::pin(std::future::ready(listed))
        }
    };
}

pub(crate) use engine_list;

/// Creates a counter from the documentation of its cell.
pub(crate) fn total(name: &'static str, doc: &'static str, value: u64) -> Counter {
    Counter::total(name, doc.trim().trim_end_matches('.'), value)
}

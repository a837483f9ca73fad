//! Calls of methods: `CALL pkg.Service/Method <json> [name value ...]`.

use super::{Event, Pending, Server};
use crate::{
    Code, Metadata, Outbox, Outgoing, Status,
    resp::write::{write_bulk, write_error},
};
use bytes::Bytes;

impl Server {
    pub(super) fn call(&mut self, arguments: &[Bytes], out: &mut Outbox) -> Option<Event> {
        let [method, payload, entries @ ..] = arguments else { return None };
        match self.read_metadata(entries) {
            Ok(metadata) => {
                self.pending = Pending::Call;
                Some(Event::Call { method: method.clone(), payload: payload.clone(), metadata })
            }
            Err(text) => {
                write_error(&class(Code::InvalidArgument), &text, out);
                None
            }
        }
    }

    fn read_metadata(&self, entries: &[Bytes]) -> Result<Metadata, String> {
        let limit = self.settings.limits.metadata_entries_max as usize;
        let (entries, rest) = entries.as_chunks::<2>();
        if !rest.is_empty() {
            return Err("metadata has a name without a value".to_owned());
        }
        if entries.len() > limit {
            let count = entries.len();
            return Err(format!("metadata has {count} entries; the limit is {limit} (metadata_entries_max)"));
        }
        let mut metadata = Metadata::new();
        for [name, value] in entries {
            let name = std::str::from_utf8(name).map_err(|_| "name of metadata is not UTF-8")?;
            metadata.insert(name, value.clone()).map_err(|error| error.to_string())?;
        }
        Ok(metadata)
    }
}

/// Appends the reply to a call.
pub(super) fn write_result<'a>(result: Result<impl Into<Outgoing<'a>>, &Status>, out: &mut Outbox) {
    match result {
        Ok(payload) => write_bulk(b'$', payload, out),
        Err(status) => write_error(&class(status.code()), status.message(), out),
    }
}

/// Returns the class of the error for a code, such as `NOT_FOUND`.
fn class(code: Code) -> String {
    code.name().to_ascii_uppercase()
}

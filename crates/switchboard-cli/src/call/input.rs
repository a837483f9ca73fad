//! Requests: JSON values one after the other, from the command line, a file or standard input.

use super::{failure::Failure, flatbuffers::Procedure, names::instead, thrift::Function};
use bytes::Bytes;
use prost::Message;
use prost_reflect::{DynamicMessage, Kind, MessageDescriptor};
use serde::Deserialize;
use serde_json::{Deserializer, Map, Value as Json, de::IoRead, value::RawValue};
use serde_path_to_error::{Path, Segment, Track};
use std::{
    fs::File,
    io::{self, BufReader, Cursor, IsTerminal, Read},
    thread,
};
use switchboard::Codec;
use tokio::sync::mpsc;

/// Messages that are read ahead.
const AHEAD: usize = 16;

/// The source of requests.
pub(super) struct Input {
    name: String,
    reader: Box<dyn Read + Send>,
}

impl Input {
    /// Opens the source in `-d`; without `-d` standard input, unless it is a terminal and the method takes no stream.
    pub(super) fn new(data: Option<&str>, takes_stream: bool, takes_fields: bool) -> Result<Input, Failure> {
        let (name, reader): (_, Box<dyn Read + Send>) = match data {
            Some("-") => ("standard input".to_owned(), Box::new(io::stdin())),
            Some(data) => match data.strip_prefix('@') {
                Some(path) => {
                    let file =
                        File::open(path).map_err(|error| Failure::Usage(format!("-d @{path}: {error}")))?;
                    (path.to_owned(), Box::new(file))
                }
                None => ("-d".to_owned(), Box::new(Cursor::new(data.as_bytes().to_vec()))),
            },
            None => {
                let terminal = io::stdin().is_terminal();
                if takes_stream && terminal {
                    eprintln!("type messages as JSON, one after the other; Ctrl-D ends them");
                }
                match takes_stream || (takes_fields && !terminal) {
                    true => ("standard input".to_owned(), Box::new(io::stdin())),
                    false => ("nothing".to_owned(), Box::new(io::empty())),
                }
            }
        };
        Ok(Input { name, reader })
    }

    /// Reads on a separate thread, so that a terminal or pipe does not block other tasks.
    pub(super) fn read(self, form: Form) -> Requests {
        let (into, requests) = mpsc::channel(AHEAD);
        let Input { name, reader } = self;
        let empty = form.empty();
        thread::spawn(move || {
            let mut json = Deserializer::from_reader(BufReader::new(reader));
            loop {
                let next = match json.end() {
                    Ok(()) => return,
                    Err(error) if error.is_io() => Err(format!("{name}: {error}")),
                    Err(_) => form.read(&mut json).map_err(|why| format!("{name}: {why}")),
                };
                let last = next.is_err();
                if into.blocking_send(next).is_err() || last {
                    return;
                }
            }
        });
        Requests { requests, empty }
    }
}

/// The form to which JSON values are converted.
#[derive(Debug)]
pub(super) enum Form {
    /// The arguments of this method, in Thrift's binary protocol.
    Arguments(Function),
    /// Messages of this type, in this codec.
    Message(MessageDescriptor, Codec),
    /// The JSON itself.
    Raw,
    /// Tables of this method, in FlatBuffers.
    Table(Procedure),
}

impl Form {
    fn read<R: Read>(&self, json: &mut Deserializer<IoRead<R>>) -> Result<Bytes, String> {
        match self {
            Form::Arguments(function) => function.write(&value(json)?),
            Form::Table(procedure) => procedure.write(&value(json)?),
            Form::Message(message, codec) => encode(&read_one(json, message)?, *codec),
            Form::Raw => {
                let value = Box::<RawValue>::deserialize(json).map_err(|error| error.to_string())?;
                Ok(String::from(Box::<str>::from(value)).into())
            }
        }
    }

    /// Returns the request without any field.
    fn empty(&self) -> Result<Bytes, String> {
        Ok(match self {
            // A struct without fields.
            Form::Arguments(_) => Bytes::from_static(&[0]),
            Form::Message(_, Codec::Json) | Form::Raw => Bytes::from_static(b"{}"),
            Form::Message(..) => Bytes::new(),
            Form::Table(procedure) => procedure.write(&Json::Object(Map::new()))?,
        })
    }
}

fn value<R: Read>(json: &mut Deserializer<IoRead<R>>) -> Result<Json, String> {
    Json::deserialize(json).map_err(|error| error.to_string())
}

fn encode(message: &DynamicMessage, codec: Codec) -> Result<Bytes, String> {
    match codec {
        Codec::Json => serde_json::to_vec(message).map(Bytes::from).map_err(|error| error.to_string()),
        _ => Ok(message.encode_to_vec().into()),
    }
}

/// Requests, read and encoded one by one.
pub(super) struct Requests {
    requests: mpsc::Receiver<Result<Bytes, String>>,
    empty: Result<Bytes, String>,
}

impl Requests {
    /// Creates the source of a request that was read already.
    pub(super) fn of(request: Bytes) -> Requests {
        Requests { requests: mpsc::channel(1).1, empty: Ok(request) }
    }

    /// Returns the next request, `None` at the end. Cancel safe.
    pub(super) async fn next(&mut self) -> Result<Option<Bytes>, Failure> {
        self.requests.recv().await.transpose().map_err(Failure::Usage)
    }

    /// Returns the only request; an empty one if there is none.
    pub(super) async fn only(&mut self, method: &str) -> Result<Bytes, Failure> {
        let Some(first) = self.next().await? else { return self.empty.clone().map_err(Failure::Usage) };
        match self.next().await? {
            None => Ok(first),
            Some(_) => Err(Failure::Usage(format!("{method} takes one request, and more were given"))),
        }
    }
}

/// Reads the message of a JSON text.
fn read_one<R: Read>(
    json: &mut Deserializer<IoRead<R>>,
    message: &MessageDescriptor,
) -> Result<DynamicMessage, String> {
    let mut track = Track::new();
    let tracked = serde_path_to_error::Deserializer::new(json, &mut track);
    DynamicMessage::deserialize(message.clone(), tracked).map_err(|error| {
        let (path, error) = (track.path(), error.to_string());
        explain(message, &path, &error)
    })
}

/// Names the field, and the nearest one if there is no such field.
fn explain(message: &MessageDescriptor, path: &Path, error: &str) -> String {
    let place = error.rfind(" at line ").map_or("", |at| &error[at..]);
    let unknown = error.strip_prefix(UNKNOWN).and_then(|rest| rest.split('\'').next());
    if let (Some(name), Some(parent)) = (unknown, message_at(message, path)) {
        let fields: Vec<_> = parent.fields().map(|field| field.json_name().to_owned()).collect();
        let instead = instead(name, fields.iter().map(String::as_str));
        return format!("{} has no field {name:?}{place}{instead}", parent.full_name());
    }
    match path.iter().len() {
        0 => error.to_owned(),
        _ => format!("field {path}: {error}"),
    }
}

/// Start of the error text for an unknown field.
const UNKNOWN: &str = "unrecognized field name '";

/// Returns the message at the path; `None` for messages with a special JSON form.
fn message_at(message: &MessageDescriptor, path: &Path) -> Option<MessageDescriptor> {
    let mut at = message.clone();
    for segment in path {
        let Segment::Map { key } = segment else { continue };
        if at.full_name().starts_with("google.protobuf.") {
            return None;
        }
        let field = match at.is_map_entry() {
            true => at.map_entry_value_field(),
            false => at.get_field_by_json_name(key).or_else(|| at.get_field_by_name(key))?,
        };
        let Kind::Message(next) = field.kind() else { return None };
        at = next;
    }
    Some(at)
}

#[cfg(test)]
mod tests {
    use super::*;
    use prost_reflect::DescriptorPool;

    fn schema() -> MessageDescriptor {
        let source = r#"
            syntax = "proto3";
            package t;
            import "google/protobuf/timestamp.proto";
            enum Color { RED = 0; }
            message Inner { int32 count = 1; Color color = 2; google.protobuf.Timestamp at = 3; }
            message Outer { string user_name = 1; repeated Inner inners = 2; map<string, Inner> by_name = 3; }
        "#;
        let mut files = DescriptorPool::global();
        let file = protox::file::File::from_source("t.proto", source).unwrap();
        files.add_file_descriptor_proto(file.file_descriptor_proto().clone()).unwrap();
        files.get_message_by_name("t.Outer").unwrap()
    }

    #[test]
    fn errors_name_field_and_position() {
        for (text, expected) in [
            (
                r#"{"userNam": "a"}"#,
                "t.Outer has no field \"userNam\" at line 1 column 11; did you mean userName?",
            ),
            (
                "{\"inners\": [{},\n {\"cuont\": 1}]}",
                "t.Inner has no field \"cuont\" at line 2 column 10; did you mean count?",
            ),
            (
                r#"{"byName": {"a": {"zzz": 1}}}"#,
                "t.Inner has no field \"zzz\" at line 1 column 24; available: count, color, at",
            ),
            (r#"{"inners": [{"count": "x"}]}"#, "field inners[0].count: "),
            (r#"{"inners": [{"at": "now"}]}"#, "field inners[0].at: "),
            (r#"{"inners": [{"color": "BLUE"}]}"#, "field inners[0].color: "),
            (
                r#"{"userName": 5}"#,
                "field userName: invalid type: integer `5`, expected a string at line 1 column 15",
            ),
            (r#"{"userName": "#, "EOF while parsing"),
            ("[]", "invalid type: sequence"),
        ] {
            let mut json = Deserializer::from_reader(text.as_bytes());
            let error = read_one(&mut json, &schema()).unwrap_err();
            assert!(error.contains(expected), "{text}: {error}");
            assert!(error.contains(" at line "), "{text}: {error}");
        }
    }

    #[tokio::test]
    async fn values_follow_one_another() {
        let text = "{\"userName\": \"a\"}{\"user_name\": \"b\"}\n\n {}\n";
        let form = Form::Message(schema(), Codec::Proto);
        let mut requests = Input::new(Some(text), true, true).unwrap().read(form);
        let mut names = Vec::new();
        while let Some(bytes) = requests.next().await.unwrap() {
            let message = DynamicMessage::decode(schema(), bytes).unwrap();
            names.push(message.get_field_by_name("user_name").unwrap().as_str().unwrap().to_owned());
        }
        assert_eq!(names, ["a", "b", ""]);
    }
}

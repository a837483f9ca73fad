//! The service of `fbs/echo.fbs`, and what its clients ask.

switchboard::include_proto!();

pub use interop::kiss::{self as schema};

use schema::{Echo, EchoClient, Manner, Message, Shout, Tag, Whisper, kinds};
use std::sync::atomic::{AtomicU64, Ordering};
use switchboard::{Code, Cx, Receiver, Result, Sender, Status};

/// The functions of the service on kiss-rpc.
pub const FUNCTIONS: [(&str, u64); 2] =
    [("interop.kiss.Echo/Say", 3_405_691_582), ("interop.kiss.Echo/Note", 7)];

/// The options of a URL of kiss-rpc.
pub fn options() -> String {
    let functions: String = FUNCTIONS.iter().map(|(name, id)| format!("&function={name}:{id}")).collect();
    format!("wire=kiss{functions}")
}

/// Returns its request; the text `fail` fails.
#[derive(Debug, Default)]
pub struct Back {
    /// How often a note came.
    pub notes: AtomicU64,
}

impl Echo for Back {
    async fn say(&self, message: Message, _cx: &Cx) -> Result<Message> {
        if message.text.as_deref() == Some("fail") {
            return Err(Status::not_found("as you wish"));
        }
        Ok(message)
    }

    async fn count(&self, message: Message, _cx: &Cx, out: Sender<Message>) -> Result<()> {
        for number in 0..message.number {
            out.send(Message { number, ..message.clone() }).await?;
        }
        Ok(())
    }

    async fn join(&self, mut input: Receiver<Message>, _cx: &Cx) -> Result<Message> {
        let mut joined = String::new();
        while let Some(message) = input.next().await? {
            joined += message.text.as_deref().unwrap_or_default();
        }
        Ok(Message { text: Some(joined), ..Message::default() })
    }

    async fn chat(&self, mut input: Receiver<Message>, _cx: &Cx, out: Sender<Message>) -> Result<()> {
        while let Some(message) = input.next().await? {
            out.send(message).await?;
        }
        Ok(())
    }

    async fn note(&self, _message: Message, _cx: &Cx) -> Result<()> {
        self.notes.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }
}

/// A message with every kind of field.
pub fn full() -> Message {
    let point = |id| kinds::Point { id, at: -0.25, label: [1, 2, 0xFFFF] };
    Message {
        text: Some("häy".to_owned()),
        number: i64::MIN,
        none: Some(0),
        flag: false,
        mood: kinds::Mood::ODD,
        marks: kinds::Mark(kinds::Mark::READ.0 | kinds::Mark::KEPT.0),
        at: Some(point(1)),
        path: vec![point(2), point(3)],
        bytes: vec![0, 255, 7],
        numbers: vec![1, -1, i64::MAX],
        tags: vec![Tag { key: "a".to_owned(), weight: 0.5 }, Tag { key: String::new(), weight: 1.5 }],
        words: vec!["x".to_owned(), String::new()],
        manner: Some(Manner::Shout(Box::new(Shout { times: 3 }))),
        next: Some(Box::new(Message { text: Some("inner".to_owned()), ..Message::default() })),
        r#type: 1e300,
        manners: vec![
            Manner::Low(Box::new(Whisper { to: Some("x".to_owned()) })),
            Manner::Shout(Box::new(Shout { times: 2 })),
        ],
    }
}

/// Calls a server of the service over the wire of the URL.
///
/// # Errors
/// Describes the first unexpected response of the server.
pub async fn ask(url: &str) -> Result<()> {
    let client = EchoClient::connect(url).await?;
    for message in [Message::default(), full()] {
        let answer = client.say(&message).await?.into_inner();
        if answer != message {
            return Err(Status::data_loss(format!("{message:?} came back as {answer:?}")));
        }
    }
    let failing = Message { text: Some("fail".to_owned()), ..Message::default() };
    match client.say(failing).await {
        Err(status) if matches!(status.code(), Code::NotFound | Code::Unknown) => Ok(()),
        other => Err(Status::data_loss(format!("not a failure: {other:?}"))),
    }
}

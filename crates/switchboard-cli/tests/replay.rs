//! Calls that one server has dumped are sent to another one.
#![allow(clippy::unwrap_used, reason = "a failed setup fails the test")]

mod support;

use std::{
    fs,
    sync::{Arc, Mutex},
};
use support::{Done, folder, serve, switchboard};
use switchboard::{Channel, Cx, Result, Server, Status, layer::Dump};

#[switchboard::service(name = "test.Notes")]
trait Notes {
    async fn note(&self, text: String, cx: &Cx) -> Result<u64>;
    async fn secret(&self, text: String) -> Result<()>;
}

/// The recorded calls with their callers.
#[derive(Clone, Default)]
struct Book(Arc<Mutex<Vec<(String, String)>>>);

impl Notes for Book {
    async fn note(&self, text: String, cx: &Cx) -> Result<u64> {
        let mut noted = self.0.lock().unwrap();
        let tenant = cx.metadata().text("tenant").unwrap_or_default();
        assert!(cx.metadata().text("authorization").is_none_or(|token| token == "Bearer new"));
        if text.is_empty() {
            return Err(Status::invalid_argument("nothing to note"));
        }
        noted.push((text, tenant.to_owned()));
        Ok(noted.len() as u64)
    }

    async fn secret(&self, _: String) -> Result<()> {
        Ok(())
    }
}

fn replay(arguments: &[&str]) -> Done {
    Done::of(switchboard().arg("replay").args(arguments).output().unwrap())
}

/// Waits until the file has so many lines.
fn lines(file: &std::path::Path, count: usize) -> String {
    for _ in 0..3000 {
        let text = fs::read_to_string(file).unwrap();
        if text.lines().count() >= count {
            return text;
        }
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    panic!("{} has fewer than {count} lines", file.display());
}

#[test]
fn calls_of_one_server_are_replayed_on_another() {
    let file = folder("replay").join("calls.jsonl");
    let dump = Dump::to_file(&file).unwrap().methods(["test.Notes/N*"]).metadata(["tenant"]).bytes_max(100);
    let first = Book::default();
    let address = serve(Server::new().add(NotesServer::new(first.clone())).layer(dump.clone()));
    switchboard::run(async move {
        let notes = NotesClient::new(Channel::connect(&address).await.unwrap());
        for (text, tenant) in [("milk", "ada"), ("bread", "bob"), ("", "eve")] {
            let call = notes.note(text.to_owned()).meta("tenant", tenant);
            assert_eq!(call.meta("authorization", "Bearer new").await.is_ok(), !text.is_empty());
        }
        notes.note("x".repeat(200)).await.unwrap();
        notes.secret("not this".to_owned()).await.unwrap();
    });
    let text = lines(&file, 3);
    assert!(text.lines().count() == 3 && text.contains("\"ada\"") && !text.contains("Bearer"), "{text}");
    assert_eq!(dump.left_out(), 1);
    assert_eq!(
        std::os::unix::fs::PermissionsExt::mode(&fs::metadata(&file).unwrap().permissions()) & 0o77,
        0
    );

    let second = Book::default();
    let address = serve(Server::new().add(NotesServer::new(second.clone())));
    let path = file.to_str().unwrap();
    let done = replay(&[path, &address, "--times", "2", "-H", "authorization: Bearer new"]);
    assert_eq!(done.code, 0, "{}", done.stderr);
    let output_text = &done.stdout;
    assert!(
        output_text.starts_with("6 calls in ") && output_text.contains("  ok 4: half in"),
        "{output_text}"
    );
    assert!(output_text.contains("  invalid_argument 2: nothing to note"), "{output_text}");
    let mut noted = second.0.lock().unwrap().clone();
    noted.sort();
    let [bread, milk] = [("bread", "bob"), ("milk", "ada")].map(|(a, b)| (a.to_owned(), b.to_owned()));
    assert_eq!(noted, [bread.clone(), bread, milk.clone(), milk]);

    // An invalid line is named with its number, after the calls of the lines before it.
    fs::write(&file, format!("{}\nnonsense\n", text.lines().next().unwrap())).unwrap();
    let done = replay(&[path, &address, "--rate", "100", "--callers", "1"]);
    assert_eq!(done.code, 1);
    assert!(
        done.stdout.starts_with("1 calls in ") && done.stderr.contains("line 2: not a line of a dump"),
        "{}",
        done.stderr
    );
    let done = replay(&["/nothing/is/here", &address]);
    assert!(done.code == 1 && done.stderr.contains("/nothing/is/here"), "{}", done.stderr);
}

use super::*;
use crate::{Code, Metadata, Status};

#[test]
fn commands_of_client_libraries_have_replies() {
    for (command, reply) in [
        ("PING", "+PONG\r\n"),
        ("ping hi", "$2\r\nhi\r\n"),
        ("ECHO hi", "$2\r\nhi\r\n"),
        ("SELECT 0", "+OK\r\n"),
        ("SELECT 1", "-ERR DB index is out of range\r\n"),
        ("CLIENT SETNAME me", "+OK\r\n"),
        ("CLIENT SETINFO LIB-NAME x", "+OK\r\n"),
        ("client setinfo lib-ver 1.0", "+OK\r\n"),
        ("CLIENT SETINFO a x", "-ERR unrecognized option of 'client|setinfo'\r\n"),
        ("CLIENT GETNAME", "$-1\r\n"),
        ("CLIENT ID", ":7\r\n"),
        ("CLIENT ID x", "-ERR wrong number of arguments for 'client|id' command\r\n"),
        ("CLIENT NO-EVICT ON", "+OK\r\n"),
        ("CLIENT KILL x", "-ERR unknown subcommand 'KILL' of 'client'\r\n"),
        ("COMMAND", "*0\r\n"),
        ("COMMAND DOCS", "*0\r\n"),
        ("COMMAND COUNT", ":0\r\n"),
        ("CONFIG GET save", "*2\r\n$4\r\nsave\r\n$0\r\n\r\n"),
        ("CONFIG GET a* SAVE", "*4\r\n$10\r\nappendonly\r\n$2\r\nno\r\n$4\r\nsave\r\n$0\r\n\r\n"),
        ("CONFIG GET maxmemory", "*0\r\n"),
        ("CONFIG SET save x", "-ERR unknown subcommand 'SET' of 'config'\r\n"),
        ("ECHO", "-ERR wrong number of arguments for 'echo' command\r\n"),
        ("GET a b", "-ERR unknown command 'GET', with args beginning with: 'a' 'b' \r\n"),
        (
            "AUTH x",
            "-ERR AUTH called without any user configured: this server does not authenticate clients\r\n",
        ),
        ("RESET", "+RESET\r\n"),
    ] {
        assert_eq!(output(&Settings::new(), &[command]), reply, "{command}");
    }
    let info = output(&Settings::new(), &["INFO server"]);
    assert!(info.contains("redis_version:7.0.0\r\n") && info.contains("loading:0\r\n"), "{info}");
}

#[test]
fn errors_have_one_line_and_show_a_part_of_the_request() {
    let bytes = request(&[&"x".repeat(1000), "a\r\n+OK", &"y".repeat(1000), "z"]);
    let (_, output, _) = run_split(&Settings::new(), &bytes);
    assert!(output.starts_with("-ERR unknown command 'xxx") && output.len() < 400, "{output}");
    assert!(output.contains("'a  +OK'") && output.lines().count() == 1, "{output}");
}

#[test]
fn hello_changes_the_version_and_the_name() {
    let map = "$6\r\nserver\r\n$11\r\nswitchboard\r\n$7\r\nversion\r\n$5\r\n7.0.0\r\n$5\r\nproto\r\n";
    let rest = "$2\r\nid\r\n:7\r\n$4\r\nmode\r\n$10\r\nstandalone\r\n$4\r\nrole\r\n$6\r\nmaster\r\n\
                $7\r\nmodules\r\n*0\r\n";
    let settings = Settings::new();
    assert_eq!(output(&settings, &["HELLO"]), format!("*14\r\n{map}:2\r\n{rest}"));
    assert_eq!(output(&settings, &["HELLO 2"]), format!("*14\r\n{map}:2\r\n{rest}"));
    let greeted = output(&settings, &["HELLO 3 SETNAME me AUTH default x", "CLIENT GETNAME", "COMMAND DOCS"]);
    assert_eq!(greeted, format!("%7\r\n{map}:3\r\n{rest}$2\r\nme\r\n%0\r\n"));
    for (command, reply) in [
        ("HELLO 4", "-NOPROTO unsupported protocol version\r\n"),
        ("HELLO x", "-ERR Protocol version is not an integer or out of range\r\n"),
        ("HELLO 3 AUTH a", "-ERR Syntax error in HELLO option 'AUTH'\r\n"),
        ("HELLO 3 WHAT", "-ERR Syntax error in HELLO option 'WHAT'\r\n"),
        ("HELLO 3 AUTH a b", "-WRONGPASS invalid username-password pair or user is disabled.\r\n"),
        (
            "HELLO 3 SETNAME \u{1}",
            "-ERR Client names cannot contain spaces, newlines or special characters.\r\n",
        ),
    ] {
        // A HELLO with an error changes nothing.
        assert_eq!(output(&settings, &[command, "CLIENT GETNAME"]), format!("{reply}$-1\r\n"), "{command}");
    }
    assert!(output(&settings, &["HELLO 3", "CLIENT GETNAME"]).ends_with("_\r\n"));
}

#[test]
fn clients_authenticate_before_other_commands() {
    let settings = Settings::new().with_auth(true);
    let noauth = "-NOAUTH Authentication required.\r\n";
    assert_eq!(output(&settings, &["PING", "SUBSCRIBE a", "CALL m {}"]), noauth.repeat(3));
    assert!(output(&settings, &["HELLO 3"]).starts_with("-NOAUTH HELLO must be called with"));
    let wrong = "-WRONGPASS invalid username-password pair or user is disabled.\r\n";
    assert_eq!(output(&settings, &["AUTH mallory x", "PING"]), format!("{wrong}{noauth}"));
    assert_eq!(output(&settings, &["AUTH x", "PING"]), "+OK\r\n+PONG\r\n");
    assert_eq!(output(&settings, &["HELLO 3 AUTH mallory x", "PING"]), format!("{wrong}{noauth}"));
    assert!(output(&settings, &["HELLO 3 AUTH alice x", "PING"]).ends_with("+PONG\r\n"));
    assert_eq!(output(&settings, &["AUTH x", "RESET", "PING"]), format!("+OK\r\n+RESET\r\n{noauth}"));
    let (events, ..) = run_split(&settings, &requests(&["AUTH alice password", "AUTH only"]));
    let [Event::Auth(first), Event::Auth(second)] = &events[..] else { panic!("{events:?}") };
    assert_eq!((first.username(), &first.password()[..]), (Some(&bytes("alice")), &b"password"[..]));
    assert_eq!((second.username(), &second.password()[..]), (None, &b"only"[..]));
    assert!(!format!("{events:?}").contains("password"), "{events:?}");
}

#[test]
fn quit_closes_the_connection() {
    let (events, output, error) = run_split(&Settings::new(), &requests(&["QUIT", "PING"]));
    assert_eq!((events, &*output, error), (vec![Event::Quit], "+OK\r\n", None));
}

#[test]
fn calls_have_a_payload_metadata_and_a_status() {
    let (events, output, error) =
        run_split(&Settings::new(), &requests(&["CALL shop.Cart/Add {\"id\":1} tenant a trace-bin xy"]));
    let mut metadata = Metadata::new();
    metadata.insert("tenant", bytes("a")).unwrap();
    metadata.insert("trace-bin", bytes("xy")).unwrap();
    let call = Event::Call { method: bytes("shop.Cart/Add"), payload: bytes("{\"id\":1}"), metadata };
    assert_eq!((events, &*output, error), (vec![call], "$8\r\n{\"id\":1}\r\n", None));
    for (command, reply) in [
        ("CALL m", "-ERR wrong number of arguments for 'call' command\r\n"),
        ("CALL m {} a", "-INVALID_ARGUMENT metadata has a name without a value\r\n"),
    ] {
        assert_eq!(super::output(&Settings::new(), &[command]), reply);
    }
    assert!(super::output(&Settings::new(), &["CALL m {} \u{e4} x"]).starts_with("-INVALID_ARGUMENT "));
    let mut server = Server::new(Arc::new(Settings::new()), ID);
    let (mut input, mut out) = (Input::default(), Outbox::new());
    input.extend(&requests(&["CALL m {}"]));
    server.recv(&mut input, &mut out).unwrap();
    // Methods for other events have no effect.
    server.published(1, &mut out);
    server.accept(&mut out);
    server.reject(&mut out);
    server.patterns(1, &mut out);
    server.channels(["a"], &mut out);
    server.subscribers(|_| 1, &mut out);
    assert!(out.is_empty() && server.is_waiting());
    let status = Status::new(Code::NotFound, "method \"m\"\r\nnot found");
    server.called(Err::<&Bytes, _>(&status), &mut out);
    assert_eq!(out.take_all(), b"-NOT_FOUND method \"m\"  not found\r\n");
    assert!(!server.is_waiting());
}

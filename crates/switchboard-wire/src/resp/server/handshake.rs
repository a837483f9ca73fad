//! Commands that clients send when they connect: `HELLO`, `AUTH`, `CLIENT`.

use super::{Event, Pending, Server, command::unknown_subcommand};
use crate::{
    Outbox,
    resp::{
        Credentials, Version,
        write::{write_error, write_head, write_line, write_map_head, write_null, write_text},
    },
};
use bytes::Bytes;

const HELLO_NOAUTH: &str = "HELLO must be called with the client already authenticated, otherwise the HELLO <proto> \
                            AUTH <user> <pass> option can be used to authenticate the client and select the RESP \
                            protocol version at the same time";

/// Changes of a `HELLO`, made once its credentials are accepted.
#[derive(Clone, Debug, Default)]
pub(super) struct Hello {
    version: Option<Version>,
    client_name: Option<Bytes>,
}

impl Server {
    pub(super) fn auth(&mut self, mut arguments: Vec<Bytes>, out: &mut Outbox) -> Option<Event> {
        if !self.settings.requires_auth {
            let text = "AUTH called without any user configured: this server does not authenticate clients";
            write_error("ERR", text, out);
            return None;
        }
        let password = arguments.pop().unwrap_or_default();
        self.pending = Pending::Auth(None);
        Some(Event::Auth(Credentials::new(arguments.pop(), password)))
    }

    pub(super) fn hello(&mut self, arguments: &[Bytes], out: &mut Outbox) -> Option<Event> {
        let (hello, credentials) = match self.read_hello(arguments) {
            Ok(read) => read,
            Err((class, text)) => {
                write_error(class, &text, out);
                return None;
            }
        };
        match credentials {
            Some(credentials) if self.settings.requires_auth => {
                self.pending = Pending::Auth(Some(hello));
                return Some(Event::Auth(credentials));
            }
            // Without authentication there is one user, who has any password.
            Some(credentials) if credentials.username().is_some_and(|name| name != &b"default"[..]) => {
                write_error("WRONGPASS", "invalid username-password pair or user is disabled.", out);
            }
            None if !self.authenticated => write_error("NOAUTH", HELLO_NOAUTH, out),
            _ => self.greet(hello, out),
        }
        None
    }

    fn read_hello(
        &self,
        arguments: &[Bytes],
    ) -> Result<(Hello, Option<Credentials>), (&'static str, String)> {
        let (mut hello, mut credentials) = (Hello::default(), None);
        let Some((version, mut options)) = arguments.split_first() else { return Ok((hello, credentials)) };
        let Some(number) = crate::resp::line::integer(version) else {
            return Err(("ERR", "Protocol version is not an integer or out of range".to_owned()));
        };
        hello.version = Version::from_number(number);
        if hello.version.is_none() {
            return Err(("NOPROTO", "unsupported protocol version".to_owned()));
        }
        while let Some((option, values)) = options.split_first() {
            options = match values {
                [user, password, rest @ ..] if option.eq_ignore_ascii_case(b"AUTH") => {
                    credentials = Some(Credentials::new(Some(user.clone()), password.clone()));
                    rest
                }
                [name, rest @ ..] if option.eq_ignore_ascii_case(b"SETNAME") => {
                    self.check_client_name(name).map_err(|text| ("ERR", text))?;
                    hello.client_name = Some(name.clone());
                    rest
                }
                _ => {
                    let option = String::from_utf8_lossy(&option[..option.len().min(40)]);
                    return Err(("ERR", format!("Syntax error in HELLO option '{option}'")));
                }
            };
        }
        Ok((hello, credentials))
    }

    /// Makes the changes of a `HELLO` and replies to it.
    pub(super) fn greet(&mut self, hello: Hello, out: &mut Outbox) {
        self.version = hello.version.unwrap_or(self.version);
        if let Some(name) = hello.client_name {
            self.client_name = name[..].into();
        }
        let text = |name: &str, value: &str, out: &mut Outbox| {
            write_text(name.as_bytes(), out);
            write_text(value.as_bytes(), out);
        };
        write_map_head(self.version, 7, out);
        text("server", &self.settings.name, out);
        text("version", &self.settings.redis_version, out);
        write_text(b"proto", out);
        write_head(b':', self.version.number().into(), out);
        write_text(b"id", out);
        write_head(b':', self.id, out);
        text("mode", "standalone", out);
        text("role", "master", out);
        write_text(b"modules", out);
        write_head(b'*', 0, out);
    }

    pub(super) fn client(&mut self, arguments: &[Bytes], out: &mut Outbox) {
        let subcommand = arguments[0].to_ascii_lowercase();
        match (&subcommand[..], &arguments[1..]) {
            (b"getname", []) if self.client_name.is_empty() => write_null(self.version, out),
            (b"getname", []) => write_text(&self.client_name, out),
            (b"id", []) => write_head(b':', self.id, out),
            (b"setname", [name]) => match self.check_client_name(name) {
                Ok(()) => {
                    self.client_name = name[..].into();
                    write_line(b'+', b"OK", out);
                }
                Err(text) => write_error("ERR", &text, out),
            },
            (b"no-evict" | b"no-touch", [_]) => write_line(b'+', b"OK", out),
            (b"setinfo", [attribute, _]) => {
                let is_known =
                    [&b"lib-name"[..], b"lib-ver"].iter().any(|known| attribute.eq_ignore_ascii_case(known));
                match is_known {
                    true => write_line(b'+', b"OK", out),
                    false => write_error("ERR", "unrecognized option of 'client|setinfo'", out),
                }
            }
            (b"getname" | b"id" | b"no-evict" | b"no-touch" | b"setinfo" | b"setname", _) => {
                let name = String::from_utf8_lossy(&subcommand).into_owned();
                write_error("ERR", &format!("wrong number of arguments for 'client|{name}' command"), out);
            }
            _ => write_error("ERR", &unknown_subcommand("client", &arguments[0]), out),
        }
    }

    fn check_client_name(&self, name: &[u8]) -> Result<(), String> {
        let limit = self.settings.limits.client_name_bytes_max as usize;
        if name.len() > limit {
            let len = name.len();
            return Err(format!("client name has {len} bytes; the limit is {limit} (client_name_bytes_max)"));
        }
        if !name.iter().all(|byte| (b'!'..=b'~').contains(byte)) {
            return Err("Client names cannot contain spaces, newlines or special characters.".to_owned());
        }
        Ok(())
    }
}

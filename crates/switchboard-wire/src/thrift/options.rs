//! `wire=thrift`: servers of Apache Thrift.

use super::{Client, Encoded, Framing, Settings};
use crate::{
    Codec, Limits,
    spec::{ClientSetup, PostedMachine},
    wire::ClientWire,
};

/// Bits of the variants in HTTP requests.
const COMPACT: u8 = 1;
const MULTIPLEXED: u8 = 2;

/// Creates a machine whose messages have no frames: the body of a request is one message.
fn unframed(limits: Limits, variant: u8) -> Box<dyn ClientWire> {
    let encoded = if variant & COMPACT != 0 { Encoded::Compact } else { Encoded::Binary };
    let multiplexed = variant & MULTIPLEXED != 0;
    Box::new(Client::new(limits, Settings { framing: Framing::Unframed, encoded, multiplexed, zlib: false }))
}

/// The options of `wire=thrift`.
#[derive(Debug, Default)]
pub(super) struct Options {
    settings: Settings,
    header: bool,
    framed: Option<bool>,
    /// True for Options over HTTP POST.
    posted: bool,
}

impl ClientSetup for Options {
    fn set(&mut self, name: &str, value: &str) -> Result<bool, &'static str> {
        match (name, value) {
            ("protocol", "binary") => self.settings.encoded = Encoded::Binary,
            ("protocol", "compact") => self.settings.encoded = Encoded::Compact,
            ("protocol", "header") => self.header = true,
            ("protocol", "header-compact") => {
                self.header = true;
                self.settings.encoded = Encoded::Compact;
            }
            ("protocol", _) => return Err("binary, compact, header or header-compact"),
            ("framed", _) => self.framed = Some(value.parse().map_err(|_| "true or false")?),
            ("multiplexed", _) => self.settings.multiplexed = value.parse().map_err(|_| "true or false")?,
            ("http" | "path", _) => {
                self.posted = true;
                // These are options of HTTP.
                return Ok(false);
            }
            ("zlib", _) => self.settings.zlib = value.parse().map_err(|_| "true or false")?,
            _ => return Ok(false),
        }
        Ok(true)
    }

    fn set_http(&mut self) -> bool {
        self.posted = true;
        true
    }

    fn posted(&self) -> Option<PostedMachine> {
        let bit = |is_set: bool, bit: u8| if is_set { bit } else { 0 };
        let variant = bit(self.settings.encoded == Encoded::Compact, COMPACT)
            | bit(self.settings.multiplexed, MULTIPLEXED);
        self.posted.then_some(PostedMachine { create: unframed, variant })
    }

    fn check(&self) -> Result<(), String> {
        if self.posted && (self.header || self.framed.is_some()) {
            return Err(
                "HTTP supports neither frames nor THeader: use protocol=binary or compact without framed"
                    .into(),
            );
        }
        if self.header && self.framed == Some(false) {
            return Err("THeader has its own frames: remove framed=false".into());
        }
        if self.settings.zlib && !self.header {
            return Err("zlib=true needs protocol=header or header-compact".into());
        }
        Ok(())
    }

    fn codec(&self, _preferred: Codec) -> Codec {
        Codec::Thrift
    }

    fn carries_metadata(&self) -> bool {
        self.header
    }

    fn machine(&self, limits: &Limits) -> Box<dyn ClientWire> {
        let framing = match (self.header, self.framed) {
            (true, _) => Framing::Header,
            (false, Some(false)) => Framing::Unframed,
            (false, _) => Framing::Framed,
        };
        Box::new(Client::new(*limits, Settings { framing, ..self.settings }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn incompatible_options_are_rejected() {
        let of = |options: &[(&str, &str)]| {
            let mut thrift = Options::default();
            for (name, value) in options {
                assert_eq!(thrift.set(name, value), Ok(true));
            }
            thrift
        };
        assert!(of(&[]).check().is_ok());
        assert!(of(&[("protocol", "header"), ("zlib", "true")]).check().is_ok());
        assert!(of(&[("protocol", "header"), ("framed", "false")]).check().is_err());
        assert!(of(&[("protocol", "compact"), ("zlib", "true")]).check().is_err());
        for (option, fits) in [(("protocol", "compact"), true), (("protocol", "header"), false)] {
            let mut thrift = of(&[option]);
            assert_eq!(thrift.set("path", "/calculator"), Ok(false), "an option of HTTP");
            assert_eq!(thrift.check().is_ok(), fits, "{option:?}");
        }
        assert_eq!(
            Options::default().set("protocol", "json"),
            Err("binary, compact, header or header-compact")
        );
        assert_eq!(Options::default().set("spin", "1"), Ok(false));
    }
}

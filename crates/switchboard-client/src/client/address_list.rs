//! Parsing of channel URLs: several addresses, then options.

use switchboard_core::Result;
use switchboard_wire::Status;

/// Splits `tcp://a:1,b:2?x=1&y=2` into addresses and options.
#[expect(clippy::type_complexity, reason = "two lists, named by the function")]
pub(super) fn split(url: &str) -> Result<(Vec<String>, Vec<(&str, &str)>)> {
    let (addresses, options) =
        url.split_once('?').map_or((url, ""), |(addresses, options)| (addresses, options));
    // The scheme of the first address applies to addresses without one.
    let scheme = addresses.find("://").map_or("", |end| &addresses[..end + 3]);
    let mut list = Vec::new();
    for address in addresses.split(',') {
        if address.is_empty() {
            return Err(Status::invalid_argument(format!("an address is missing in {url:?}")));
        }
        list.push(if address.contains(':') && (address.contains("://") || address.starts_with("unix:")) {
            address.to_owned()
        } else {
            format!("{scheme}{address}")
        });
    }
    Ok((list, self::options(options, url)?))
}

/// Splits `x=1&y=2`, which is a part of `url` (for messages).
pub(super) fn options<'a>(options: &'a str, url: &str) -> Result<Vec<(&'a str, &'a str)>> {
    let options = options.split('&').filter(|option| !option.is_empty());
    let options = options.map(|option| {
        option
            .split_once('=')
            .ok_or_else(|| Status::invalid_argument(format!("{option:?} in {url:?} is not NAME=VALUE")))
    });
    options.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_share_the_scheme_and_options_are_split() {
        let (addresses, options) = split("tcp://a:1,b:2?connections=4&timeout=1s").unwrap();
        assert_eq!(addresses, ["tcp://a:1", "tcp://b:2"]);
        assert_eq!(options, [("connections", "4"), ("timeout", "1s")]);
        assert_eq!(split("memory://a").unwrap().0, ["memory://a"]);
        assert_eq!(split("unix:/run/a,unix:/run/b").unwrap().0, ["unix:/run/a", "unix:/run/b"]);
        assert!(split("tcp://a:1,").is_err() && split("tcp://a:1?x").is_err());
    }
}

//! Programs to read and run, in `src/bin`: `cargo run -p examples --bin hello`.

/// Generated from `calculator.thrift`, for the program `calculator` and the guide that shows it.
#[allow(missing_docs, reason = "generated code says what its schema says")]
pub mod tutorial {
    switchboard::include_proto!("tutorial.v1");
}

/// Generated from `helloworld.proto`, for a guide.
#[allow(missing_docs, reason = "generated code says what its schema says")]
pub mod helloworld {
    switchboard::include_proto!("helloworld");
}

/// The guides whose examples call the generated code of this crate.
#[cfg(doctest)]
mod guides {
    #[doc = include_str!("../../docs/migrating-from-brpc.md")]
    struct MigratingFromBrpc;

    #[doc = include_str!("../../docs/migrating-from-rpcx.md")]
    struct MigratingFromRpcx;

    #[doc = include_str!("../../docs/migrating-from-thrift.md")]
    struct MigratingFromThrift;

    #[doc = include_str!("../../docs/wires/thrift.md")]
    struct WiresThrift;
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    const README: &str = include_str!("../../README.md");

    /// People copy what the front page shows, so that it has to run.
    #[test]
    fn readme_shows_hello_as_it_is() {
        let hello = include_str!("bin/hello.rs");
        assert!(
            README.contains(&format!("```rust\n{hello}```\n")),
            "README.md must contain examples/src/bin/hello.rs, word for word, as its example in Rust"
        );
    }

    #[test]
    fn links_of_the_front_pages_lead_somewhere() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
        for page in ["README.md", "docs/features.md", "docs/performance.md"] {
            let text = std::fs::read_to_string(root.join(page)).expect("a page");
            let folder = root.join(page).parent().expect("a folder").to_path_buf();
            let links = text.split("](").skip(1).filter_map(|rest| rest.split_once(')'));
            for (link, _) in links.filter(|(link, _)| !link.contains("://")) {
                let (file, section) =
                    link.split_once('#').map_or((link, None), |(file, section)| (file, Some(section)));
                let file = if file.is_empty() { root.join(page) } else { folder.join(file) };
                assert!(file.exists(), "{page} links to {link}, and the file is not there");
                let Some(section) = section else { continue };
                let text = std::fs::read_to_string(&file).expect("a file with sections is text");
                let mut headings = text.lines().filter(|line| line.starts_with('#'));
                assert!(
                    headings.any(|line| slug(line) == section),
                    "{page} links to {link}, and the file has no such heading"
                );
            }
        }
    }

    /// The anchor that a heading of Markdown gets.
    fn slug(heading: &str) -> String {
        let words = heading.trim_start_matches('#').trim().to_lowercase();
        let kept = words.chars().filter(|c| c.is_alphanumeric() || " -_".contains(*c));
        kept.map(|c| if c == ' ' { '-' } else { c }).collect()
    }
}

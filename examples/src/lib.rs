//! Programs to read and run, in `src/bin`: `cargo run -p examples --bin hello`.

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
    fn links_of_the_readme_lead_somewhere() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
        let links = README.split("](").skip(1).filter_map(|rest| rest.split_once(')'));
        for (link, _) in links.filter(|(link, _)| !link.contains("://")) {
            assert!(root.join(link).exists(), "README.md links to {link}, which is not there");
        }
    }
}

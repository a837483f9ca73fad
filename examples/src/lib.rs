//! Programs to read and run, in `src/bin`: `cargo run -p examples --bin hello`.

#[cfg(test)]
mod tests {
    /// People copy what the front page shows, so that it has to run.
    #[test]
    fn readme_shows_hello_as_it_is() {
        let hello = include_str!("bin/hello.rs");
        let readme = include_str!("../../README.md");
        assert!(
            readme.contains(&format!("```rust\n{hello}```\n")),
            "README.md must contain examples/src/bin/hello.rs, word for word, as its example in Rust"
        );
    }
}

//! The code blocks of a page of Markdown as steps of a session in a terminal.

/// One thing that a reader of the page does.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// Runs a line in the shell and sees this output; `None` where the page shows none.
    Command { line: usize, command: String, output: Option<String> },
    /// Saves a file, in place of the one that was there.
    File { path: String, text: String },
}

/// Reads the blocks of a page in their order.
///
/// A block of `sh` has a command on each line. A block of `text` behind it is the output of the last one. Every other
/// block is a file, whose path in backticks ends the line above: "`src/main.rs`:".
///
/// # Errors
///
/// Names the line of a block that is none of these, so that no block of the page is left out.
pub(super) fn steps(page: &str) -> Result<Vec<Step>, String> {
    let mut steps = Vec::new();
    let mut above = "";
    let mut lines = page.lines().enumerate();
    while let Some((index, line)) = lines.next() {
        let Some(language) = line.strip_prefix("```") else {
            above = if line.trim().is_empty() { above } else { line };
            continue;
        };
        let block: Vec<&str> =
            lines.by_ref().map(|(_, line)| line).take_while(|line| !line.starts_with("```")).collect();
        match language {
            "sh" => steps.extend(block.iter().enumerate().map(|(offset, command)| Step::Command {
                line: index + 2 + offset,
                command: (*command).to_owned(),
                output: None,
            })),
            "text" => match steps.last_mut() {
                Some(Step::Command { output: output @ None, .. }) => *output = Some(block.join("\n")),
                _ => return Err(format!("line {}: the output has no command above it", index + 1)),
            },
            _ => {
                let path = path_of_file(above).ok_or_else(|| {
                    format!(
                        "line {}: the line above the block does not end with the path of a file",
                        index + 1
                    )
                })?;
                steps.push(Step::File { path: path.to_owned(), text: format!("{}\n", block.join("\n")) });
            }
        }
        above = "";
    }
    Ok(steps)
}

/// The path in "Write the service to `src/lib.rs`:".
fn path_of_file(line: &str) -> Option<&str> {
    line.trim_end().strip_suffix("`:")?.rsplit_once('`').map(|(_, path)| path)
}

/// Compares an output with that of the page, in which `…` is any text within a line, or any lines on a line of its own.
pub(super) fn is_like(output: &str, expected: &str) -> bool {
    let output: Vec<&str> = output.lines().map(str::trim_end).filter(|line| !line.is_empty()).collect();
    let expected: Vec<&str> = expected.lines().map(str::trim_end).filter(|line| !line.is_empty()).collect();
    lines_match(&output, &expected)
}

fn lines_match(output: &[&str], expected: &[&str]) -> bool {
    match expected {
        [] => output.is_empty(),
        ["…", rest @ ..] => (0..=output.len()).any(|skipped| lines_match(&output[skipped..], rest)),
        [line, rest @ ..] => match output {
            [first, others @ ..] => line_matches(first, line) && lines_match(others, rest),
            [] => false,
        },
    }
}

fn line_matches(line: &str, expected: &str) -> bool {
    match expected.split_once('…') {
        None => line == expected,
        Some((start, rest)) => line.strip_prefix(start).is_some_and(|line| {
            line.char_indices()
                .map(|(index, _)| index)
                .chain([line.len()])
                .any(|at| line_matches(&line[at..], rest))
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_are_files_commands_and_outputs() {
        let page = "Save `src/lib.rs`:\n\n```rust\nfn a() {}\n```\n\n```sh\ncd a\nls\n```\nIt prints:\n```text\nlib.rs\n```\n";
        let command = |line, command: &str, output: Option<&str>| Step::Command {
            line,
            command: command.into(),
            output: output.map(str::to_owned),
        };
        let file = Step::File { path: "src/lib.rs".into(), text: "fn a() {}\n".into() };
        assert_eq!(steps(page).unwrap(), [file, command(8, "cd a", None), command(9, "ls", Some("lib.rs"))]);
    }

    #[test]
    fn a_block_that_could_not_be_tested_is_an_error() {
        let failure = steps("Text.\n\n```rust\nfn a() {}\n```\n").unwrap_err();
        assert!(failure.starts_with("line 3: "), "{failure}");
        let failure = steps("```text\noutput\n```\n").unwrap_err();
        assert!(failure.contains("no command"), "{failure}");
    }

    #[test]
    fn dots_are_any_text() {
        assert!(is_like("hello Ada\n", "hello Ada"));
        assert!(is_like("took 12 ms in all\n", "took … ms in all"));
        assert!(is_like("a\nb\nc\n", "a\n…\nc"));
        assert!(is_like("a\nc\n", "a\n…\nc"));
        assert!(!is_like("took 12 s\n", "took … ms"));
        assert!(!is_like("a\nb\n", "a"));
    }
}

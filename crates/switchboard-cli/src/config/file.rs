//! Settings from a TOML file, with their lines.

use super::{Config, Errors, Source};
use std::{collections::HashMap, fs, path::Path};
use toml::de::{DeTable, DeValue};

/// Lines of keys, by table and name as spelt in the file.
struct Lines(HashMap<String, usize>);

impl Config {
    /// Reads a file. Adds its errors to `errors`, each with its line and key.
    pub(super) fn read_file(&mut self, path: &Path, errors: &mut Errors) {
        let shown = path.display().to_string();
        match fs::read_to_string(path) {
            Ok(text) => self.file(&text, &shown, errors),
            Err(error) => errors.add(None, format!("{shown}: {error}")),
        }
    }

    pub(super) fn file(&mut self, text: &str, path: &str, errors: &mut Errors) {
        let (_, parse_errors) = DeTable::parse_recoverable(text);
        for error in &parse_errors {
            let line = line_at(text, error.span().map_or(0, |span| span.start));
            errors.add(Some(line), format!("{path}:{line}: {}", error.message()));
        }
        if parse_errors.is_empty() {
            match text.parse::<toml::Table>() {
                Ok(table) => self.table("", table, path, &Lines::of(text), errors),
                Err(error) => errors.add(None, format!("{path}: {}", error.message())),
            }
        }
    }

    fn table(&mut self, prefix: &str, table: toml::Table, path: &str, lines: &Lines, errors: &mut Errors) {
        for (key, value) in table {
            let line = lines.of_key(prefix, &key);
            // In the form of flags.
            let name = format!("{prefix}{key}").replace('-', "_");
            let is_table = prefix.is_empty() && self.is_table(&name);
            let set = match value {
                toml::Value::Table(inner) if is_table => {
                    self.table(&format!("{name}."), inner, path, lines, errors);
                    continue;
                }
                toml::Value::Table(_) => Err(self.unknown(&name)),
                value => {
                    let texts = texts_of(&name, &value);
                    texts.and_then(|texts| self.set(&name, texts, Source::File(path.to_owned(), line)))
                }
            };
            if let Err(why) = set {
                errors.add(Some(line), format!("{path}:{line}: {why}"));
            }
        }
    }
}

impl Lines {
    /// Returns the lines of a text that is valid TOML.
    fn of(text: &str) -> Lines {
        let mut lines = HashMap::new();
        if let Ok(table) = DeTable::parse(text) {
            note("", table.get_ref(), text, &mut lines);
        }
        Lines(lines)
    }

    fn of_key(&self, prefix: &str, key: &str) -> usize {
        self.0.get(&format!("{prefix}{key}")).copied().unwrap_or(1)
    }
}

/// Records the lines of the keys of a table, and of its subtables.
fn note(prefix: &str, table: &DeTable<'_>, text: &str, into: &mut HashMap<String, usize>) {
    for (key, value) in table {
        let name = format!("{prefix}{}", key.get_ref());
        if let (true, DeValue::Table(inner)) = (prefix.is_empty(), value.get_ref()) {
            note(&format!("{name}."), inner, text, into);
        }
        into.insert(name, line_at(text, key.span().start));
    }
}

/// Returns the line of a byte, counted from one.
fn line_at(text: &str, at: usize) -> usize {
    text.bytes().take(at).filter(|byte| *byte == b'\n').count() + 1
}

/// # Errors
/// A value that no flag accepts.
fn texts_of(name: &str, value: &toml::Value) -> Result<Vec<String>, String> {
    if let toml::Value::Array(values) = value {
        let texts: Option<Vec<_>> = values.iter().map(text_of).collect();
        return texts.ok_or_else(|| format!("{name}: expected a list of texts"));
    }
    let text = text_of(value);
    let text = text.ok_or_else(|| format!("{name}: a {} is not a value here", value.type_str()))?;
    Ok(vec![text])
}

/// Formats a value as for a flag; `None` for types that no flag accepts.
fn text_of(value: &toml::Value) -> Option<String> {
    match value {
        toml::Value::String(text) => Some(text.clone()),
        toml::Value::Integer(number) => Some(number.to_string()),
        toml::Value::Boolean(on) => Some(on.to_string()),
        _ => None,
    }
}

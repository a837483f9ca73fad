//! Settings from a TOML file, with the lines that they stand in.

use super::{Config, Source};
use std::{collections::HashMap, fs, path::Path};
use toml::de::{DeTable, DeValue};

/// Lines of keys, by table and name as the file spells them.
struct Lines(HashMap<String, usize>);

impl Config {
    /// # Errors
    /// A file that cannot be read, or the first mistake in it, with its line and key.
    pub(super) fn read_file(&mut self, path: &Path) -> Result<(), String> {
        let shown = path.display().to_string();
        let text = fs::read_to_string(path).map_err(|error| format!("{shown}: {error}"))?;
        self.file(&text, &shown)
    }

    pub(super) fn file(&mut self, text: &str, path: &str) -> Result<(), String> {
        let table: toml::Table = text.parse().map_err(|error: toml::de::Error| {
            let at = error.span().map_or(0, |span| span.start);
            format!("{path}:{}: {}", line_at(text, at), error.message())
        })?;
        self.table("", table, path, &Lines::of(text))
    }

    fn table(&mut self, prefix: &str, table: toml::Table, path: &str, lines: &Lines) -> Result<(), String> {
        for (key, value) in table {
            let line = lines.of_key(prefix, &key);
            // As flags have it.
            let name = format!("{prefix}{key}").replace('-', "_");
            let is_table = prefix.is_empty() && self.is_table(&name);
            let set = match value {
                toml::Value::Table(inner) if is_table => {
                    self.table(&format!("{name}."), inner, path, lines)?;
                    continue;
                }
                toml::Value::Table(_) => Err(self.unknown(&name)),
                value => {
                    let texts = texts_of(&name, &value);
                    texts.and_then(|texts| self.set(&name, texts, Source::File(path.to_owned(), line)))
                }
            };
            set.map_err(|why| format!("{path}:{line}: {why}"))?;
        }
        Ok(())
    }
}

impl Lines {
    /// Those of a text that is known to be TOML.
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

/// Notes the keys of a table, and of those in it.
fn note(prefix: &str, table: &DeTable<'_>, text: &str, into: &mut HashMap<String, usize>) {
    for (key, value) in table {
        let name = format!("{prefix}{}", key.get_ref());
        if let (true, DeValue::Table(inner)) = (prefix.is_empty(), value.get_ref()) {
            note(&format!("{name}."), inner, text, into);
        }
        into.insert(name, line_at(text, key.span().start));
    }
}

/// The line of a byte, counted from one.
fn line_at(text: &str, at: usize) -> usize {
    text.bytes().take(at).filter(|byte| *byte == b'\n').count() + 1
}

/// # Errors
/// A value that no flag takes.
fn texts_of(name: &str, value: &toml::Value) -> Result<Vec<String>, String> {
    if let toml::Value::Array(values) = value {
        let texts: Option<Vec<_>> = values.iter().map(text_of).collect();
        return texts.ok_or_else(|| format!("{name}: expected a list of texts"));
    }
    let text = text_of(value);
    let text = text.ok_or_else(|| format!("{name}: a {} is no value here", value.type_str()))?;
    Ok(vec![text])
}

/// A value as a flag would spell it; none for what no flag takes.
fn text_of(value: &toml::Value) -> Option<String> {
    match value {
        toml::Value::String(text) => Some(text.clone()),
        toml::Value::Integer(number) => Some(number.to_string()),
        toml::Value::Boolean(on) => Some(on.to_string()),
        _ => None,
    }
}

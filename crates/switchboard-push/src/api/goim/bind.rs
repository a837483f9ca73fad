//! Parameters of the query, read as gin reads them, with its errors.

use switchboard::plugin::RouteHead;

/// Reads parameters of a query, in the order of the fields of goim's handlers.
pub(super) struct Query<'a> {
    head: &'a RouteHead,
    /// Fields that are required and missing.
    missing: Vec<&'static str>,
}

impl<'a> Query<'a> {
    pub(super) fn new(head: &'a RouteHead) -> Query<'a> {
        Query { head, missing: Vec::new() }
    }

    /// Returns a text, empty if it is missing.
    pub(super) fn text(&self, name: &'a str) -> &'a str {
        self.head.parameters(name).next().unwrap_or_default()
    }

    /// Returns a text that must not be empty. `field` is its name in errors.
    pub(super) fn required_text(&mut self, name: &'a str, field: &'static str) -> &'a str {
        let text = self.text(name);
        self.require(!text.is_empty(), field);
        text
    }

    /// Returns all values.
    pub(super) fn texts(&self, name: &'a str) -> Vec<String> {
        self.head.parameters(name).map(str::to_owned).collect()
    }

    /// Returns all values of a parameter that must be there.
    pub(super) fn required_texts(&mut self, name: &'a str, field: &'static str) -> Vec<String> {
        let texts = self.texts(name);
        self.require(!texts.is_empty(), field);
        texts
    }

    /// Returns an integer of 32 bits, 0 if it is missing.
    pub(super) fn int32(&self, name: &'a str) -> Result<i32, String> {
        // The range is that of the type.
        integer(self.text(name), i64::from(i32::MIN), i64::from(i32::MAX)).map(|number| number as i32)
    }

    /// Returns an integer of 32 bits that must not be 0.
    pub(super) fn required_int32(&mut self, name: &'a str, field: &'static str) -> Result<i32, String> {
        let number = self.int32(name)?;
        self.require(number != 0, field);
        Ok(number)
    }

    /// Returns an integer that must not be 0.
    pub(super) fn required_int(&mut self, name: &'a str, field: &'static str) -> Result<i64, String> {
        let number = integer(self.text(name), i64::MIN, i64::MAX)?;
        self.require(number != 0, field);
        Ok(number)
    }

    /// Returns all values as integers of 64 bits.
    pub(super) fn int64s(&self, name: &'a str) -> Result<Vec<i64>, String> {
        self.head.parameters(name).map(|text| integer(text, i64::MIN, i64::MAX)).collect()
    }

    fn require(&mut self, is_there: bool, field: &'static str) {
        if !is_there {
            self.missing.push(field);
        }
    }

    /// Checks that all required parameters were there.
    pub(super) fn check(self) -> Result<(), String> {
        if self.missing.is_empty() {
            return Ok(());
        }
        let error = |field: &&str| {
            format!("Key: '{field}' Error:Field validation for '{field}' failed on the 'required' tag")
        };
        Err(self.missing.iter().map(error).collect::<Vec<_>>().join("\n"))
    }
}

/// Reads an integer as `strconv.ParseInt` does; an empty text is 0.
fn integer(text: &str, min: i64, max: i64) -> Result<i64, String> {
    let failed = |why| Err(format!("strconv.ParseInt: parsing {text:?}: {why}"));
    if text.is_empty() {
        return Ok(0);
    }
    let digits = text.strip_prefix(['+', '-']).unwrap_or(text);
    if digits.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return failed("invalid syntax");
    }
    match text.parse::<i64>() {
        Ok(number) if (min..=max).contains(&number) => Ok(number),
        _ => failed("value out of range"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn integers_have_the_errors_of_go() {
        let int32 = |text| integer(text, i64::from(i32::MIN), i64::from(i32::MAX));
        assert_eq!((int32(""), int32("-7"), int32("+7"), int32("007")), (Ok(0), Ok(-7), Ok(7), Ok(7)));
        for (text, error) in [
            ("1,2", "strconv.ParseInt: parsing \"1,2\": invalid syntax"),
            ("-", "strconv.ParseInt: parsing \"-\": invalid syntax"),
            (" 1", "strconv.ParseInt: parsing \" 1\": invalid syntax"),
            ("1.5", "strconv.ParseInt: parsing \"1.5\": invalid syntax"),
            ("2147483648", "strconv.ParseInt: parsing \"2147483648\": value out of range"),
            (
                "99999999999999999999",
                "strconv.ParseInt: parsing \"99999999999999999999\": value out of range",
            ),
        ] {
            assert_eq!(int32(text), Err(error.to_owned()));
        }
    }

    #[test]
    fn missing_parameters_are_all_named() {
        let mut head = RouteHead::new("POST", "/goim/push/room");
        head.parameters = vec![("room".into(), "1".into()), ("operation".into(), "0".into())];
        let mut query = Query::new(&head);
        assert_eq!(query.required_int32("operation", "Op"), Ok(0));
        assert_eq!((query.required_text("type", "Type"), query.required_text("room", "Room")), ("", "1"));
        let required = |field| {
            format!("Key: '{field}' Error:Field validation for '{field}' failed on the 'required' tag")
        };
        assert_eq!(query.check(), Err(format!("{}\n{}", required("Op"), required("Type"))));
    }
}

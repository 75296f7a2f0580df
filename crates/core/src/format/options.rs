//! Options for writing: keywords with values.
//!
//! The options do not depend on a format. Each format reads its own keywords and states their valid ranges. A keyword
//! that the format does not have is an error that lists the keywords of the format.

use crate::error::{Error, Result};
use std::fmt::Display;
use std::ops::RangeInclusive;

/// A value of an option.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Value {
    /// True or false.
    Flag(bool),
    /// A whole number. The type holds every u64 and every i64.
    Int(i128),
    /// A word.
    Text(String),
}

/// Keywords and their values, in no particular order.
#[derive(Clone, Debug, Default)]
pub struct WriteOptions {
    values: Vec<(String, Value)>,
}

impl WriteOptions {
    /// Sets a keyword.
    #[must_use]
    pub fn with(mut self, keyword: &str, value: Value) -> Self {
        self.values.retain(|(k, _)| k != keyword);
        self.values.push((keyword.to_owned(), value));
        self
    }

    /// [`with`](Self::with) for a whole number.
    #[must_use]
    pub fn with_int(self, keyword: &str, value: impl Into<i128>) -> Self {
        self.with(keyword, Value::Int(value.into()))
    }

    /// [`with`](Self::with) for a word.
    #[must_use]
    pub fn with_text(self, keyword: &str, value: &str) -> Self {
        self.with(keyword, Value::Text(value.to_owned()))
    }

    /// [`with`](Self::with) for true or false.
    #[must_use]
    pub fn with_flag(self, keyword: &str, value: bool) -> Self {
        self.with(keyword, Value::Flag(value))
    }

    /// Returns an error if a keyword is not among `valid`.
    pub fn only(&self, format: &str, valid: &[&str]) -> Result<()> {
        match self.values.iter().find(|(k, _)| !valid.contains(&k.as_str())) {
            None => Ok(()),
            Some((keyword, _)) => Err(Error::argument(format!(
                "{format} has no option {}; it has: {}",
                Quoted(keyword),
                valid.join(", "),
            ))),
        }
    }

    /// Whether a keyword was given.
    pub fn has(&self, keyword: &str) -> bool {
        self.get(keyword).is_some()
    }

    fn get(&self, keyword: &str) -> Option<&Value> {
        self.values.iter().find(|(k, _)| k == keyword).map(|(_, value)| value)
    }

    /// A whole number in `range`, if given.
    pub fn int<T>(&self, keyword: &str, range: RangeInclusive<T>) -> Result<Option<T>>
    where
        T: Copy + Display + PartialOrd + TryFrom<i128>,
    {
        let Some(value) = self.get(keyword) else { return Ok(None) };
        let number = if let Value::Int(n) = value { T::try_from(*n).ok() } else { None };
        number.filter(|n| range.contains(n)).map(Some).ok_or_else(|| {
            refused(keyword, value, format_args!("a whole number from {} to {}", range.start(), range.end()))
        })
    }

    /// True or false, if given.
    pub fn flag(&self, keyword: &str) -> Result<Option<bool>> {
        match self.get(keyword) {
            None => Ok(None),
            Some(Value::Flag(flag)) => Ok(Some(*flag)),
            Some(value) => Err(refused(keyword, value, "True or False")),
        }
    }

    /// One of the words `valid`, if given.
    pub fn word(&self, keyword: &str, valid: &[&'static str]) -> Result<Option<&'static str>> {
        let Some(value) = self.get(keyword) else { return Ok(None) };
        let word = if let Value::Text(text) = value { valid.iter().find(|v| *v == text) } else { None };
        word.copied()
            .map(Some)
            .ok_or_else(|| refused(keyword, value, format_args!("one of {}", valid.join(", "))))
    }
}

fn refused(keyword: &str, value: &Value, valid: impl Display) -> Error {
    let value = match value {
        Value::Flag(flag) => if *flag { "True" } else { "False" }.to_owned(),
        Value::Int(n) => n.to_string(),
        Value::Text(text) => format!("{}", Quoted(text)),
    };
    Error::argument(format!("{keyword}={value} is not valid: it must be {valid}"))
}

struct Quoted<'a>(&'a str);

impl Display for Quoted<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "'{}'", self.0.escape_debug())
    }
}

//! Labels: properties of a node, which jobs may require.

use std::{collections::BTreeMap, fmt, str::FromStr};

use serde::{Deserialize, Serialize};
use thiserror::Error;

/// Names with one value each: `zone=a,gpu=yes`.
///
/// A node has labels, and a job requires some. Names and values have at most 63 bytes: letters, digits, `-`,
/// `_`, `.` and `/`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Default, Serialize, Deserialize)]
#[serde(try_from = "BTreeMap<String, String>", into = "BTreeMap<String, String>")]
pub struct Labels(BTreeMap<String, String>);

/// The maximum number of labels of a node, or required by a job.
pub const LABELS_MAX: usize = 32;
/// The maximum length of the name or value of a label, in bytes.
pub const LABEL_BYTES_MAX: usize = 63;

/// A text that is not a label, or not a list of labels.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{text:?} is not a label: {reason}. Expected name=value, or several of them with commas")]
pub struct LabelError {
    text: String,
    reason: String,
}

impl Labels {
    /// No labels.
    pub const NONE: &'static Self = &Self(BTreeMap::new());

    /// Returns whether there are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the value of a label.
    pub fn get(&self, name: &str) -> Option<&str> {
        self.0.get(name).map(String::as_str)
    }

    /// Returns the labels in the order of their names.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.iter().map(|(name, value)| (name.as_str(), value.as_str()))
    }

    /// Returns the labels that `node` does not have, or has with another value.
    #[must_use]
    pub fn missing_from(&self, node: &Self) -> Self {
        let missing = self.iter().filter(|(name, value)| node.get(name) != Some(value));
        Self(missing.map(|(name, value)| (name.to_owned(), value.to_owned())).collect())
    }

    /// Adds other labels.
    ///
    /// # Errors
    /// If a name has two values then, or there are more than [`LABELS_MAX`].
    pub fn merge(&mut self, others: &Self) -> Result<(), LabelError> {
        let mut merged = self.0.clone();
        for (name, value) in others.iter() {
            let before = merged.insert(name.to_owned(), value.to_owned());
            if let Some(before) = before.filter(|before| before != value) {
                let reason = format!("{name} is {before:?} already");
                return Err(LabelError { text: format!("{name}={value}"), reason });
            }
        }
        *self = Self::try_from(merged)?;
        Ok(())
    }
}

impl TryFrom<BTreeMap<String, String>> for Labels {
    type Error = LabelError;

    fn try_from(labels: BTreeMap<String, String>) -> Result<Self, LabelError> {
        for (name, value) in &labels {
            let text = format!("{name}={value}");
            let wrong = |reason: &str| LabelError { text: text.clone(), reason: reason.to_owned() };
            for word in [name, value] {
                if word.is_empty() || word.len() > LABEL_BYTES_MAX {
                    return Err(wrong(&format!("name and value have 1 to {LABEL_BYTES_MAX} bytes")));
                }
                if !word.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_./".contains(&byte)) {
                    return Err(wrong("it has characters other than letters, digits, - _ . and /"));
                }
            }
        }
        if labels.len() > LABELS_MAX {
            let reason = format!("there are more than {LABELS_MAX}");
            return Err(LabelError { text: Self(labels).to_string(), reason });
        }
        Ok(Self(labels))
    }
}

impl From<Labels> for BTreeMap<String, String> {
    fn from(labels: Labels) -> Self {
        labels.0
    }
}

impl FromStr for Labels {
    type Err = LabelError;

    fn from_str(text: &str) -> Result<Self, LabelError> {
        let mut labels = Self::default();
        for label in text.split(',') {
            let (name, value) = label.split_once('=').ok_or_else(|| {
                let reason = "it has no =".to_owned();
                LabelError { text: label.to_owned(), reason }
            })?;
            labels.merge(&Self(BTreeMap::from([(name.to_owned(), value.to_owned())])))?;
        }
        Ok(labels)
    }
}

impl fmt::Display for Labels {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (number, (name, value)) in self.iter().enumerate() {
            let comma = if number == 0 { "" } else { "," };
            write!(f, "{comma}{name}={value}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_round_trip_through_text() {
        for text in ["zone=a", "gpu=yes,zone=eu-1/b"] {
            assert_eq!(text.parse::<Labels>().unwrap().to_string(), text);
        }
        assert_eq!("b=1,a=2,b=1".parse::<Labels>().unwrap().to_string(), "a=2,b=1");
    }

    #[test]
    fn invalid_label_is_refused_with_reason() {
        let long = format!("a={}", "x".repeat(LABEL_BYTES_MAX + 1));
        let many: Vec<String> = (0..=LABELS_MAX).map(|number| format!("l{number}=1")).collect();
        for (text, words) in [
            ("", "no ="),
            ("zone", "no ="),
            ("=a", "1 to 63"),
            ("zone=", "1 to 63"),
            ("zone=a,", "no ="),
            ("zone=a,zone=b", "\"a\" already"),
            ("zone=a=b", "characters"),
            ("zone = a", "characters"),
            ("z\u{e4}hl=1", "characters"),
            (&long, "1 to 63"),
            (&many.join(","), "more than 32"),
        ] {
            let error = text.parse::<Labels>().unwrap_err().to_string();
            assert!(error.contains(words), "{text}: {error}");
        }
    }

    #[test]
    fn labels_in_a_record_are_checked() {
        let read = |text: &str| serde_json::from_str::<Labels>(text);
        assert_eq!(read(r#"{"zone":"a"}"#).unwrap(), "zone=a".parse().unwrap());
        for wrong in [r#"{"a":"\u001b[2J"}"#, r#"{"a=1,b":"2"}"#, r#"{"":"1"}"#, r#"{"a":7}"#] {
            assert!(read(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn missing_labels_are_those_the_node_lacks() {
        let required: Labels = "gpu=yes,zone=a".parse().unwrap();
        let missing = |node: &str| required.missing_from(&node.parse().unwrap()).to_string();
        assert_eq!(missing("gpu=yes,zone=a,more=1"), "");
        assert_eq!(missing("zone=b,gpu=yes"), "zone=a");
        assert_eq!(required.missing_from(&Labels::default()), required);
        assert!(Labels::default().missing_from(&required).is_empty());
    }
}

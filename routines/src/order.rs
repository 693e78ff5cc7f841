//! The description of a job, which all its tasks share.

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

/// The calls of a job.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Order {
    /// The digest of the package.
    pub(crate) digest: String,
    /// The name of the folder for results, which no other job has.
    pub(crate) key: String,
    pub(crate) space: Space,
}

/// The requested work of a job.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Work {
    Calls(Space),
    /// A search with this argument.
    Search(String),
}

/// The arguments of the calls.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Space {
    /// Consecutive integers.
    Range { from: i64, to: i64 },
    /// Values as JSON.
    List(Vec<String>),
}

impl Space {
    pub(crate) fn len(&self) -> u64 {
        match self {
            Self::Range { from, to } => u64::try_from(to.saturating_sub(*from)).unwrap_or(0),
            Self::List(values) => values.len() as u64,
        }
    }

    /// Returns a short digest of all arguments.
    pub(crate) fn digest(&self) -> String {
        let mut hasher = blake3::Hasher::new();
        match self {
            Self::Range { from, to } => drop(hasher.update(format!("{from}..{to}").as_bytes())),
            Self::List(values) => values.iter().for_each(|value| {
                hasher.update(&(value.len() as u64).to_le_bytes()).update(value.as_bytes());
            }),
        }
        let mut digits = hasher.finalize().to_hex().to_string();
        digits.truncate(16);
        digits
    }

    /// Returns the argument of a call.
    ///
    /// # Errors
    /// If there is no such call, or its argument is not JSON.
    pub(crate) fn argument(&self, index: u64) -> Result<Box<RawValue>, String> {
        let json = match self {
            Self::Range { from, to } => {
                let number = i64::try_from(index).ok().and_then(|index| from.checked_add(index));
                number.filter(|number| number < to).map(|number| number.to_string())
            }
            Self::List(values) => usize::try_from(index).ok().and_then(|index| values.get(index)).cloned(),
        };
        let json = json.ok_or_else(|| format!("the job has no call {index}"))?;
        RawValue::from_string(json).map_err(|error| format!("the argument of call {index}: {error}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn space_has_arguments_up_to_its_end() {
        let range = Space::Range { from: -1, to: 2 };
        assert_eq!(range.len(), 3);
        assert_eq!(
            (0..3).map(|index| range.argument(index).unwrap().to_string()).collect::<Vec<_>>(),
            ["-1", "0", "1"]
        );
        assert!(range.argument(3).is_err() && range.argument(u64::MAX).is_err());
        let list = Space::List(vec!["[1]".to_owned()]);
        assert_eq!((list.len(), list.argument(0).unwrap().get()), (1, "[1]"));
        assert!(list.argument(1).is_err());
        assert_eq!(Space::Range { from: 5, to: 5 }.len(), 0);
    }
}

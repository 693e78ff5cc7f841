//! The errors of unreadable znodes, by path.

use std::collections::BTreeMap;

/// The maximum number of warnings that are kept.
const WARNINGS_MAX: usize = 200;
/// The maximum length of a warning, in characters.
const CHARS_MAX: usize = 300;

/// The errors of unreadable znodes.
#[derive(Debug, Clone, Default)]
pub(super) struct Warnings {
    by_path: BTreeMap<String, String>,
}

impl Warnings {
    /// Records that the content of a znode cannot be read. Beyond the limit, those with the first paths are kept, so
    /// that the order of events does not matter.
    pub(super) fn set(&mut self, path: &str, what: &str) {
        self.by_path.insert(path.to_owned(), what.chars().take(CHARS_MAX).collect());
        if self.by_path.len() > WARNINGS_MAX {
            self.by_path.pop_last();
        }
    }

    /// Records that a znode can be read, or is gone.
    pub(super) fn clear(&mut self, path: &str) {
        self.by_path.remove(path);
    }

    pub(super) fn all(&self) -> &BTreeMap<String, String> {
        &self.by_path
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn warnings_number_and_length_are_bounded() {
        let mut warnings = Warnings::default();
        for number in (0..1_000).rev() {
            warnings.set(&format!("members/{number:04}"), &"x".repeat(10_000));
        }
        assert_eq!(warnings.all().len(), WARNINGS_MAX);
        assert!(warnings.all().values().all(|what| what.len() == CHARS_MAX));
        warnings.clear("members/0000");
        assert_eq!(warnings.all().keys().next().map(String::as_str), Some("members/0001"));
    }
}

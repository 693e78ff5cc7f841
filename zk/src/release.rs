//! Which program, in which version: nodes work on jobs of their own release alone, and each release has a
//! leader and a queue of its own.

/// A program in one version.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Release {
    /// Its name.
    pub program: String,
    /// Its version: another version's tasks may look different.
    pub version: String,
}

impl Release {
    /// Returns whether it is this program in this version.
    pub fn matches(&self, program: &str, version: &str) -> bool {
        self.program == program && self.version == version
    }
}

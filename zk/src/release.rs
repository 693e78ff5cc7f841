//! Releases: nodes only work on jobs of their own release, and each release has its own queue.

/// A program in one version.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Release {
    /// The name of the program.
    pub program: String,
    /// The version: tasks of different versions may be incompatible.
    pub version: String,
}

impl Release {
    /// Returns whether this is the given program and version.
    pub fn matches(&self, program: &str, version: &str) -> bool {
        self.program == program && self.version == version
    }
}

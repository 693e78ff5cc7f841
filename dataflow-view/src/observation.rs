//! Everything that was observed of a program.

use serde::{Deserialize, Serialize};

use crate::{Calls, Summary, Trace};

/// What was observed of a program that has ended, or so far.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Observation {
    /// Its calls by task and state.
    pub summary: Summary,
    /// Its calls one by one, if they were recorded.
    pub calls: Option<Calls>,
    /// When they ran, if that was recorded.
    pub trace: Option<Trace>,
}

//! The complete observation of a program.

use serde::{Deserialize, Serialize};

use crate::{Calls, Summary, Trace};

/// The observation of a program, finished or running.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Observation {
    /// Its calls by task and state.
    pub summary: Summary,
    /// Its calls one by one, if they were recorded.
    pub calls: Option<Calls>,
    /// Its run times, if they were recorded.
    pub trace: Option<Trace>,
}

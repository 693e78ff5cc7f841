//! The output of a program, for its job.

use serde::{Deserialize, Serialize};

use crate::{encoding::encode, failure::Failed};

/// The maximum size of an answer that is kept in JSON as well, in bytes.
const SHOWN_BYTES_MAX: usize = 64 << 10;

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct ProgramOutput {
    pub(super) encoded: Vec<u8>,
    /// The same in JSON; `None` if it has no such form, or one that is too large.
    pub(super) shown: Option<String>,
}

impl ProgramOutput {
    pub(super) fn new<O: Serialize>(output: &O) -> Result<Self, String> {
        let encoded = encode(output).map_err(|Failed { reason, .. }| reason)?;
        // The JSON of a large output would be larger still.
        let shown = (encoded.len() <= SHOWN_BYTES_MAX).then(|| serde_json::to_string(output).ok()).flatten();
        Ok(Self { encoded, shown: shown.filter(|shown| shown.len() <= SHOWN_BYTES_MAX) })
    }
}

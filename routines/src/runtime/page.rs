//! The page that a search, or a call with checkpoints, reads in its loop: a small file that the runtime maps.
//!
//! | offset | content |
//! |---|---|
//! | 0 | the request: one byte |
//! | 8 | the bound: a double in the order of this machine |
//! | 16 | the bound again |
//!
//! The host writes by `pwrite`, and the reader needs no system call. The runtime clears a request only if it is `Bound` or
//! `State`; a request that it overwrites by this is repeated. A bound that is being written differs from its copy.

use std::{
    fs::{File, OpenOptions},
    io,
    os::unix::fs::FileExt as _,
    path::Path,
};

const BOUND_AT: u64 = 8;

/// A request to a search, in the order of precedence, or to a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Request {
    /// Read the bound, and continue.
    Bound = 1,
    /// Split off a part.
    Split = 2,
    /// Send the state, and wait if it is a search, or stop if it is a call.
    Pause = 3,
    /// Send the state of the call, and continue.
    State = 4,
}

/// The page of a runtime.
#[derive(Debug)]
pub(super) struct Page(File);

impl Page {
    pub(super) fn create(path: &Path) -> io::Result<Self> {
        let page = Self(OpenOptions::new().write(true).create_new(true).open(path)?);
        page.set_request(None)?;
        page.set_bounds([f64::INFINITY; 2])?;
        Ok(page)
    }

    pub(super) fn set_request(&self, request: Option<Request>) -> io::Result<()> {
        self.0.write_all_at(&[request.map_or(0, |request| request as u8)], 0)
    }

    /// Sets the bound and its copy.
    pub(super) fn set_bounds(&self, bounds: [f64; 2]) -> io::Result<()> {
        self.0.write_all_at(&bounds.map(f64::to_ne_bytes).concat(), BOUND_AT)
    }
}

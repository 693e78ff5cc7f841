//! Gates: a job waits at a gate until a test opens it, so that no scenario depends on the duration of a job.

use std::{error::Error, ffi::OsString, fs, io, path::PathBuf, thread, time::Duration};

use serde::{Deserialize, Serialize};

/// A file with the number of places that are open. Programs read it; tests write it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Gate(PathBuf);

/// The interval at which a closed gate is read.
const LOOK_EVERY: Duration = Duration::from_millis(5);

impl Gate {
    /// Creates a closed gate.
    ///
    /// # Errors
    /// If the file cannot be written.
    pub fn closed(file: PathBuf) -> io::Result<Self> {
        let gate = Self(file);
        gate.open_up_to(0)?;
        Ok(gate)
    }

    /// Opens the places below a number, and closes the others.
    ///
    /// # Errors
    /// If the file cannot be written.
    pub fn open_up_to(&self, places: u64) -> io::Result<()> {
        // Renamed, so that a reader never sees a partial number.
        let new = self.0.with_extension("new");
        fs::write(&new, places.to_string())?;
        fs::rename(new, &self.0)
    }

    /// Opens all places.
    ///
    /// # Errors
    /// If the file cannot be written.
    pub fn open(&self) -> io::Result<()> {
        self.open_up_to(u64::MAX)
    }

    /// Returns the path of the file, as an argument of a program.
    ///
    /// # Panics
    /// If the path is not valid UTF-8, which the paths of temporary folders are.
    pub fn path(&self) -> &str {
        self.0.to_str().expect("the path of a temporary folder is text")
    }

    /// Returns whether a place is open.
    ///
    /// # Errors
    /// If the file cannot be read, or has no number.
    pub fn is_open_at(&self, place: u64) -> Result<bool, Box<dyn Error + Send + Sync>> {
        Ok(fs::read_to_string(&self.0)?.parse::<u64>()? > place)
    }

    /// Waits until a place is open.
    ///
    /// # Errors
    /// If the file cannot be read, or has no number.
    pub fn pass(&self, place: u64) -> Result<(), Box<dyn Error + Send + Sync>> {
        while !self.is_open_at(place)? {
            thread::sleep(LOOK_EVERY);
        }
        Ok(())
    }
}

impl From<OsString> for Gate {
    fn from(file: OsString) -> Self {
        Self(file.into())
    }
}

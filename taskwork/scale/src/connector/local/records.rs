//! The files that record the processes.

use std::{
    fs::{self, File},
    io::{self, Write as _},
    path::{Path, PathBuf},
};

use serde::{Deserialize, Serialize};

use super::process::Process;
use crate::connector::{Key, MACHINES_MAX, MachineId};

/// The time after which the file of a process that is gone is removed, with its log.
const KEPT_MS: u64 = 24 * 3_600_000;
/// The time for which a process that is gone is still listed.
const LISTED_MS: u64 = 600_000;

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Record {
    pub(super) offer: String,
    pub(super) key: Key,
    pub(super) created_ms: u64,
    pub(super) state: State,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum State {
    /// It is about to be started. If the controller was killed, it may or may not have been started.
    Starting,
    Running(Process),
    /// It was asked to terminate.
    Ending {
        process: Process,
        since_ms: u64,
    },
    Gone,
    Failed(String),
}

/// A folder of records.
#[derive(Debug)]
pub(super) struct Records {
    folder: PathBuf,
}

impl Record {
    pub(super) fn new(offer: String, key: Key, created_ms: u64) -> Self {
        Self { offer, key, created_ms, state: State::Starting }
    }
}

impl Records {
    pub(super) fn new(folder: PathBuf) -> Self {
        Self { folder }
    }

    pub(super) fn folder(&self) -> &Path {
        &self.folder
    }

    pub(super) fn file(&self, id: &MachineId) -> PathBuf {
        self.folder.join(format!("{id}.json"))
    }

    pub(super) fn log(&self, id: &MachineId) -> PathBuf {
        self.folder.join(format!("{id}.log"))
    }

    /// Writes a new record, or returns the existing one; and whether it is new.
    pub(super) fn begin(&self, id: &MachineId, new: Record) -> io::Result<(Record, bool)> {
        let whole = self.beside(id, &new)?;
        // A link appears atomically, and only if there is none: two controllers cannot both succeed.
        let linked = fs::hard_link(&whole, self.file(id));
        fs::remove_file(&whole)?;
        match linked {
            Ok(()) => Ok((new, true)),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                let there = self.read(id)?;
                let there = there.ok_or_else(|| io::Error::other("the record has just been removed"))?;
                Ok((there, false))
            }
            Err(error) => Err(error),
        }
    }

    pub(super) fn write(&self, id: &MachineId, record: &Record) -> io::Result<()> {
        fs::rename(self.beside(id, record)?, self.file(id))
    }

    /// Writes a record under another name.
    fn beside(&self, id: &MachineId, record: &Record) -> io::Result<PathBuf> {
        let path = self.folder.join(format!(".{id}.{}.new", std::process::id()));
        let mut file = File::create(&path)?;
        file.write_all(&serde_json::to_vec(record)?)?;
        // The record of a running process must survive a crash of the machine.
        file.sync_data()?;
        Ok(path)
    }

    pub(super) fn read(&self, id: &MachineId) -> io::Result<Option<Record>> {
        match fs::read(self.file(id)) {
            Ok(content) => serde_json::from_slice(&content).map(Some).map_err(|error| {
                let file = self.file(id);
                io::Error::other(format!(
                    "{} cannot be read: {error}. If its process is gone, remove the file",
                    file.display()
                ))
            }),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    pub(super) fn remove(&self, id: &MachineId) -> io::Result<()> {
        let _ = fs::remove_file(self.log(id));
        fs::remove_file(self.file(id))
    }

    /// Reads all records but old ones, which are removed unless this is a dry run.
    pub(super) fn all(&self, now_ms: u64, is_dry_run: bool) -> io::Result<Vec<(MachineId, Record)>> {
        let mut records = Vec::new();
        let entries = match fs::read_dir(&self.folder) {
            Ok(entries) => entries,
            // The folder is created with the first machine.
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(records),
            Err(error) => return Err(error),
        };
        for entry in entries {
            let name = entry?.file_name();
            let Some(name) = name.to_str().and_then(|name| name.strip_suffix(".json")) else { continue };
            let Ok(id) = name.parse::<MachineId>() else { continue };
            let Some(record) = self.read(&id)? else { continue };
            let is_over = matches!(record.state, State::Starting | State::Gone | State::Failed(_));
            let age_ms = now_ms.saturating_sub(record.created_ms);
            if is_over && age_ms > KEPT_MS {
                if !is_dry_run {
                    self.remove(&id)?;
                }
            } else if !is_over || record.state == State::Starting || age_ms <= LISTED_MS {
                records.push((id, record));
            }
            if records.len() > MACHINES_MAX {
                return Err(io::Error::other(format!("more than {MACHINES_MAX} files of machines")));
            }
        }
        records.sort_by(|(one, _), (other, _)| one.cmp(other));
        Ok(records)
    }
}

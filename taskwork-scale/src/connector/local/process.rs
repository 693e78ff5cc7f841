//! Processes as the operating system lists them, told apart from later ones with the same number.

use std::{collections::BTreeMap, fs};

use nix::{
    sys::signal::{Signal, killpg},
    unistd::Pid,
};
use serde::{Deserialize, Serialize};

/// A process that leads its own group.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Process {
    pid: i32,
    /// When it began, in ticks since the machine was started: a later process of the same number differs in that.
    began: u64,
    /// Which start of the machine that was.
    boot: String,
}

/// What `/proc` says of a process.
struct Status {
    group: i32,
    began: u64,
    is_over: bool,
}

impl Process {
    /// Returns the process of this number, if it runs.
    pub(super) fn of(pid: u32) -> Option<Self> {
        let pid = i32::try_from(pid).ok().filter(|pid| *pid > 1)?;
        let status = Status::read(pid).filter(|status| !status.is_over)?;
        Some(Self { pid, began: status.began, boot: boot() })
    }

    /// Finds the processes that were started with this variable in their environment, and lead their groups, by its
    /// values.
    pub(super) fn all(name: &str) -> BTreeMap<Vec<u8>, Self> {
        let start = [name.as_bytes(), b"="].concat();
        let numbers = fs::read_dir("/proc").into_iter().flatten().flatten();
        let pids = numbers.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
        pids.filter_map(|pid| {
            let environment = fs::read(format!("/proc/{pid}/environ")).ok()?;
            let value = environment.split(|byte| *byte == 0).find_map(|entry| entry.strip_prefix(&*start))?;
            let number = i32::try_from(pid).ok()?;
            let leads = Status::read(number)?.group == number;
            Some((value.to_vec(), leads.then(|| Self::of(pid))??))
        })
        .collect()
    }

    /// Returns whether it still runs.
    pub(super) fn runs(&self) -> bool {
        self.boot == boot()
            && Status::read(self.pid).is_some_and(|now| now.began == self.began && !now.is_over)
    }

    /// Sends a signal to it and its group, if it still runs.
    pub(super) fn signal(&self, signal: Signal) {
        // Between the look and the signal the number cannot be used again unless the process was waited for, by us
        // or by the first process of the machine, and all numbers went round in that moment.
        if self.runs()
            && let Err(error) = killpg(Pid::from_raw(self.pid), signal)
        {
            tracing::debug!(pid = self.pid, %error, "a signal was not sent");
        }
    }
}

impl Status {
    fn read(pid: i32) -> Option<Self> {
        let text = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        // The name in parentheses may contain anything.
        let (_, rest) = text.rsplit_once(')')?;
        let fields: Vec<&str> = rest.split_whitespace().collect();
        // proc_pid_stat(5), from the third field on.
        Some(Self {
            is_over: matches!(*fields.first()?, "Z" | "X" | "x"),
            group: fields.get(2)?.parse().ok()?,
            began: fields.get(19)?.parse().ok()?,
        })
    }
}

/// Returns what differs from one start of this machine to the next; empty if it does not say so.
fn boot() -> String {
    fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default().trim().to_owned()
}

#[cfg(test)]
impl Process {
    /// Returns an earlier process of the same number.
    pub(super) fn earlier(&self) -> Self {
        Self { began: self.began - 1, ..self.clone() }
    }
}

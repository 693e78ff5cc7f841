//! Processes of the operating system, distinguished from later ones with the same pid.

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
    /// Its start, in ticks since the boot of the machine: later processes with the same pid differ in it.
    began: u64,
    /// The id of the boot.
    boot: String,
}

/// The relevant fields of `/proc`.
struct Status {
    group: i32,
    began: u64,
    is_over: bool,
}

impl Process {
    pub(super) fn of(pid: u32) -> Option<Self> {
        let pid = i32::try_from(pid).ok().filter(|pid| *pid > 1)?;
        let status = Status::read(pid).filter(|status| !status.is_over)?;
        Some(Self { pid, began: status.began, boot: boot() })
    }

    /// Finds the processes that were started with this environment variable and lead their groups, by the values of
    /// the variable.
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

    pub(super) fn runs(&self) -> bool {
        self.boot == boot()
            && Status::read(self.pid).is_some_and(|now| now.began == self.began && !now.is_over)
    }

    /// Sends a signal to it and its group, if it still runs.
    pub(super) fn signal(&self, signal: Signal) {
        // Between the check and the signal the pid can be reused only if the process was waited for, by this process
        // or by the init process, and all pids were used in that time.
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
        // Fields of proc_pid_stat(5), starting with the third.
        Some(Self {
            is_over: matches!(*fields.first()?, "Z" | "X" | "x"),
            group: fields.get(2)?.parse().ok()?,
            began: fields.get(19)?.parse().ok()?,
        })
    }
}

/// Returns the id of this boot; empty if unknown.
fn boot() -> String {
    fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default().trim().to_owned()
}

#[cfg(test)]
impl Process {
    /// An earlier process with the same pid.
    pub(super) fn earlier(&self) -> Self {
        Self { began: self.began - 1, ..self.clone() }
    }
}

//! The memory of runtimes: that of each process group, as Linux reports it, compared with the limit of the routine.
//!
//! Pages of mapped files do not count, so that a routine may map a large resource. Pages that processes share after `fork`
//! count for each of them.

use std::{
    collections::HashMap,
    fs,
    sync::{Mutex, PoisonError},
    time::{Duration, Instant},
};

use rustix::param::page_size;

/// The time between two measurements.
pub(super) const MEASURE_EVERY: Duration = Duration::from_millis(100);

/// The last measurement of all groups, which all runtimes of this process share, since it reads the state of each process.
static MEASURED: Mutex<Option<(Instant, HashMap<u32, u64>)>> = Mutex::new(None);

/// The limit of a process group, in bytes.
#[derive(Debug)]
pub(super) struct MemoryLimit {
    bytes: u64,
    measured: Instant,
}

impl MemoryLimit {
    pub(super) fn new(bytes: u64) -> Self {
        Self { bytes, measured: Instant::now() }
    }

    /// Measures the group if it is time. Returns the reason if it exceeds the limit.
    pub(super) fn exceeded(&mut self, group: u32) -> Option<String> {
        if self.measured.elapsed() < MEASURE_EVERY {
            return None;
        }
        self.measured = Instant::now();
        let used = used(group);
        (used > self.bytes).then(|| {
            format!(
                "the process used {} MiB, more than its limit of {} MiB: use less memory, or deploy a version with a larger \
                 `memory` in routine.toml",
                used >> 20,
                self.bytes >> 20
            )
        })
    }
}

/// Returns the memory of a group, in bytes, as measured a moment ago.
fn used(group: u32) -> u64 {
    let mut measured = MEASURED.lock().unwrap_or_else(PoisonError::into_inner);
    let is_recent = |(at, _): &&mut (Instant, _)| at.elapsed() < MEASURE_EVERY / 2;
    let groups = match measured.as_mut().filter(is_recent) {
        Some((_, groups)) => groups,
        None => &mut measured.insert((Instant::now(), measure())).1,
    };
    groups.get(&group).copied().unwrap_or_default()
}

fn measure() -> HashMap<u32, u64> {
    let mut groups = HashMap::new();
    for process in fs::read_dir("/proc").into_iter().flatten().flatten() {
        let read = |name: &str| fs::read_to_string(process.path().join(name)).unwrap_or_default();
        if process.file_name().to_string_lossy().parse::<u32>().is_ok()
            && let Some((group, bytes)) = parse(&read("stat"), &read("statm"), page_size() as u64)
        {
            *groups.entry(group).or_default() += bytes;
        }
    }
    groups
}

/// Returns the group of a process, and its memory without mapped files, in bytes.
fn parse(stat: &str, statm: &str, page_bytes: u64) -> Option<(u32, u64)> {
    // The name of the program may contain spaces and parentheses.
    let group = stat.rsplit_once(')')?.1.split_whitespace().nth(2)?.parse().ok()?;
    let mut pages = statm.split_whitespace().skip(1).map_while(|pages| pages.parse::<u64>().ok());
    let (resident, shared) = (pages.next()?, pages.next()?);
    Some((group, resident.saturating_sub(shared) * page_bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_that_of_the_group_without_mapped_files() {
        assert_eq!(parse("7 (a) b) S 1 42 7 0", "900 100 30 5 0 60 0", 4096), Some((42, 70 * 4096)));
        assert_eq!(parse("", "", 4096), None);
        let own = rustix::process::getpgrp().as_raw_nonzero().get().cast_unsigned();
        assert!(used(own) > 1 << 20);
        let mut limit = MemoryLimit { bytes: 1 << 20, measured: Instant::now() };
        assert_eq!(limit.exceeded(own), None, "it is measured later");
        limit.measured = Instant::now().checked_sub(MEASURE_EVERY).unwrap();
        let reason = limit.exceeded(own).unwrap();
        assert!(reason.contains("limit of 1 MiB") && reason.contains("`memory`"), "{reason}");
    }
}

//! The memory of runtimes: that of each process group, as Linux reports it, compared with the limit of the routine.
//!
//! Pages of mapped files do not count, so that a routine may map a large resource; shared memory does, and files on a tmpfs,
//! since their pages are in no other place. Pages that processes share count for each of them.

use std::{
    collections::HashMap,
    fs,
    sync::{Mutex, PoisonError},
    time::{Duration, Instant},
};

/// The time between two measurements.
pub(super) const MEASURE_EVERY: Duration = Duration::from_millis(100);

/// The memory of each group, in bytes.
type Groups = HashMap<u32, u64>;

/// The last measurement of all groups and its time, which all runtimes of this process share, since it reads the state of
/// each process.
static MEASURED: Mutex<Option<(Instant, Groups)>> = Mutex::new(None);

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
        let used = used(group);
        self.measured = Instant::now();
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
    recent(&mut measured, &Instant::now, &measure).get(&group).copied().unwrap_or_default()
}

/// Returns the last measurement, or a new one if that is old.
fn recent<'a>(
    measured: &'a mut Option<(Instant, Groups)>,
    now: &dyn Fn() -> Instant,
    measure: &dyn Fn() -> Groups,
) -> &'a Groups {
    let is_recent = |(at, _): &(Instant, Groups)| now().saturating_duration_since(*at) < MEASURE_EVERY / 2;
    let last = measured.take().filter(is_recent).unwrap_or_else(|| {
        let groups = measure();
        // Of its end: on a large host it may take longer than it is recent.
        (now(), groups)
    });
    &measured.insert(last).1
}

fn measure() -> Groups {
    let mut groups = Groups::new();
    for process in fs::read_dir("/proc").into_iter().flatten().flatten() {
        let read = |name: &str| fs::read_to_string(process.path().join(name)).unwrap_or_default();
        if process.file_name().to_string_lossy().parse::<u32>().is_ok()
            && let Some((group, bytes)) = parse(&read("stat"), &read("status"))
        {
            *groups.entry(group).or_default() += bytes;
        }
    }
    groups
}

/// Returns the group of a process, and its memory without mapped files, in bytes. Kernel threads have none.
fn parse(stat: &str, status: &str) -> Option<(u32, u64)> {
    // The name of the program may contain spaces and parentheses.
    let group = stat.rsplit_once(')')?.1.split_whitespace().nth(2)?.parse().ok()?;
    let kib = |name: &str| -> Option<u64> {
        let line = status.lines().find_map(|line| line.strip_prefix(name))?;
        line.split_whitespace().next()?.parse().ok()
    };
    Some((group, (kib("RssAnon:")? + kib("RssShmem:")?) << 10))
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    #[test]
    fn slow_measurement_is_recent_from_its_end() {
        let (start, waited, count) = (Instant::now(), Cell::new(Duration::ZERO), Cell::new(0));
        let measure = || {
            waited.set(waited.get() + MEASURE_EVERY);
            count.set(count.get() + 1);
            Groups::new()
        };
        let (mut measured, now) = (None, || start + waited.get());
        for expected in [1, 1] {
            recent(&mut measured, &now, &measure);
            assert_eq!(count.get(), expected);
        }
        waited.set(waited.get() + MEASURE_EVERY);
        recent(&mut measured, &now, &measure);
        assert_eq!(count.get(), 2);
    }

    #[test]
    fn memory_is_that_of_the_group_without_mapped_files() {
        let status = "Name:\ta\nVmRSS:\t 107 kB\nRssAnon:\t  70 kB\nRssFile:\t  30 kB\nRssShmem:\t   7 kB\n";
        assert_eq!(parse("7 (a) b) S 1 42 7 0", status), Some((42, 77 << 10)));
        assert_eq!(parse("7 (kernel) S 1 0 7 0", "Name:\tkernel\n"), None);
        assert_eq!(parse("", ""), None);
        let own = rustix::process::getpgrp().as_raw_nonzero().get().cast_unsigned();
        assert!(used(own) > 1 << 20);
        let mut limit = MemoryLimit { bytes: 1 << 20, measured: Instant::now() };
        assert_eq!(limit.exceeded(own), None, "it is measured later");
        limit.measured = Instant::now().checked_sub(MEASURE_EVERY).unwrap();
        let reason = limit.exceeded(own).unwrap();
        assert!(reason.contains("limit of 1 MiB") && reason.contains("`memory`"), "{reason}");
    }
}

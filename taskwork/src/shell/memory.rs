//! The memory that a node may use.

use std::fs;

/// Returns the memory that this process may use, in bytes: that of the machine, or the limit of its control
/// group; 0 if neither can be read.
pub(crate) fn available() -> u64 {
    let machine = fs::read_to_string("/proc/meminfo").ok().and_then(|text| of_machine(&text));
    let limits = ["/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"];
    // Without a limit the file says "max", or more than any machine has.
    let limits = limits.iter().filter_map(|path| fs::read_to_string(path).ok()?.trim().parse().ok());
    limits.chain(machine).min().unwrap_or(0)
}

/// Returns the total memory in bytes, from a text as in `/proc/meminfo`.
fn of_machine(text: &str) -> Option<u64> {
    let total = text.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
    let kib: u64 = total.trim().strip_suffix("kB")?.trim().parse().ok()?;
    kib.checked_mul(1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_total_memory_is_read() {
        assert_eq!(of_machine("MemTotal:        2048 kB\nMemFree: 1 kB\n"), Some(2 << 20));
        for wrong in ["", "MemTotal: many kB", "MemTotal: 3", "MemTotal: 99999999999999999999 kB"] {
            assert_eq!(of_machine(wrong), None, "{wrong}");
        }
        assert!(available() > 0, "the tests run on Linux");
    }
}

//! The memory that a node may use.

use std::{fs, path::PathBuf};

/// Returns the memory that this process may use, in bytes: that of the machine, or the limit of its control
/// group; 0 if neither can be read.
pub(crate) fn available() -> u64 {
    let machine = fs::read_to_string("/proc/meminfo").ok().and_then(|text| of_machine(&text));
    let own = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    // Without a limit the file says "max", or more than any machine has.
    let limits = limits_of(&own).filter_map(|path| fs::read_to_string(path).ok()?.trim().parse().ok());
    limits.chain(machine).min().unwrap_or(0)
}

/// Returns the files that may limit the memory of a process, from a text as in `/proc/self/cgroup`: those of its
/// group and of all groups around it.
fn limits_of(groups: &str) -> impl Iterator<Item = PathBuf> {
    let of = |(prefix, root, file): (&str, &str, &'static str)| {
        let group = groups.lines().find_map(|line| line.split_once(prefix)).map_or("", |(_, path)| path);
        let root = PathBuf::from(root);
        let own = root.join(group.trim_start_matches('/'));
        let around: Vec<PathBuf> =
            own.ancestors().take_while(|path| path.starts_with(&root)).map(|path| path.join(file)).collect();
        around
    };
    let unified = of(("0::", "/sys/fs/cgroup", "memory.max"));
    let earlier = of((":memory:", "/sys/fs/cgroup/memory", "memory.limit_in_bytes"));
    unified.into_iter().chain(earlier)
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
    fn the_limits_of_a_group_are_its_own_and_those_around_it() {
        let files: Vec<PathBuf> = limits_of("0::/system.slice/node.service\n").collect();
        let expected = ["system.slice/node.service/", "system.slice/", ""];
        let expected = expected.map(|group| PathBuf::from(format!("/sys/fs/cgroup/{group}memory.max")));
        assert_eq!(files[..3], expected);
        assert_eq!(limits_of("").next(), Some(PathBuf::from("/sys/fs/cgroup/memory.max")));
    }

    #[test]
    fn the_total_memory_is_read() {
        assert_eq!(of_machine("MemTotal:        2048 kB\nMemFree: 1 kB\n"), Some(2 << 20));
        for wrong in ["", "MemTotal: many kB", "MemTotal: 3", "MemTotal: 99999999999999999999 kB"] {
            assert_eq!(of_machine(wrong), None, "{wrong}");
        }
        assert!(available() > 0, "the tests run on Linux");
    }
}

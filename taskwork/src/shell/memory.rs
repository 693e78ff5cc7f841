//! The memory available to a node.

use std::{
    fs,
    path::{Component, Path, PathBuf},
};

/// Returns the memory available to this process, in bytes: the minimum of the machine's memory and the limits of its
/// control group and all enclosing groups, in cgroup versions 1 and 2; 0 if none of these can be read.
pub fn available_memory() -> u64 {
    least(Path::new("/"))
}

/// Implements [`available_memory`] for the files below a root directory.
fn least(root: &Path) -> u64 {
    let read = |path: &str| fs::read_to_string(root.join(path)).ok();
    let machine = read("proc/meminfo").and_then(|text| of_machine(&text));
    let own = read("proc/self/cgroup").unwrap_or_default();
    // Without a limit the file contains "max", or a number larger than the memory of any machine.
    let limits = limits_of(&own).filter_map(|path| read(&path)?.trim().parse().ok());
    limits.chain(machine).min().unwrap_or(0)
}

/// Returns the files that may limit the memory of a process, from a text like `/proc/self/cgroup`: those of its
/// group and all enclosing groups. The paths are relative to the root directory.
fn limits_of(groups: &str) -> impl Iterator<Item = String> {
    let of = |controller: &str, root: &'static str, file: &'static str| {
        let group = groups.lines().find_map(|line| {
            let mut parts = line.splitn(3, ':').skip(1);
            let is_this = parts.next()?.split(',').any(|name| name == controller);
            is_this.then(|| parts.next()).flatten()
        });
        let own = Path::new(group.unwrap_or("").trim_start_matches('/'));
        // A group outside of the process's namespace has a path with "..".
        let own: PathBuf = own.components().filter(|part| matches!(part, Component::Normal(_))).collect();
        let around: Vec<String> =
            own.ancestors().map(|path| format!("{root}/{}", path.join(file).display())).collect();
        around
    };
    let unified = of("", "sys/fs/cgroup", "memory.max");
    let earlier = of("memory", "sys/fs/cgroup/memory", "memory.limit_in_bytes");
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
    fn limits_of_a_group_include_enclosing_groups() {
        let files: Vec<String> = limits_of("0::/system.slice/node.service\n").collect();
        let expected = ["system.slice/node.service/", "system.slice/", ""];
        assert_eq!(files[..3], expected.map(|group| format!("sys/fs/cgroup/{group}memory.max")));
        assert_eq!(limits_of("").next().as_deref(), Some("sys/fs/cgroup/memory.max"));
    }

    #[test]
    fn least_limit_of_either_version_is_used() {
        let earlier = "sys/fs/cgroup/memory/a/memory.limit_in_bytes";
        for (groups, file) in [
            ("", "sys/fs/cgroup/memory.max"),
            ("0::/a/b\n", "sys/fs/cgroup/a/b/memory.max"),
            ("0::/a/b\n", "sys/fs/cgroup/a/memory.max"),
            ("0::/../../a\n", "sys/fs/cgroup/a/memory.max"),
            ("", "sys/fs/cgroup/memory/memory.limit_in_bytes"),
            ("5:cpu:/x\n4:memory:/a/b\n", earlier),
            ("4:cpu,memory:/a\n0::/\n", earlier),
        ] {
            let folder = tempfile::tempdir().unwrap();
            let write = |path: &str, text: &str| {
                let path = folder.path().join(path);
                fs::create_dir_all(path.parent().unwrap()).unwrap();
                fs::write(path, text).unwrap();
            };
            write("proc/meminfo", "MemTotal:        2048 kB\n");
            write("proc/self/cgroup", groups);
            assert_eq!(least(folder.path()), 2 << 20, "{groups}");
            write(file, "max\n");
            assert_eq!(least(folder.path()), 2 << 20, "{groups}");
            write(file, "65536\n");
            assert_eq!(least(folder.path()), 65_536, "{groups}: {file}");
        }
    }

    #[test]
    fn total_memory_is_read() {
        assert_eq!(of_machine("MemTotal:        2048 kB\nMemFree: 1 kB\n"), Some(2 << 20));
        for wrong in ["", "MemTotal: many kB", "MemTotal: 3", "MemTotal: 99999999999999999999 kB"] {
            assert_eq!(of_machine(wrong), None, "{wrong}");
        }
        assert!(available_memory() > 0, "the tests run on Linux");
    }
}

//! Figures of a node's process and its machine, from the operating system.

use std::{env, fs};

use zk::figures::ProcessNow;

/// Clock ticks per second in `/proc/self/stat`: the same on all Linux systems.
const TICKS_PER_SECOND: u64 = 100;

pub(crate) fn now() -> ProcessNow {
    let read = |path: &str| fs::read_to_string(path).unwrap_or_default();
    ProcessNow {
        resident_bytes: resident(&read("/proc/self/status")),
        cpu_ms: cpu_ms(&read("/proc/self/stat")),
        load: load(&read("/proc/loadavg")),
    }
}

/// The maximum length of a host name, in bytes.
const HOST_BYTES_MAX: usize = 253;

/// Returns the name of the machine; empty if it is not known or invalid.
pub(crate) fn host() -> String {
    let name = fs::read_to_string("/proc/sys/kernel/hostname").or_else(|_| env::var("HOSTNAME"));
    name.ok().filter(|name| is_host(name.trim())).map_or_else(String::new, |name| name.trim().to_owned())
}

fn is_host(name: &str) -> bool {
    name.len() <= HOST_BYTES_MAX && name.bytes().all(|byte| byte.is_ascii_graphic())
}

/// Returns the resident memory in bytes, from a text as in `/proc/self/status`.
fn resident(text: &str) -> Option<u64> {
    let kib = text.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    kib.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()?.checked_mul(1024)
}

/// Returns the processor time in milliseconds, from a text as in `/proc/self/stat`.
fn cpu_ms(text: &str) -> Option<u64> {
    // The name of the program is in parentheses, and may contain any character.
    let (_, after_name) = text.rsplit_once(')')?;
    let mut times = after_name.split_whitespace().skip(11).map(str::parse::<u64>);
    let (user, system) = (times.next()?.ok()?, times.next()?.ok()?);
    user.checked_add(system)?.checked_mul(1000 / TICKS_PER_SECOND)
}

/// Returns the load of the last minute, from a text as in `/proc/loadavg`.
fn load(text: &str) -> Option<f64> {
    text.split_whitespace().next()?.parse().ok().filter(|load: &f64| load.is_finite())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn process_figures_are_parsed() {
        assert_eq!(resident("VmHWM:\t 99 kB\nVmRSS:\t  2048 kB\n"), Some(2 << 20));
        let stat = "7 (a ) b) S 1 7 7 0 -1 4194304 100 0 0 0 150 25 0 0 20 0 3 0 1 2 3";
        assert_eq!(cpu_ms(stat), Some(1_750));
        assert_eq!(load("0.52 0.58 0.59 1/257 7\n"), Some(0.52));
    }

    #[test]
    fn host_name_without_spaces_and_control_characters_is_valid() {
        assert!(is_host("gpu-17.example.org"));
        if let Ok(name) = fs::read_to_string("/proc/sys/kernel/hostname") {
            assert_eq!(host(), name.trim());
        }
        for name in ["gpu 17", "gpu\n", "caf\u{e9}", &"a".repeat(HOST_BYTES_MAX + 1)] {
            assert!(!is_host(name), "{name:?}");
        }
    }

    #[test]
    fn missing_or_invalid_process_figures_are_unknown() {
        for text in ["", "VmRSS: many kB", "7 (a", "7 (a) S 1 2", "VmRSS: 99999999999999999999 kB"] {
            assert_eq!((resident(text), cpu_ms(text)), (None, None), "{text}");
        }
        for text in ["", "inf 1 1", "nan", "VmRSS: 1 kB"] {
            assert_eq!(load(text), None, "{text}");
        }
        let figures = now();
        assert!(
            figures.resident_bytes > Some(0) && figures.cpu_ms.is_some(),
            "the tests run on Linux: {figures:?}"
        );
    }
}

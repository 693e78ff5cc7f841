//! The time and the memory that a process has used, as Linux reports them.

use std::fs;

use rustix::param::clock_ticks_per_second;

use crate::usage::Consumption;

/// Returns the consumption of a process and of its children that have ended; zeros if it is gone.
pub(super) fn of(process: u32) -> Consumption {
    let read = |name: &str| fs::read_to_string(format!("/proc/{process}/{name}")).unwrap_or_default();
    let (stat, status) = (read("stat"), read("status"));
    parse(&stat, &status, clock_ticks_per_second())
}

fn parse(stat: &str, status: &str, ticks_per_second: u64) -> Consumption {
    // The name of the program may contain spaces and parentheses.
    let rest = stat.rsplit_once(')').map_or("", |(_, rest)| rest);
    let ticks: Vec<u64> =
        rest.split_whitespace().skip(11).take(4).filter_map(|ticks| ticks.parse().ok()).collect();
    let [user, system, user_of_children, system_of_children] = ticks[..] else {
        return Consumption::default();
    };
    let us = |ticks: u64| ticks * 1_000_000 / ticks_per_second.max(1);
    let peak_kib = status.lines().find_map(|line| line.strip_prefix("VmHWM:")?.split_whitespace().next());
    let peak_kib: u64 = peak_kib.and_then(|kib| kib.parse().ok()).unwrap_or_default();
    Consumption {
        user_us: us(user + user_of_children),
        system_us: us(system + system_of_children),
        peak_memory_bytes: peak_kib << 10,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_include_those_of_children_and_memory_is_the_peak() {
        let stat = "7 (a) b) S 1 7 7 0 -1 4 5 6 7 8 100 20 30 4 20 0 1 0 99 1000 50";
        let status = "Name:\ta) b\nVmPeak:\t  9000 kB\nVmHWM:\t   123 kB\nVmRSS:\t 7 kB\n";
        let expected = Consumption { user_us: 1_300_000, system_us: 240_000, peak_memory_bytes: 123 * 1024 };
        assert_eq!(parse(stat, status, 100), expected);
        assert_eq!(parse("", "", 100), Consumption::default());
        assert!(of(std::process::id()).peak_memory_bytes > 0);
    }
}

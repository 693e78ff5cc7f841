//! The machine that ran the benchmarks.

use std::{fs, thread};

/// Returns the processor, the number of processors, the memory and the kernel, as far as known.
pub fn describe() -> serde_json::Value {
    let value = |file: &str, key: &str| {
        let text = fs::read_to_string(file).unwrap_or_default();
        let line = text.lines().find_map(|line| line.strip_prefix(key)?.split_once(':').map(|(_, v)| v));
        line.map(|value| value.trim().to_owned())
    };
    serde_json::json!({
        "processor": value("/proc/cpuinfo", "model name"),
        "processors": thread::available_parallelism().map_or(1, usize::from),
        "memory": value("/proc/meminfo", "MemTotal"),
        "kernel": fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default().trim(),
        "version": env!("CARGO_PKG_VERSION"),
    })
}

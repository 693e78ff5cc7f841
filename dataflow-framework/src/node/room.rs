//! The memory limit of a store.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// The environment variable with the limit.
const VARIABLE: &str = "DATAFLOW_STORE";

/// The assumed memory of a machine whose memory is unknown, in bytes.
const MEMORY_BYTES: u64 = 4 << 30;

/// The limit set by the program, in bytes; 0 if none was set.
static SET: AtomicU64 = AtomicU64::new(0);

/// The number of stores that share the memory of the machine.
static SHARING: AtomicU64 = AtomicU64::new(0);

/// Sets the memory limit for the data of a job on each node of this process, in bytes. Nodes that have already joined
/// a job keep their limit.
///
/// Data is counted by its encoded size, so its values may take more memory, such as small numbers that are stored as
/// large ones. Memory that tasks and the program allocate for themselves is not counted, and neither is the output of
/// a running call. Beyond the limit, copies that other nodes have are dropped, and other data is moved to files
/// ([`set_work_dir`](crate::set_work_dir)) and read when it is needed. A call whose inputs exceed the limit fails.
///
/// Without this setting the limit is the environment variable `DATAFLOW_STORE`, such as `4GiB`, or half of the memory
/// of the machine or of its control group. The nodes of a process share that half.
///
/// # Panics
/// If it is 0.
pub fn set_store(bytes: u64) {
    assert!(bytes > 0, "a store of no bytes holds nothing");
    SET.store(bytes, Relaxed);
}

/// The memory limit of a store.
#[derive(Debug)]
pub(crate) enum Room {
    /// This number of bytes.
    Bytes(u64),
    /// An equal share of this number of bytes, which is divided among all stores of this kind.
    Share(u64),
}

impl Room {
    /// Returns the limit of a node of a cluster.
    pub(crate) fn of_node() -> Self {
        match SET.load(Relaxed) {
            0 => {}
            bytes => return Self::Bytes(bytes),
        }
        if let Ok(text) = std::env::var(VARIABLE) {
            match bytes(&text) {
                Ok(bytes) => return Self::Bytes(bytes),
                Err(error) => tracing::warn!("{VARIABLE} is ignored: {error}"),
            }
        }
        SHARING.fetch_add(1, Relaxed);
        Self::Share(memory() / 2)
    }

    /// Returns the current limit, in bytes.
    pub(super) fn now(&self) -> u64 {
        match self {
            Self::Bytes(bytes) => *bytes,
            Self::Share(bytes) => bytes / SHARING.load(Relaxed).max(1),
        }
    }
}

impl Drop for Room {
    fn drop(&mut self) {
        if let Self::Share(_) = self {
            SHARING.fetch_sub(1, Relaxed);
        }
    }
}

/// Returns the memory available to this process, in bytes.
fn memory() -> u64 {
    match taskwork::available_memory() {
        0 => MEMORY_BYTES,
        bytes => bytes,
    }
}

/// Parses a number of bytes, such as `4GiB` or `500 MB`.
///
/// # Errors
/// If it is not a number of bytes, or 0.
pub(crate) fn bytes(text: &str) -> Result<u64, String> {
    const UNITS: [(&str, u64); 9] = [
        ("", 1),
        ("b", 1),
        ("kb", 1_000),
        ("mb", 1_000_000),
        ("gb", 1_000_000_000),
        ("kib", 1 << 10),
        ("mib", 1 << 20),
        ("gib", 1 << 30),
        ("tib", 1 << 40),
    ];
    let wrong = || format!("{text:?} is not a number of bytes such as 4GiB");
    let end = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, unit) = text.split_at(end);
    let unit = unit.trim().to_ascii_lowercase();
    let (_, unit) = UNITS.iter().find(|(name, _)| *name == unit).ok_or_else(wrong)?;
    let bytes = match number.split_once('.') {
        None => number.parse::<u64>().ok().and_then(|number| number.checked_mul(*unit)),
        Some((whole, part)) if part.len() <= 6 => {
            let scale = 10_u64.pow(u32::try_from(part.len()).unwrap_or_default());
            let digits: Option<u64> = format!("{whole}{part}").parse().ok();
            digits.and_then(|digits| digits.checked_mul(*unit)).map(|bytes| bytes / scale)
        }
        Some(_) => None,
    };
    bytes.filter(|bytes| *bytes > 0).ok_or_else(wrong)
}

/// Formats a number of bytes with a unit.
pub(crate) fn shown(bytes: u64) -> String {
    const UNITS: [(&str, u64); 4] = [("TiB", 1 << 40), ("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)];
    match UNITS.iter().find(|(_, unit)| bytes >= *unit) {
        Some((name, unit)) => {
            let tenths = u128::from(bytes) * 10 / u128::from(*unit);
            format!("{}.{} {name}", tenths / 10, tenths % 10)
        }
        None => format!("{bytes} bytes"),
    }
}

#[cfg(test)]
mod tests {
    use super::{bytes, shown};

    #[test]
    fn byte_counts_are_parsed_and_formatted_with_units() {
        for (text, expected) in
            [("1", 1), ("4GiB", 4 << 30), ("500 MB", 500_000_000), ("1.5kib", 1_536), ("0.25 tib", 1 << 38)]
        {
            assert_eq!(bytes(text), Ok(expected));
        }
        for text in ["", "0", "GiB", "-1", "4 Gi", "1e9", "99999999999TiB", "1.2.3MB", "0.0000001GiB"] {
            assert_eq!(bytes(text), Err(format!("{text:?} is not a number of bytes such as 4GiB")));
        }
        assert_eq!([999, 1 << 20, 1_600_000].map(shown), ["999 bytes", "1.0 MiB", "1.5 MiB"]);
    }
}

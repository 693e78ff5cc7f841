//! How much memory a store may take.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// The environment variable that says it.
const VARIABLE: &str = "DATAFLOW_STORE";

/// What is assumed of a machine that does not tell how much memory it has, in bytes.
const MEMORY_BYTES: u64 = 4 << 30;

/// What was set, in bytes; 0 if nothing was.
static SET: AtomicU64 = AtomicU64::new(0);

/// The number of stores that share what the machine has.
static SHARING: AtomicU64 = AtomicU64::new(0);

/// Sets how much memory the data of a job may take on each node of this process, in bytes. Nodes that have begun to work
/// on a job keep to what was set before.
///
/// It is counted by what the data is encoded to, so its values may take more, such as small numbers that are stored as
/// large ones. Not counted are what tasks and the program make for themselves, and what a running call has not returned
/// yet. Beyond the limit, copies that other nodes have are dropped, and all else is moved to files
/// ([`set_work_dir`](crate::set_work_dir)), and read when it is needed. A call that reads more than that at once fails.
///
/// Otherwise it is what the environment variable `DATAFLOW_STORE` says, such as `4GiB`, or half of the memory of the
/// machine, or of its control group, which the nodes of a process share.
///
/// # Panics
/// If it is 0.
pub fn set_store(bytes: u64) {
    assert!(bytes > 0, "a store of no bytes holds nothing");
    SET.store(bytes, Relaxed);
}

/// How much memory a store may take.
#[derive(Debug)]
pub(crate) enum Room {
    /// So many bytes.
    Bytes(u64),
    /// Its share of so many bytes, which all stores of this kind have together.
    Share(u64),
}

impl Room {
    /// Returns that of a node of a cluster.
    pub(crate) fn of_node() -> Self {
        match SET.load(Relaxed) {
            0 => {}
            bytes => return Self::Bytes(bytes),
        }
        if let Ok(text) = std::env::var(VARIABLE) {
            match bytes(&text) {
                Ok(bytes) => return Self::Bytes(bytes),
                Err(error) => tracing::warn!("{VARIABLE} is passed over: {error}"),
            }
        }
        SHARING.fetch_add(1, Relaxed);
        Self::Share(memory() / 2)
    }

    /// Returns how much it is now, in bytes.
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

/// Returns how much memory this process may take, in bytes.
fn memory() -> u64 {
    match taskwork::available_memory() {
        0 => MEMORY_BYTES,
        bytes => bytes,
    }
}

/// Parses a number of bytes, such as `4GiB` or `500 MB`.
///
/// # Errors
/// If it is none, or 0.
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
    let wrong = || format!("{text:?} is no number of bytes such as 4GiB");
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

/// Returns a number of bytes as people read it.
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
    fn numbers_of_bytes_have_units() {
        for (text, expected) in
            [("1", 1), ("4GiB", 4 << 30), ("500 MB", 500_000_000), ("1.5kib", 1_536), ("0.25 tib", 1 << 38)]
        {
            assert_eq!(bytes(text), Ok(expected));
        }
        for text in ["", "0", "GiB", "-1", "4 Gi", "1e9", "99999999999TiB", "1.2.3MB", "0.0000001GiB"] {
            assert_eq!(bytes(text), Err(format!("{text:?} is no number of bytes such as 4GiB")));
        }
        assert_eq!([999, 1 << 20, 1_600_000].map(shown), ["999 bytes", "1.0 MiB", "1.5 MiB"]);
    }
}

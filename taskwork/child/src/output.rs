//! The end of the output of a process, for messages about its failure.

use std::io::{ErrorKind, Read};

/// The maximum part of the output of a process that is shown, in bytes and in lines.
const SHOWN_BYTES_MAX: usize = 8 << 10;
const SHOWN_LINES_MAX: usize = 20;

/// Reads the output of a process to its end, and returns the last part.
pub fn read_tail(mut from: impl Read) -> Vec<u8> {
    let mut tail = Vec::new();
    let mut part = [0; SHOWN_BYTES_MAX];
    loop {
        match from.read(&mut part) {
            Ok(0) => return tail,
            Ok(bytes) => {
                tail.extend_from_slice(&part[..bytes]);
                tail.drain(..tail.len().saturating_sub(SHOWN_BYTES_MAX));
            }
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            // The output does not matter if the process succeeds.
            Err(_) => return tail,
        }
    }
}

/// Formats the last lines of the output of a process.
pub fn shown(output: &[u8]) -> String {
    let output = String::from_utf8_lossy(output);
    let lines: Vec<_> = output.trim_end().lines().collect();
    if lines.is_empty() {
        return "; it has printed nothing".to_owned();
    }
    let last = &lines[lines.len().saturating_sub(SHOWN_LINES_MAX)..];
    format!("; the end of its output:\n{}", last.join("\n"))
}

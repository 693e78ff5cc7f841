//! Records of a cluster: the events of a view as lines of JSON, from which the view can be restored.

use std::io::{self, BufRead, Write};

use thiserror::Error;

use super::{Event, View};

/// The maximum length of a line, in bytes: an event has the content of one znode, of at most 1 MiB.
const LINE_BYTES_MAX: u64 = 8 << 20;

/// Writes events, one on a line.
#[derive(Debug)]
pub struct Recorder<W> {
    to: W,
    bytes: u64,
    bytes_max: u64,
    surplus: u64,
}

/// The reasons for which a record cannot be replayed.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum ReplayError {
    /// It cannot be read.
    #[error("line {line} of the record cannot be read: {source}")]
    Io {
        /// The number of the line, from 1.
        line: u64,
        /// The cause.
        source: io::Error,
    },
    /// A line is no event.
    #[error("line {line} of the record is no event: {reason}")]
    Line {
        /// The number of the line, from 1.
        line: u64,
        /// The parser's error.
        reason: String,
    },
}

impl<W: Write> Recorder<W> {
    /// Creates a recorder that writes at most so many bytes; later events are only counted.
    pub fn new(to: W, bytes_max: u64) -> Self {
        Self { to, bytes: 0, bytes_max, surplus: 0 }
    }

    /// Writes an event; a tick also flushes all previous ones.
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn note(&mut self, event: &Event) -> io::Result<()> {
        let mut line = serde_json::to_vec(event)?;
        line.push(b'\n');
        let bytes = self.bytes.saturating_add(line.len() as u64);
        // Events after a gap would be misinterpreted.
        if bytes > self.bytes_max || self.surplus > 0 {
            self.surplus += 1;
            return Ok(());
        }
        self.bytes = bytes;
        self.to.write_all(&line)?;
        if event.content == super::Content::Tick { self.to.flush() } else { Ok(()) }
    }

    /// Returns the number of events that were not written because of the size limit.
    pub fn surplus(&self) -> u64 {
        self.surplus
    }

    /// Completes the record, and returns the writer.
    ///
    /// # Errors
    /// If the last events cannot be written.
    pub fn finish(mut self) -> io::Result<W> {
        self.to.flush()?;
        Ok(self.to)
    }
}

/// The end of a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use]
pub enum RecordEnd {
    /// A complete line.
    Whole,
    /// An incomplete line, which is skipped: the writer may have been killed.
    Cut,
}

/// Restores the view of a record. An incomplete last line is skipped.
///
/// # Errors
/// If the record cannot be read, or another line is no event.
pub fn replay(from: impl BufRead) -> Result<View, ReplayError> {
    let mut view = View::default();
    read_record(from, |event| view.apply(&event)).map(|_| view)
}

/// Reads the events of a record.
///
/// # Errors
/// If the record cannot be read, or a line other than the last is no event.
pub fn read_record(mut from: impl BufRead, mut take: impl FnMut(Event)) -> Result<RecordEnd, ReplayError> {
    let (mut text, mut line) = (Vec::new(), 0);
    loop {
        line += 1;
        text.clear();
        let read = io::Read::take(&mut from, LINE_BYTES_MAX).read_until(b'\n', &mut text);
        read.map_err(|source| ReplayError::Io { line, source })?;
        let is_whole = text.last() == Some(&b'\n');
        match serde_json::from_slice::<Event>(&text) {
            _ if text.is_empty() => return Ok(RecordEnd::Whole),
            Ok(event) => take(event),
            Err(_) if !is_whole && (text.len() as u64) < LINE_BYTES_MAX => return Ok(RecordEnd::Cut),
            Err(error) => return Err(ReplayError::Line { line, reason: error.to_string() }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::view::Content;

    fn events() -> Vec<Event> {
        let drain = |n: u64| Event::of(n, format!("drain/n{n}"), Content::Data(Vec::new()));
        (1..=9)
            .flat_map(|n| [drain(n), Event::of(n, "members/x", Content::Data(vec![0xff])), Event::tick(n)])
            .collect()
    }

    fn record(bytes_max: u64) -> (Vec<u8>, u64) {
        let mut recorder = Recorder::new(Vec::new(), bytes_max);
        for event in events() {
            recorder.note(&event).unwrap();
        }
        let surplus = recorder.surplus();
        (recorder.finish().unwrap(), surplus)
    }

    #[test]
    fn record_replay_restores_the_view() {
        let mut live = View::default();
        for event in events() {
            live.apply(&event);
        }
        let (written, surplus) = record(u64::MAX);
        assert_eq!(surplus, 0);
        assert_eq!(replay(&written[..]).unwrap().snapshot(), live.snapshot());
    }

    #[test]
    fn record_cut_off_is_read_up_to_its_last_complete_line() {
        let (written, _) = record(u64::MAX);
        assert_eq!(replay(&written[..written.len() - 3]).unwrap().snapshot().seq, 8);
        let end = |bytes: &[u8]| read_record(bytes, drop).unwrap();
        assert_eq!((end(&written), end(&written[..written.len() - 3])), (RecordEnd::Whole, RecordEnd::Cut));
        let broken = [&written[..], b"no event\n", &written[..]].concat();
        let error = replay(&broken[..]).unwrap_err().to_string();
        assert!(error.contains("line 28") && error.contains("no event"), "{error}");
    }

    #[test]
    fn record_size_is_bounded() {
        let (written, surplus) = record(300);
        assert!(written.len() <= 300 && surplus > 0);
        assert!(replay(&written[..]).is_ok());
    }
}

//! Reading text files. Content is checked while it is read, so that files that are not text, or too large,
//! cost neither time nor memory.

use std::{
    fs::{self, File, FileType},
    io::{self, Read},
    path::Path,
};

use super::{ReadError, lines};

/// The default maximum size of a file, in bytes.
pub const FILE_BYTES_MAX: u64 = 64 << 20;

/// The number of bytes read and checked at a time.
const CHUNK_BYTES: usize = 64 << 10;

/// Reads the text of a file of at most `bytes_max` bytes.
///
/// # Errors
/// Fails if the file cannot be read, is not a regular file, is larger, or is not text: see [`text_from`].
pub fn text_of(file: &Path, bytes_max: u64) -> Result<String, ReadError> {
    let name = file.display().to_string();
    let unreadable = |error| unreadable(&name, &error);
    let found = fs::metadata(file).map_err(unreadable)?;
    // Check before opening: opening a pipe would wait until a process writes to it.
    if !found.is_file() {
        let what = format!("found {}; expected a regular file", kind(found.file_type()));
        return Err(ReadError::of_file(&name, what));
    }
    if found.len() > bytes_max {
        return Err(too_large(&name, bytes_max));
    }
    text_from(&name, File::open(file).map_err(unreadable)?, bytes_max)
}

/// Reads a text of at most `bytes_max` bytes from a reader; `file` is its name in messages.
///
/// # Errors
/// Fails if the text cannot be read, is longer, is not UTF-8, or contains control characters; the error names
/// the line of the first one. Nothing is read beyond that.
pub fn text_from(file: &str, reader: impl Read, bytes_max: u64) -> Result<String, ReadError> {
    let mut reader = reader.take(bytes_max.saturating_add(1));
    let (mut text, mut chunk) = (String::new(), vec![0; CHUNK_BYTES]);
    // The number of bytes left over from the previous chunk: the start of a character.
    let mut left = 0;
    loop {
        let read = match reader.read(&mut chunk[left..]) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            read => read.map_err(|error| unreadable(file, &error))?,
        };
        let bytes = &chunk[..left + read];
        let (sound, is_cut) = match std::str::from_utf8(bytes) {
            Ok(sound) => (sound, false),
            Err(error) => {
                let sound = std::str::from_utf8(&bytes[..error.valid_up_to()]).unwrap_or_default();
                (sound, error.error_len().is_some() || read == 0)
            }
        };
        if let Some(place) = sound.find(is_no_text) {
            let found = format!("{:?}, which is no text", &sound[place..][..1]);
            text.push_str(&sound[..place]);
            return Err(ReadError::at(file, last_line(&text), &found, "a text file"));
        }
        text.push_str(sound);
        if is_cut {
            let line = last_line(&text);
            let found = "bytes that are no text in UTF-8";
            let expected = "a text file (for one in Latin-1: iconv -f latin1 -t utf-8)";
            return Err(ReadError::at(file, line, found, expected));
        }
        if text.len() as u64 > bytes_max {
            return Err(too_large(file, bytes_max));
        }
        if read == 0 {
            return Ok(text);
        }
        let (used, filled) = (sound.len(), bytes.len());
        chunk.copy_within(used..filled, 0);
        left = filled - used;
    }
}

/// Returns the number of the line at the end of a text, from 1.
fn last_line(text: &str) -> usize {
    // An empty last line has no character yet.
    lines(&format!("{text}x")).count()
}

/// Returns whether this is a control character other than a line or page end, a tab, or the DOS end-of-file
/// mark.
fn is_no_text(c: char) -> bool {
    c.is_ascii_control() && !matches!(c, '\n' | '\r' | '\t' | '\x0c' | '\x1a')
}

fn unreadable(file: &str, error: &io::Error) -> ReadError {
    ReadError::of_file(file, format!("the file cannot be read: {error}"))
}

fn too_large(file: &str, bytes_max: u64) -> ReadError {
    let most = if bytes_max.is_multiple_of(1 << 20) {
        format!("{} MiB", bytes_max >> 20)
    } else {
        format!("{bytes_max} bytes")
    };
    ReadError::of_file(file, format!("found more than {most}; expected at most that of a file of this kind"))
}

#[cfg(unix)]
fn kind(found: FileType) -> &'static str {
    use std::os::unix::fs::FileTypeExt as _;
    match found {
        _ if found.is_dir() => "a folder",
        _ if found.is_fifo() => "a pipe",
        _ if found.is_socket() => "a socket",
        _ => "a device",
    }
}

#[cfg(not(unix))]
fn kind(found: FileType) -> &'static str {
    if found.is_dir() { "a folder" } else { "something else" }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Returns its bytes in pieces, and counts them.
    struct Pieces<'a> {
        bytes: &'a [u8],
        piece: usize,
        given: usize,
    }

    impl Read for Pieces<'_> {
        fn read(&mut self, to: &mut [u8]) -> io::Result<usize> {
            let count = self.piece.min(to.len()).min(self.bytes.len());
            let (now, rest) = self.bytes.split_at(count);
            to[..count].copy_from_slice(now);
            (self.bytes, self.given) = (rest, self.given + count);
            Ok(count)
        }
    }

    #[test]
    fn endless_file_is_read_only_until_judged() {
        let endless = io::repeat(0);
        let error = text_from("f", endless, u64::MAX).unwrap_err().to_string();
        assert_eq!(error, "f:1: found \"\\0\", which is no text; expected a text file");
        let error = text_from("f", io::repeat(b'1'), 3 << 20).unwrap_err().to_string();
        assert_eq!(error, "f: found more than 3 MiB; expected at most that of a file of this kind");
        let error = text_from("f", io::repeat(b'1'), 10).unwrap_err().to_string();
        assert!(error.contains("more than 10 bytes"), "{error}");
        assert_eq!(text_from("f", io::repeat(b'1').take(10), 10).unwrap(), "1111111111");
    }

    #[test]
    fn reading_stops_at_first_wrong_chunk() {
        let bytes = [&b"fine\nfine\n"[..], &[0xff], &vec![b'x'; 10 * CHUNK_BYTES]].concat();
        let mut pieces = Pieces { bytes: &bytes, piece: usize::MAX, given: 0 };
        let error = text_from("f", &mut pieces, u64::MAX).unwrap_err().to_string();
        assert!(error.starts_with("f:3: found bytes that are no text in UTF-8"), "{error}");
        assert!(pieces.given <= CHUNK_BYTES, "{} bytes were read", pieces.given);
    }

    proptest! {
        #[test]
        fn chunked_read_equals_whole_file(
            text in "[a-zé€𝄞 \n]{0,40}",
            more: Vec<u8>,
            piece in 1_usize..7,
        ) {
            let read = |bytes: &[u8]| text_from("f", Pieces { bytes, piece, given: 0 }, u64::MAX);
            prop_assert_eq!(read(text.as_bytes()).ok(), Some(text.clone()));
            let bytes = [text.as_bytes(), &more].concat();
            let sound = std::str::from_utf8(&bytes).ok().filter(|text| !text.contains(is_no_text));
            prop_assert_eq!(read(&bytes).ok(), sound.map(str::to_owned));
        }
    }
}

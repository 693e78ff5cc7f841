//! Frames of bytes.

use std::io::{self, ErrorKind, Read};

use thiserror::Error;

/// The maximum size of a frame after its first length, in bytes.
pub(crate) const FRAME_BYTES_MAX: usize = 64 << 20;

/// The size of a length, in bytes.
const LENGTH_BYTES: usize = 4;

/// A message as JSON, with bytes that it refers to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Frame {
    pub(crate) json: String,
    pub(crate) bytes: Vec<u8>,
}

/// The reasons for which a frame cannot be written or read.
#[derive(Debug, Error)]
#[non_exhaustive]
pub(crate) enum FrameError {
    #[error("a frame of {bytes} bytes exceeds the limit of {FRAME_BYTES_MAX}")]
    TooLong { bytes: u64 },
    #[error("a frame of {bytes} bytes cannot contain JSON of {json_bytes} bytes")]
    Lengths { bytes: usize, json_bytes: usize },
    #[error("the stream ended {missing} bytes before the end of a frame")]
    Truncated { missing: usize },
    #[error("the JSON of a frame is not UTF-8")]
    NotUtf8,
    #[error("the stream cannot be read: {0}")]
    Io(#[from] io::Error),
}

impl Frame {
    /// Creates a frame without bytes.
    pub(crate) fn of_json(json: String) -> Self {
        Self { json, bytes: Vec::new() }
    }

    pub(crate) fn encode(&self) -> Result<Vec<u8>, FrameError> {
        let length = LENGTH_BYTES + self.json.len() + self.bytes.len();
        let too_long = || FrameError::TooLong { bytes: length as u64 };
        let is_short = length <= FRAME_BYTES_MAX;
        let whole = u32::try_from(length).ok().filter(|_| is_short).ok_or_else(too_long)?;
        let json = u32::try_from(self.json.len()).map_err(|_| too_long())?;
        let mut encoded = Vec::with_capacity(LENGTH_BYTES + length);
        encoded.extend(whole.to_le_bytes());
        encoded.extend(json.to_le_bytes());
        encoded.extend(self.json.as_bytes());
        encoded.extend(&self.bytes);
        Ok(encoded)
    }
}

/// Reads a frame; `None` at the end of the stream.
pub(crate) fn read_frame(from: &mut impl Read) -> Result<Option<Frame>, FrameError> {
    let Some(length) = read_length(from)? else { return Ok(None) };
    if length > FRAME_BYTES_MAX {
        return Err(FrameError::TooLong { bytes: length as u64 });
    }
    // Grows with the data, so that a wrong length allocates nothing.
    let mut content = Vec::new();
    let read = from.take(length as u64).read_to_end(&mut content)?;
    if read < length {
        return Err(FrameError::Truncated { missing: length - read });
    }
    let lengths = |json_bytes| FrameError::Lengths { bytes: length, json_bytes };
    let (head, content) = content.split_first_chunk::<LENGTH_BYTES>().ok_or_else(|| lengths(0))?;
    let json_bytes = u32::from_le_bytes(*head) as usize;
    let (json, bytes) = content.split_at_checked(json_bytes).ok_or_else(|| lengths(json_bytes))?;
    let json = std::str::from_utf8(json).map_err(|_| FrameError::NotUtf8)?;
    Ok(Some(Frame { json: json.to_owned(), bytes: bytes.to_vec() }))
}

/// Reads the length of a frame; `None` at the end of the stream.
fn read_length(from: &mut impl Read) -> Result<Option<usize>, FrameError> {
    let (mut head, mut filled) = ([0; LENGTH_BYTES], 0);
    while filled < LENGTH_BYTES {
        match from.read(&mut head[filled..]) {
            Ok(0) if filled == 0 => return Ok(None),
            Ok(0) => return Err(FrameError::Truncated { missing: LENGTH_BYTES - filled }),
            Ok(bytes) => filled += bytes,
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(Some(u32::from_le_bytes(head) as usize))
}

#[cfg(test)]
mod tests {
    use proptest::{collection::vec, prelude::*};

    use super::*;

    fn frame(json: &str, bytes: &[u8]) -> Frame {
        Frame { json: json.to_owned(), bytes: bytes.to_vec() }
    }

    proptest! {
        #[test]
        fn frames_round_trip(frames in vec((".*", vec(any::<u8>(), 0..50)), 0..5)) {
            let frames: Vec<Frame> = frames.iter().map(|(json, bytes)| frame(json, bytes)).collect();
            let encoded: Vec<u8> = frames.iter().flat_map(|frame| frame.encode().unwrap()).collect();
            let mut from = &encoded[..];
            for frame in &frames {
                let read = read_frame(&mut from).unwrap();
                prop_assert_eq!(read.as_ref(), Some(frame));
            }
            prop_assert!(read_frame(&mut from).unwrap().is_none());
        }

        #[test]
        fn random_bytes_are_read_or_refused(bytes in vec(any::<u8>(), 0..100)) {
            let mut from = &bytes[..];
            while let Ok(Some(_)) = read_frame(&mut from) {}
        }
    }

    #[test]
    fn frame_cut_at_each_byte_is_truncated() {
        let encoded = frame(r#"{"type":"ready"}"#, b"data").encode().unwrap();
        assert!(read_frame(&mut &encoded[..0]).unwrap().is_none());
        for end in 1..encoded.len() {
            let refused = read_frame(&mut &encoded[..end]).unwrap_err();
            let missing = if end < LENGTH_BYTES { LENGTH_BYTES - end } else { encoded.len() - end };
            assert!(
                matches!(refused, FrameError::Truncated { missing: it } if it == missing),
                "{end}: {refused}"
            );
        }
    }

    #[test]
    fn wrong_lengths_are_refused_before_data_is_read() {
        let of = |whole: u32, json: u32, rest: &[u8]| {
            let bytes = [&whole.to_le_bytes()[..], &json.to_le_bytes(), rest].concat();
            read_frame(&mut &bytes[..]).unwrap_err()
        };
        assert!(matches!(of(u32::MAX, 0, b""), FrameError::TooLong { bytes: 0xffff_ffff }));
        assert!(matches!(of(6, 3, b"{}"), FrameError::Lengths { bytes: 6, json_bytes: 3 }));
        assert!(matches!(of(2, 0, b""), FrameError::Lengths { bytes: 2, .. }));
        assert!(matches!(of(6, 2, &[0xff, 0xff]), FrameError::NotUtf8));
        let huge = frame("", &vec![0; FRAME_BYTES_MAX]);
        assert!(matches!(huge.encode(), Err(FrameError::TooLong { .. })));
    }
}

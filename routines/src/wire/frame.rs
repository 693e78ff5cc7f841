//! Frames of bytes.

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

/// The reasons for which a frame cannot be written or is refused.
#[derive(Debug, Error)]
#[non_exhaustive]
pub(crate) enum FrameError {
    #[error("a frame of {bytes} bytes exceeds the limit of {FRAME_BYTES_MAX}")]
    TooLong { bytes: u64 },
    #[error("a frame of {bytes} bytes cannot contain JSON of {json_bytes} bytes")]
    Lengths { bytes: usize, json_bytes: usize },
    #[error("the JSON of a frame is not UTF-8")]
    NotUtf8,
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

/// The received bytes of frames.
#[derive(Debug, Default)]
pub(crate) struct Frames {
    bytes: Vec<u8>,
    /// The number of bytes of frames that were taken.
    taken: usize,
}

impl Frames {
    pub(crate) fn extend(&mut self, bytes: &[u8]) {
        self.bytes.extend(bytes);
    }

    /// Takes the next frame, if all of it was received.
    pub(crate) fn next(&mut self) -> Result<Option<Frame>, FrameError> {
        let rest = &self.bytes[self.taken..];
        let Some((head, rest)) = rest.split_first_chunk::<LENGTH_BYTES>() else {
            self.drop_taken();
            return Ok(None);
        };
        let length = u32::from_le_bytes(*head) as usize;
        if length > FRAME_BYTES_MAX {
            return Err(FrameError::TooLong { bytes: length as u64 });
        }
        let Some(content) = rest.get(..length) else {
            // Fewer bytes are copied than were taken since the last copy.
            if self.taken > self.bytes.len() / 2 {
                self.drop_taken();
            }
            return Ok(None);
        };
        let lengths = |json_bytes| FrameError::Lengths { bytes: length, json_bytes };
        let (head, content) = content.split_first_chunk::<LENGTH_BYTES>().ok_or_else(|| lengths(0))?;
        let json_bytes = u32::from_le_bytes(*head) as usize;
        let (json, bytes) = content.split_at_checked(json_bytes).ok_or_else(|| lengths(json_bytes))?;
        let json = std::str::from_utf8(json).map_err(|_| FrameError::NotUtf8)?;
        let frame = Frame { json: json.to_owned(), bytes: bytes.to_vec() };
        self.taken += LENGTH_BYTES + length;
        Ok(Some(frame))
    }

    /// Drops the bytes of frames that were taken, with the capacity of a large one.
    fn drop_taken(&mut self) {
        self.bytes = self.bytes.split_off(self.taken);
        self.taken = 0;
    }
}

#[cfg(test)]
mod tests {
    use proptest::{collection::vec, prelude::*};

    use super::*;

    fn frame(json: &str, bytes: &[u8]) -> Frame {
        Frame { json: json.to_owned(), bytes: bytes.to_vec() }
    }

    fn received(bytes: &[u8]) -> Frames {
        Frames { bytes: bytes.to_vec(), taken: 0 }
    }

    proptest! {
        #[test]
        fn frames_round_trip_in_parts_of_any_size(
            frames in vec((".*", vec(any::<u8>(), 0..50)), 0..5),
            part in 1..200_usize,
        ) {
            let frames: Vec<Frame> = frames.iter().map(|(json, bytes)| frame(json, bytes)).collect();
            let encoded: Vec<u8> = frames.iter().flat_map(|frame| frame.encode().unwrap()).collect();
            let (mut read, mut found) = (Frames::default(), Vec::new());
            for part in encoded.chunks(part) {
                read.extend(part);
                while let Some(frame) = read.next().unwrap() {
                    found.push(frame);
                }
            }
            prop_assert_eq!(found, frames);
            prop_assert!(read.bytes.is_empty());
        }

        #[test]
        fn random_bytes_are_read_or_refused(bytes in vec(any::<u8>(), 0..100)) {
            let mut from = received(&bytes);
            while let Ok(Some(_)) = from.next() {}
        }
    }

    #[test]
    fn frame_cut_at_each_byte_is_read_with_its_rest() {
        let whole = frame(r#"{"type":"ready"}"#, b"data");
        let encoded = whole.encode().unwrap();
        for end in 0..encoded.len() {
            let mut from = received(&encoded[..end]);
            assert!(from.next().unwrap().is_none(), "{end}");
            from.extend(&encoded[end..]);
            assert_eq!(from.next().unwrap().as_ref(), Some(&whole), "{end}");
        }
    }

    #[test]
    fn reads_that_end_inside_frames_do_not_accumulate_taken_bytes() {
        let encoded = frame("{}", &[0; 90]).encode().unwrap();
        let (head, tail) = encoded.split_at(encoded.len() / 2);
        let mut read = received(head);
        for _ in 0..100 {
            read.extend(tail);
            read.extend(head);
            assert!(read.next().unwrap().is_some() && read.next().unwrap().is_none());
            assert!(read.bytes.len() <= 2 * encoded.len(), "{}", read.bytes.len());
        }
    }

    #[test]
    fn wrong_lengths_are_refused_before_data_is_read() {
        let of = |whole: u32, json: u32, rest: &[u8]| {
            let bytes = [&whole.to_le_bytes()[..], &json.to_le_bytes(), rest].concat();
            received(&bytes).next().unwrap_err()
        };
        assert!(matches!(of(u32::MAX, 0, b""), FrameError::TooLong { bytes: 0xffff_ffff }));
        assert!(matches!(of(6, 3, b"{}"), FrameError::Lengths { bytes: 6, json_bytes: 3 }));
        assert!(matches!(of(2, 0, b""), FrameError::Lengths { bytes: 2, .. }));
        assert!(matches!(of(6, 2, &[0xff, 0xff]), FrameError::NotUtf8));
        let huge = frame("", &vec![0; FRAME_BYTES_MAX]);
        assert!(matches!(huge.encode(), Err(FrameError::TooLong { .. })));
    }
}

//! Encodes values that may be large, such as the shared data of a job, in pieces: they are stored, sent and decoded
//! without one contiguous buffer. The format is that of [`codec`](super::codec).

use bincode::{
    config::{Configuration, Limit, LittleEndian, Varint, standard},
    de::read::Reader,
    enc::write::Writer,
};
use bytes::{Bytes, BytesMut};
use serde::{Serialize, de::DeserializeOwned};

use super::codec::{DecodeError, EncodeError, malformed};

/// The maximum size of a large value, in bytes.
pub(crate) const LARGE_BYTES_MAX: usize = 8 << 30;

/// The size of its pieces, except the last, in bytes.
const PIECE_BYTES: usize = 1 << 20;

/// The maximum memory that a decoded large value may claim, in bytes; see [`codec`](super::codec).
const CLAIMED_BYTES_MAX: usize = 16 * LARGE_BYTES_MAX;

type Format = Configuration<LittleEndian, Varint, Limit<CLAIMED_BYTES_MAX>>;

fn format() -> Format {
    standard().with_limit::<CLAIMED_BYTES_MAX>()
}

/// Encodes a value in pieces.
///
/// # Errors
/// If the value's `Serialize` returns an error, or it is larger than [`LARGE_BYTES_MAX`].
pub(crate) fn encode<T: Serialize + ?Sized>(value: &T) -> Result<Vec<Bytes>, EncodeError> {
    encode_up_to(value, LARGE_BYTES_MAX)
}

fn encode_up_to<T: Serialize + ?Sized>(value: &T, limit: usize) -> Result<Vec<Bytes>, EncodeError> {
    let mut written = Pieces { full: Vec::new(), last: BytesMut::new(), bytes: 0, limit };
    bincode::serde::encode_into_writer(value, &mut written, format())
        .map_err(|refused| EncodeError::Refused { reason: refused.to_string() })?;
    if written.bytes > limit {
        return Err(EncodeError::TooLarge { bytes: written.bytes, limit });
    }
    if !written.last.is_empty() {
        written.full.push(written.last.freeze());
    }
    Ok(written.full)
}

/// Decodes a value from exactly the bytes of some pieces.
///
/// # Errors
/// If the bytes do not encode such a value, are more than [`LARGE_BYTES_MAX`], claim lengths beyond what they can
/// hold, or continue after the value.
pub(crate) fn decode<T: DeserializeOwned>(pieces: &[Bytes]) -> Result<T, DecodeError> {
    let bytes = pieces.iter().map(Bytes::len).sum();
    if bytes > LARGE_BYTES_MAX {
        return Err(DecodeError::TooLarge { bytes, limit: LARGE_BYTES_MAX });
    }
    let mut read = Pieced { pieces, passed: 0, left: bytes };
    let value = bincode::serde::decode_from_reader(&mut read, format())
        .map_err(|wrong| malformed::<T>(bytes, &wrong))?;
    match read.left {
        0 => Ok(value),
        left => Err(DecodeError::Trailing { bytes, left }),
    }
}

/// Writes pieces up to a limit, and only counts the bytes beyond it, so that an error can report the size.
struct Pieces {
    full: Vec<Bytes>,
    /// The current piece.
    last: BytesMut,
    bytes: usize,
    limit: usize,
}

impl Writer for Pieces {
    fn write(&mut self, mut bytes: &[u8]) -> Result<(), bincode::error::EncodeError> {
        self.bytes += bytes.len();
        if self.bytes > self.limit {
            (self.full, self.last) = (Vec::new(), BytesMut::new());
            return Ok(());
        }
        while !bytes.is_empty() {
            let fits = bytes.len().min(PIECE_BYTES - self.last.len());
            self.last.extend_from_slice(&bytes[..fits]);
            bytes = &bytes[fits..];
            if self.last.len() == PIECE_BYTES {
                self.full.push(std::mem::take(&mut self.last).freeze());
            }
        }
        Ok(())
    }
}

/// Reads pieces one after another.
struct Pieced<'a> {
    pieces: &'a [Bytes],
    /// The bytes of the first piece that were read.
    passed: usize,
    /// The bytes that were not read.
    left: usize,
}

impl Reader for Pieced<'_> {
    fn read(&mut self, mut bytes: &mut [u8]) -> Result<(), bincode::error::DecodeError> {
        if bytes.len() > self.left {
            return Err(bincode::error::DecodeError::UnexpectedEnd { additional: bytes.len() - self.left });
        }
        self.left -= bytes.len();
        while !bytes.is_empty() {
            let piece = &self.pieces[0][self.passed..];
            let fits = bytes.len().min(piece.len());
            bytes[..fits].copy_from_slice(&piece[..fits]);
            bytes = &mut bytes[fits..];
            self.passed += fits;
            if self.passed == self.pieces[0].len() {
                (self.pieces, self.passed) = (&self.pieces[1..], 0);
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::{super::codec, *};

    fn bytes_of(pieces: &[Bytes]) -> Vec<u8> {
        pieces.concat()
    }

    proptest! {
        #[test]
        fn large_value_round_trips_in_any_pieces(
            value: (u64, String, Vec<Option<i16>>),
            cuts: Vec<prop::sample::Index>,
        ) {
            let whole = codec::encode(&value).unwrap();
            prop_assert_eq!(&bytes_of(&encode(&value).unwrap()), &whole);
            let mut at: Vec<usize> = cuts.iter().map(|cut| cut.index(whole.len() + 1)).collect();
            at.extend([0, whole.len()]);
            at.sort_unstable();
            let pieces: Vec<Bytes> = at.windows(2).map(|at| Bytes::copy_from_slice(&whole[at[0]..at[1]])).collect();
            prop_assert_eq!(decode::<(u64, String, Vec<Option<i16>>)>(&pieces).unwrap(), value);
        }

        #[test]
        fn garbage_never_panics(pieces: Vec<Vec<u8>>) {
            let pieces: Vec<Bytes> = pieces.into_iter().map(Bytes::from).collect();
            let _ = decode::<(u64, String, Vec<Option<i16>>)>(&pieces);
        }
    }

    #[test]
    fn large_value_is_encoded_in_pieces_of_equal_size() {
        let value = "x".repeat(3 * PIECE_BYTES);
        let pieces = encode(&value).unwrap();
        let sizes: Vec<usize> = pieces.iter().map(Bytes::len).collect();
        assert_eq!(sizes, [PIECE_BYTES, PIECE_BYTES, PIECE_BYTES, 5]);
        assert!(decode::<String>(&pieces).unwrap() == value);
    }

    #[test]
    fn value_beyond_the_limit_is_refused_with_its_size() {
        let refused = encode_up_to(&"x".repeat(100), 50).unwrap_err();
        assert_eq!(refused.to_string(), "101 bytes are more than the limit of 50 bytes");
    }

    #[test]
    fn huge_length_is_refused_before_allocation() {
        let claims_2_pow_60_elements = Bytes::from_static(&[253, 0, 0, 0, 0, 0, 0, 0, 16]);
        assert!(decode::<Vec<u64>>(&[claims_2_pow_60_elements]).is_err());
    }

    #[test]
    fn surplus_and_missing_bytes_are_errors() {
        let pieces = |bytes: &'static [u8]| [Bytes::from_static(bytes)];
        assert!(matches!(decode::<u32>(&pieces(&[7, 0])), Err(DecodeError::Trailing { bytes: 2, left: 1 })));
        assert!(matches!(
            decode::<String>(&pieces(&[7, b'a'])),
            Err(DecodeError::Malformed { bytes: 2, .. })
        ));
        assert!(matches!(decode::<u32>(&[]), Err(DecodeError::Malformed { bytes: 0, .. })));
    }
}

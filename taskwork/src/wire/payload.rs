//! A message as bytes to be sent.

use bytes::Bytes;

/// The bytes of a message in pieces that may be shared: a message that is sent again, such as an
/// unacknowledged grant, is encoded again each time, but the tasks in it are not copied.
#[derive(Debug, Clone, Default)]
pub(crate) struct Payload {
    pieces: Vec<Bytes>,
    bytes: usize,
}

impl Payload {
    /// Returns its size in bytes.
    pub(crate) fn len(&self) -> usize {
        self.bytes
    }

    /// Returns its bytes in order, in slices of at most `bytes_max`, without copying.
    pub(crate) fn slices(&self, bytes_max: usize) -> impl Iterator<Item = Bytes> + '_ {
        self.pieces.iter().flat_map(move |piece| {
            let starts = (0..piece.len()).step_by(bytes_max);
            starts.map(move |start| piece.slice(start..piece.len().min(start + bytes_max)))
        })
    }

    /// Returns a copy in one piece.
    pub(crate) fn to_vec(&self) -> Vec<u8> {
        self.pieces.concat()
    }
}

impl From<Vec<Bytes>> for Payload {
    fn from(pieces: Vec<Bytes>) -> Self {
        let bytes = pieces.iter().map(Bytes::len).sum();
        Self { pieces, bytes }
    }
}

impl From<Vec<u8>> for Payload {
    fn from(bytes: Vec<u8>) -> Self {
        Self::from(vec![Bytes::from(bytes)])
    }
}

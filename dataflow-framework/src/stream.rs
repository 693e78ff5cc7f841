//! The encoding of messages and versions in the pipes between a parent and its child, and in files.

use std::io::{self, ErrorKind, Read, Write};

use serde::{Serialize, de::DeserializeOwned};

use crate::{
    encoding::{decode, encode},
    failure::Failed,
    spilled::{LARGE_BYTES_MIN, Spilling},
    value::Value,
};

/// The maximum number of bytes that are sent at a time.
const PART_BYTES: usize = 1 << 20;

/// The maximum size of a message, in bytes. A call has up to 64 KiB of arguments by value, and may read 10,000
/// versions or more.
const MESSAGE_BYTES_MAX: u64 = 64 << 20;

/// The failure of a transfer.
#[derive(Debug)]
pub(crate) enum Broken {
    /// The other process is gone, or has sent invalid data.
    Pipe(io::Error),
    /// The version cannot be read or stored here.
    Here(Failed),
}

impl From<io::Error> for Broken {
    fn from(error: io::Error) -> Self {
        Self::Pipe(error)
    }
}

pub(crate) fn send<T: Serialize>(to: &mut impl Write, message: &T) -> Result<(), Broken> {
    let bytes = encode(message).map_err(Broken::Here)?;
    to.write_all(&(bytes.len() as u64).to_le_bytes())?;
    to.write_all(&bytes)?;
    Ok(())
}

pub(crate) fn receive<T: DeserializeOwned>(from: &mut impl Read) -> Result<T, Broken> {
    let length = length(from)?;
    if length > MESSAGE_BYTES_MAX {
        return Err(wrong("a message is too large"));
    }
    let mut bytes = Vec::new();
    from.take(length).read_to_end(&mut bytes)?;
    decode(&bytes).map_err(|failed| wrong(&failed.reason))
}

pub(crate) fn send_value(to: &mut impl Write, value: &Value) -> Result<(), Broken> {
    if value.size() >= LARGE_BYTES_MIN && !value.is_file() {
        value.spill().map_err(Broken::Here)?;
    }
    let (bytes, mut part) = value.part(0, PART_BYTES).map_err(Broken::Here)?;
    to.write_all(&bytes.to_le_bytes())?;
    let mut sent = 0;
    loop {
        to.write_all(&part)?;
        sent += part.len() as u64;
        if sent >= bytes {
            break;
        }
        let (_, next) = value.part(sent, PART_BYTES).map_err(Broken::Here)?;
        if next.is_empty() {
            return Err(Broken::Here(Failed::of_content("a version became smaller while it was read")));
        }
        part = next;
    }
    value.forget_encoded();
    Ok(())
}

pub(crate) fn receive_value(from: &mut impl Read) -> Result<Value, Broken> {
    let mut left = length(from)?;
    if left < LARGE_BYTES_MIN {
        let mut bytes = Vec::new();
        let read = from.take(left).read_to_end(&mut bytes)?;
        let is_whole = read as u64 == left;
        return if is_whole { Ok(Value::from_encoded(bytes)) } else { Err(wrong("a version is incomplete")) };
    }
    let of_node = |error: io::Error| Broken::Here(Failed::of_node(error));
    let mut spilling = Spilling::new().map_err(of_node)?;
    let mut part = vec![0; PART_BYTES];
    while left > 0 {
        let next = usize::try_from(left).unwrap_or(PART_BYTES).min(PART_BYTES);
        from.read_exact(&mut part[..next])?;
        spilling.add(&part[..next]).map_err(of_node)?;
        left -= next as u64;
    }
    spilling.end().map(Value::from_spilled).map_err(of_node)
}

fn length(from: &mut impl Read) -> io::Result<u64> {
    let mut length = [0; 8];
    from.read_exact(&mut length)?;
    Ok(u64::from_le_bytes(length))
}

fn wrong(what: &str) -> Broken {
    Broken::Pipe(io::Error::new(ErrorKind::InvalidData, what))
}

#[cfg(test)]
mod tests {
    use super::{Broken, receive, receive_value, send, send_value};
    use crate::value::Value;

    #[test]
    fn messages_and_versions_round_trip_through_pipe() {
        let mut pipe = Vec::new();
        let large: Vec<u64> = (0..3 << 20).map(|number| number << 40).collect();
        send(&mut pipe, &("a message", 7_u8)).expect("there is room");
        for value in [Value::new(vec![1_u64, 2]), Value::new(large.clone()), Value::new(Vec::<u64>::new())] {
            send_value(&mut pipe, &value).expect("there is room");
        }
        let mut rest = &pipe[..];
        assert_eq!(receive::<(String, u8)>(&mut rest).expect("it was sent"), ("a message".to_owned(), 7));
        for expected in [vec![1, 2], large, Vec::new()] {
            let value = receive_value(&mut rest).expect("it was sent");
            assert_eq!(*value.read::<Vec<u64>>().expect("it is one"), expected);
        }
        assert!(rest.is_empty());
    }

    #[test]
    fn truncated_or_invalid_data_is_detected() {
        let mut pipe = Vec::new();
        send_value(&mut pipe, &Value::new("text".to_owned())).expect("there is room");
        for end in 0..pipe.len() {
            assert!(matches!(receive_value(&mut &pipe[..end]), Err(Broken::Pipe(_))));
        }
        assert!(matches!(receive::<u64>(&mut &[0xff; 20][..]), Err(Broken::Pipe(_))));
    }
}

//! The format of an entry: a mark with its version, the key and the contents of the outputs, and their encodings.

use std::io::{self, BufReader, BufWriter, ErrorKind, Read, Write};

use serde::{Deserialize, Serialize};

use super::key::{FORMAT, Key};
use crate::{
    failure::Failed,
    stream::{Broken, receive, receive_value, send, send_value},
    value::{Identity, Value},
};

/// The first bytes of every entry.
const MARK: &[u8] = b"dataflow cache entry\n";

#[derive(Serialize, Deserialize)]
struct Header {
    format: u32,
    key: Key,
    outputs: Vec<Identity>,
}

/// Writes an entry.
pub(super) fn write(to: impl Write, key: Key, outputs: &[&Value]) -> Result<(), Broken> {
    let mut to = BufWriter::new(to);
    let identities: Option<_> = outputs.iter().map(|output| output.identity()).collect();
    let outputs_of = identities.ok_or_else(|| Broken::Here(Failed::of("an output cannot be encoded")))?;
    to.write_all(MARK)?;
    send(&mut to, &Header { format: FORMAT, key, outputs: outputs_of })?;
    for output in outputs {
        send_value(&mut to, output)?;
    }
    Ok(to.flush()?)
}

/// Reads the outputs of an entry. One that is damaged, or of another key or format, is an error.
pub(super) fn read(from: impl Read, key: Key) -> Result<Vec<Value>, Broken> {
    let mut from = BufReader::new(from);
    let mut mark = [0; MARK.len()];
    from.read_exact(&mut mark)?;
    let is_entry = mark == MARK;
    let header: Header = if is_entry { receive(&mut from)? } else { return Err(wrong("it is no entry")) };
    if (header.format, header.key) != (FORMAT, key) {
        return Err(wrong("it is the entry of another call"));
    }
    let outputs = header.outputs.into_iter().map(|identity| {
        let output = receive_value(&mut from)?;
        if output.identity() == Some(identity) { Ok(output) } else { Err(wrong("its content has changed")) }
    });
    outputs.collect()
}

fn wrong(what: &str) -> Broken {
    Broken::Pipe(io::Error::new(ErrorKind::InvalidData, what))
}

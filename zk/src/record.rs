//! Records in znodes: JSON, so that an operator can read them, with a format number.

use serde::{Deserialize, Serialize, de::DeserializeOwned};

use crate::error::{Error, Result};

/// The format that is written, and the newest that can be read.
const FORMAT: u32 = 2;

#[derive(Serialize, Deserialize)]
struct Versioned<T> {
    format: u32,
    #[serde(flatten)]
    record: T,
}

#[derive(Deserialize)]
struct Format {
    format: u32,
}

/// Encodes a record as the content of a znode.
pub(crate) fn write<T: Serialize>(record: &T) -> Vec<u8> {
    serde_json::to_vec(&Versioned { format: FORMAT, record }).expect("records are plain data")
}

/// Decodes a record from the content of a znode.
pub(crate) fn read<T: DeserializeOwned>(path: &str, content: &[u8]) -> Result<T> {
    let garbled = |reason: String| Error::Garbled { path: path.to_owned(), reason };
    let Format { format } = serde_json::from_slice(content).map_err(|error| garbled(error.to_string()))?;
    if format > FORMAT {
        return Err(garbled(format!("it has format {format}; this program reads up to {FORMAT}: update it")));
    }
    let versioned: Versioned<T> =
        serde_json::from_slice(content).map_err(|error| garbled(error.to_string()))?;
    Ok(versioned.record)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, PartialEq, Serialize, Deserialize)]
    struct Point {
        x: i32,
    }

    #[test]
    fn record_round_trips_and_ignores_unknown_fields() {
        assert_eq!(read::<Point>("/p", &write(&Point { x: 3 })).unwrap(), Point { x: 3 });
        assert_eq!(read::<Point>("/p", br#"{"format":1,"x":4,"colour":"red"}"#).unwrap(), Point { x: 4 });
    }

    #[test]
    fn garbage_and_newer_formats_are_refused_with_reason() {
        for (content, says) in [(&b"\xff"[..], "/p"), (b"{}", "format"), (br#"{"format":3,"x":1}"#, "update")]
        {
            let error = read::<Point>("/p", content).unwrap_err();
            assert!(error.to_string().contains(says), "{error}");
        }
    }
}

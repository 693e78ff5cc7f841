//! The events of an observer: changes of a cluster's znodes, and of the observation itself.

use serde::{Deserialize, Serialize};

/// An event seen by an observer. Serialised as a line of JSON it is an entry of a record
/// ([`Recorder`](super::Recorder)).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "Line", into = "Line")]
pub struct Event {
    /// The time, in milliseconds since 1970 by the observer's clock.
    pub at_ms: u64,
    /// The path of the znode, below that of the cluster, such as `members/n0000000000000001`; empty if the event
    /// concerns no znode.
    pub path: String,
    /// The observed change.
    pub content: Content,
}

/// The kinds of observed changes.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Content {
    /// The content of the znode. Empty, and not read, for znodes whose names carry all information.
    Data(Vec<u8>),
    /// The znode has this number of children.
    Children(u32),
    /// The znode no longer exists.
    Gone,
    /// Time has passed: everything seen so far becomes visible.
    Tick,
    /// ZooKeeper no longer answers: the known state may be out of date.
    Lost,
    /// ZooKeeper answers again, and everything was read again.
    Found,
}

impl Event {
    /// Creates an event about a znode.
    pub fn of(at_ms: u64, path: impl Into<String>, content: Content) -> Self {
        Self { at_ms, path: path.into(), content }
    }

    /// Creates a tick.
    pub fn tick(at_ms: u64) -> Self {
        Self::of(at_ms, "", Content::Tick)
    }
}

/// The serialised form of an event: text content, by far the most common, remains readable.
#[derive(Serialize, Deserialize)]
struct Line {
    at_ms: u64,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    path: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    text: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    hex: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    children: Option<u32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    what: Option<What>,
}

#[derive(Clone, Copy, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum What {
    Gone,
    Tick,
    Lost,
    Found,
}

impl From<Event> for Line {
    fn from(Event { at_ms, path, content }: Event) -> Self {
        let line = Self { at_ms, path, text: None, hex: None, children: None, what: None };
        match content {
            Content::Data(bytes) => match String::from_utf8(bytes) {
                Ok(text) => Self { text: Some(text), ..line },
                Err(other) => Self { hex: Some(to_hex(other.as_bytes())), ..line },
            },
            Content::Children(children) => Self { children: Some(children), ..line },
            Content::Gone => Self { what: Some(What::Gone), ..line },
            Content::Tick => Self { what: Some(What::Tick), ..line },
            Content::Lost => Self { what: Some(What::Lost), ..line },
            Content::Found => Self { what: Some(What::Found), ..line },
        }
    }
}

impl TryFrom<Line> for Event {
    type Error = String;

    fn try_from(line: Line) -> Result<Self, String> {
        let Line { at_ms, path, text, hex, children, what } = line;
        let content = match (text, hex, children, what) {
            (Some(text), None, None, None) => Content::Data(text.into_bytes()),
            (None, Some(hex), None, None) => Content::Data(from_hex(&hex).ok_or("hex has other characters")?),
            (None, None, Some(children), None) => Content::Children(children),
            (None, None, None, Some(What::Gone)) => Content::Gone,
            (None, None, None, Some(What::Tick)) => Content::Tick,
            (None, None, None, Some(What::Lost)) => Content::Lost,
            (None, None, None, Some(What::Found)) => Content::Found,
            _ => return Err("an event has one of text, hex, children and what".to_owned()),
        };
        Ok(Self { at_ms, path, content })
    }
}

fn to_hex(bytes: &[u8]) -> String {
    let digit = |value: u8| char::from_digit(u32::from(value), 16).unwrap_or('0');
    bytes.iter().flat_map(|byte| [digit(byte >> 4), digit(byte & 15)]).collect()
}

fn from_hex(text: &str) -> Option<Vec<u8>> {
    let digits: Option<Vec<u8>> =
        text.chars().map(|c| c.to_digit(16).and_then(|digit| u8::try_from(digit).ok())).collect();
    let digits = digits?;
    let pairs = digits.chunks(2);
    pairs.map(|pair| if let [high, low] = pair { Some(high << 4 | low) } else { None }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn event_is_restored_from_its_serialised_form() {
        let contents = [
            Content::Data(b"{\"format\":2}".to_vec()),
            Content::Data(vec![0, 0xff, 0x80]),
            Content::Data(Vec::new()),
            Content::Children(7),
            Content::Gone,
            Content::Tick,
            Content::Lost,
            Content::Found,
        ];
        for content in contents {
            let event = Event::of(3, "members/n1", content);
            let line = serde_json::to_string(&event).unwrap();
            assert_eq!(serde_json::from_str::<Event>(&line).unwrap(), event, "{line}");
        }
    }

    #[test]
    fn event_line_with_no_content_or_several_is_refused() {
        for line in [
            r#"{"at_ms":1}"#,
            r#"{"at_ms":1,"text":"","what":"gone"}"#,
            r#"{"at_ms":1,"hex":"abc"}"#,
            r#"{"at_ms":1,"hex":"zz"}"#,
            r#"{"at_ms":-1,"what":"tick"}"#,
            r#"{"what":"tick"}"#,
        ] {
            assert!(serde_json::from_str::<Event>(line).is_err(), "{line}");
        }
    }
}

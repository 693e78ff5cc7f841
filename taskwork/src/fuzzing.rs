//! Entry points for the project's fuzzer: bytes from the network, decoded as the runtime does.

use crate::{
    core::Message,
    envelope::Envelope,
    holdings::Holdings,
    id::NodeId,
    scope::Mark,
    wire::{
        bulk::{Answer, Ask, ObjectName},
        codec,
        hello::{Hello, Welcome},
        packet::{Note, NoteContent, Packet},
        parcel::Parcel,
    },
};

/// Describes a message between nodes, for traces: its kind and the number of tasks in it.
pub fn describe(payload: &[u8]) -> String {
    let parcel = match codec::decode::<Packet>(payload) {
        Ok(Packet::Protocol(parcel)) => parcel,
        Ok(Packet::Companion(Note { number, content, .. })) => {
            return match content {
                NoteContent::Message(bytes) => format!("note {number} of {} bytes", bytes.len()),
                NoteContent::Refused(why) => format!("note {number} refused: {why:?}"),
            };
        }
        Err(_) => return "?".to_owned(),
    };
    match parcel.message {
        Message::Steal { request } => format!("steal {request}"),
        Message::Deny { request } => format!("deny {request}"),
        Message::Grant { grant, tasks, .. } => format!("grant {grant} of {}", tasks.len()),
        Message::Ack { grant } => format!("ack {grant}"),
        Message::Refuse { grant } => format!("refuse {grant}"),
        Message::Settled { grant, .. } => format!("settled {grant}"),
        Message::Pending { grants, urgent } => format!("pending {grants:?}, urgent {urgent}"),
        Message::Confirmed { grants } => format!("confirmed {grants:?}"),
        Message::Void { grants } => format!("void {grants:?}"),
    }
}

/// Decodes bytes as each of the types that are received from the network. A decoded value must survive
/// encoding and decoding again.
///
/// # Panics
/// If it does not.
pub fn check_wire(bytes: &[u8]) {
    fn check<V: serde::de::DeserializeOwned + serde::Serialize + PartialEq + std::fmt::Debug>(bytes: &[u8]) {
        let Ok(value) = codec::decode::<V>(bytes) else { return };
        let written = codec::encode(&value).expect("what was read can be written");
        assert_eq!(codec::decode::<V>(&written).ok(), Some(value));
    }
    check::<Packet>(bytes);
    check::<(NodeId, Parcel)>(bytes);
    check::<Envelope>(bytes);
    check::<Holdings>(bytes);
    check::<Hello>(bytes);
    check::<Welcome>(bytes);
    check::<Ask>(bytes);
    check::<Answer>(bytes);
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    if let Ok(name) = text.parse::<ObjectName>() {
        assert_eq!(name.to_string().parse(), Ok(name));
    }
    if let Ok(mark) = text.parse::<Mark>() {
        assert_eq!(mark.to_string().parse(), Ok(mark));
    }
}

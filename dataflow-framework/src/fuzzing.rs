//! Entry points for the project's fuzzer: bytes from other nodes, decoded as the companion of a workflow does.

use crate::cluster;

/// Decodes bytes as each of the types that the companions of a workflow send each other. A decoded value must survive
/// encoding and decoding again. Returns whether it is any of them.
///
/// # Panics
/// If it does not.
pub fn check_wire(bytes: &[u8]) -> bool {
    cluster::check_messages(bytes)
}

/// Returns messages of companions for the fuzzer's corpus, each with the name of its file.
#[must_use]
pub fn examples() -> Vec<(&'static str, Vec<u8>)> {
    cluster::example_messages()
}
